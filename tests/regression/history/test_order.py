"""A history has the order of the measurements, or of the commits, or says whose order it has; its commit is the asker's."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from harness.meters.environment import snapshot
from harness.record.imports.formats import read_file
from harness.record.same import software_of
from harness.regression.history.derive import HistoryRecord, Revision, record_of
from harness.regression.history.series import Lines, read_lines
from harness.regression.history.store import History, Wanted
from harness.regression.history.trend import trend
from harness.regression.history.wording import remarks
from harness.scenario.claim_text import read_claim
from harness.scenario.imported import About, ImportedArm, imported_run
from tests.helpers import synthetic_run as synthetic
from tests.helpers.bench_files import vllm_result, written
from tests.helpers.environments import with_environment
from tests.helpers.synthetic_history import figure, record


def imported(folder: Path, **changes: object) -> HistoryRecord:
    """The record of an import of two files of vLLM."""
    arms = [
        ImportedArm(
            name=name,
            is_ntp=name == "ntp",
            files=(read_file(written(folder, f"{name}.json", vllm_result(0.02, seed=seed) | changes)),),
        )
        for seed, name in enumerate(("ntp", "fast"))
    ]
    header, samples = imported_run(arms, About(model=None, machine="box", claims=(read_claim("3-5x"),), command="sbd import"))
    run = synthetic.build().model_copy(update={"header": header, "samples": samples, "outcomes": [], "sessions": []})
    return record_of(run, str(folder), Revision())


@pytest.mark.parametrize(
    ("date", "measured_at"),
    [("20240229-101500", "2024-02-29T10:15:00+00:00"), ("2024-02-29T10:15:00+01:00", "2024-02-29T09:15:00+00:00")],
)
def test_an_import_has_the_date_of_its_file(tmp_path: Path, date: str, measured_at: str) -> None:
    """Not that of the import."""
    assert imported(tmp_path, date=date).measured_at == measured_at


def lines_of(folder: Path, *records: HistoryRecord) -> tuple[Lines, str]:
    """The lines of a history of these records, added in this order, and the remarks of its trend."""
    with History(str(folder / "h.sqlite")) as kept:
        for one in records:
            kept.add(one)
        with kept.reading() as connection:
            found = read_lines(connection, Wanted(), ["wall_speedup"])
        return found, " ".join(remarks(trend(kept, Wanted(), ["wall_speedup"])))


def test_files_without_a_date_are_in_the_order_of_importing_and_it_is_said(tmp_path: Path) -> None:
    """No time is made up for them."""
    undated = [
        replace(
            record(number, figure(1.0 + number)),
            measured_at="",
            revision=Revision(),
            added_at=f"2026-01-0{9 - number}T00:00:00",
        )
        for number in range(3)
    ]
    found, said = lines_of(tmp_path, *undated)
    assert found.series[0].values == (3.0, 2.0, 1.0)
    assert "3 runs of files that tell no time of measurement: in the order of importing" in said


def test_commits_of_which_no_time_is_known_are_in_the_order_of_measurement(tmp_path: Path) -> None:
    """Of a shallow clone the newest alone is known: made before the one before it was measured, and measured last."""
    records = [record(number, figure(1.0 + number)) for number in range(4)]
    shallow = [replace(one, revision=replace(one.revision, committed_at=None)) for one in records[:3]]
    newest = replace(records[3], revision=replace(records[3].revision, committed_at="2025-12-31T00:00:00+00:00"))
    found, said = lines_of(tmp_path, newest, *shallow)
    assert found.series[0].values == (1.0, 2.0, 3.0, 4.0)
    assert "3 runs of commits of which no time is known, as in a shallow clone" in said and "--committed-at" in said


def test_the_commit_is_that_of_the_repository_where_the_run_was_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its time, and sbd's own beside it; in no repository there is none, with the reason."""

    def git(line: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *line.split()]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    git("init -q")
    (tmp_path / "file").write_text("1")
    git("add file")
    git("commit -qm one --date 2024-02-29T10:00:00Z")
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    clean = snapshot()
    (tmp_path / "file").write_text("2")
    run = with_environment(synthetic.build(), **snapshot())
    head = git("rev-parse HEAD").strip()
    found = record_of(run, "here", Revision()).revision
    assert clean["repository"]["commit_has_changes"] is False
    assert (found.commit, found.has_changes, found.committed_at is not None) == (head, True, True)
    assert record_of(run, "here", Revision(commit="b" * 40)).revision == Revision(commit="b" * 40)
    if clean["commit"] is not None:
        assert software_of(run.header)["sbd commit"] == clean["commit"]
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / ".git").rename(tmp_path / "gone")
    lone = snapshot()
    assert lone["repository"] is None and "not a git repository" in lone["reasons"]["repository"]
    assert record_of(with_environment(run, **lone), "here", Revision()).revision == Revision()
