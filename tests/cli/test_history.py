"""`sbd history` from end to end: runs added, listed, shown, derived again and judged, each mistake in words."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from harness.analysis.results import COMPARISON_VERSION
from harness.meters.environment import ask_git, branch_at, committed_at
from harness.regression.history.store import History, Wanted
from tests.helpers.command import Cli
from tests.helpers.records import RECORDS
from tests.helpers.synthetic_history import commit, records_of

RUN_ID = json.loads((RECORDS / "v6" / "run.json").read_text())["run_id"]


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A history of the test's own, as the environment names it."""
    file = tmp_path / "h.sqlite"
    monkeypatch.setenv("SBD_HISTORY", str(file))
    return file


def put(database: Path, values: list[float]) -> None:
    """A record a commit."""
    with History(str(database)) as history:
        for one in records_of(values):
            history.add(one)


@pytest.mark.usefixtures("database")
def test_a_run_is_added_listed_and_shown(cli: Cli) -> None:
    """The second time nothing changes; what the user says of the commit is kept."""
    arguments = f"{RECORDS}/v6 --branch main --commit c0ffee --committed-at 2026-11-20T12:00:00+02:00"
    said = [*cli.output(f"history add {arguments}").splitlines(), *cli.output(f"history add {arguments}").splitlines()]
    assert [line.split()[0] for line in said] == ["added", "history", "unchanged", "history"]
    assert cli("history list") == 0
    assert f"{RUN_ID[:10]}  2026-11-21 22:11:57  quickstart" in cli.out
    (listed,) = cli.answer("history list --branch main")
    assert listed["revision"] == {
        "commit": "c0ffee",
        "has_changes": None,
        "branch": "main",
        "committed_at": "2026-11-20T10:00:00+00:00",
    }
    shown = cli.output("history show", RUN_ID[:6])
    assert RUN_ID in shown and "time_per_token_s" in shown and str(RECORDS / "v6") in shown
    assert cli.answer(f"history show {RUN_ID}")["version"] == 1


def test_figures_of_older_formulas_are_derived_again(cli: Cli, database: Path, tmp_path: Path) -> None:
    """From the run where it lies; one that is gone keeps what it has."""
    run, lost = tmp_path / "run", tmp_path / "lost"
    shutil.copytree(RECORDS / "v6", run)
    shutil.copytree(run, lost)
    (lost / "run.json").write_text((run / "run.json").read_text().replace(RUN_ID, "0" * 32))
    assert cli(f"history add --branch main {run}/run.json {lost}") == 0
    with History(str(database)) as history:
        before = {Path(one.path).name: history.record(one.run_id) for one in history.records(Wanted())}
    database.unlink()
    with History(str(database)) as history:
        for one in before.values():
            wrong = tuple(replace(figure, value=-1.0) for figure in one.figures)
            history.add(replace(one, comparison_version=COMPARISON_VERSION - 1, figures=wrong))
    shutil.rmtree(lost)
    said = cli.output("history rebuild")
    assert sorted(line.split()[0] for line in said.splitlines()) == ["gone", "history", "replaced"]
    assert "2 of 2 runs" in said
    with History(str(database)) as history:
        assert history.record(before["run"].run_id) == before["run"]
        assert history.record(before["lost"].run_id).figures[0].value == -1.0


def test_a_trend_is_printed_written_and_alarms(cli: Cli, database: Path, tmp_path: Path) -> None:
    """The commits are named; exit code 1 only where an alarm is asked for and the change for the worse is that new."""
    put(database, [3.0] * 12 + [2.7] * 6)
    page = tmp_path / "trend.html"
    said = cli.output(f"history trend --html {page}")
    assert f"after {commit(11)[:10]} and by {commit(12)[:10]}" in said and "1 change in 1 series of 18 runs" in said
    assert page.read_text().startswith("<!doctype html>")
    assert cli("history trend --alarm 6") == 1
    assert cli("history trend --alarm 5") == 0
    assert cli("history trend --alarm 6 --min-change-pct 11") == 0
    assert len(cli.answer("history trend")["series"]) == 1
    assert "no run is kept that was asked for" in cli.output("history trend --branch no-such")


def test_git_is_asked_when_a_commit_was_made_and_on_which_branch(tmp_path: Path) -> None:
    """In a checkout of our own; a commit it does not have, or a name that is no commit, is not known."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run([*git, "init", "-q", "-b", "trunk"], check=True)
    date = {"GIT_COMMITTER_DATE": "2026-01-02T03:04:05+0100", "PATH": "/usr/bin:/bin"}
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True, env=date)
    head, _ = ask_git(tmp_path, "rev-parse", "HEAD")
    assert committed_at(tmp_path, head) == "2026-01-02T03:04:05+01:00" and branch_at(tmp_path, head) == "trunk"
    assert branch_at(tmp_path, head[:10]) == "trunk"
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "second"], check=True)
    assert branch_at(tmp_path, head) is None and committed_at(tmp_path, head) is not None
    for no_commit in ("0" * 40, "--help", "HEAD"):
        assert committed_at(tmp_path, no_commit) is None and branch_at(tmp_path, no_commit) is None
    assert committed_at(tmp_path / "nowhere", head) is None
