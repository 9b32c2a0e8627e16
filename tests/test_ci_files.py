"""The ready CI files under docs/ci: every sbd line is one that the program knows, and those without a model are run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest
import yaml

from harness.record.schema import Run
from harness.record.store import RunStore
from tests.helpers import ROOT
from tests.helpers.command import sbd
from tests.helpers.command_lines import commands, refusal
from tests.helpers.synthetic_run import Part, build

CI = ROOT / "docs" / "ci"
FILES = {path.name: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(CI.glob("*.yml"))}
VARIABLES = {
    "GITHUB_STEP_SUMMARY": "summary.md", "GITHUB_SHA": "0123456789abcdef0123456789abcdef01234567", "GITHUB_REF_NAME": "main",
    "CI_COMMIT_SHA": "0123456789abcdef0123456789abcdef01234567", "CI_COMMIT_BRANCH": "main",
}  # fmt: skip
STEPS = ("script", "before_script", "after_script")


class Line(NamedTuple):
    """One sbd command of a file: the job that it stands in, and its words after ``sbd``."""

    file: str
    job: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.file}: {self.job}: sbd {' '.join(self.words)}"


def scripts(data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(job, shell script) of a GitHub or a GitLab file."""
    for job, body in (data.get("jobs") or data).items():
        if isinstance(body, dict):
            yield from ((job, step["run"]) for step in body.get("steps", ()) if "run" in step)
            yield from ((job, "\n".join(body[name])) for name in STEPS if name in body)


def lines() -> list[Line]:
    """Every sbd command of every file, shell variables put in."""

    def filled(word: str) -> str:
        return re.sub(r"\$(\w+)", lambda name: VARIABLES[name[1]], word)

    return [
        Line(file, job, tuple(filled(word) for word in command))
        for file, data in FILES.items()
        for job, script in scripts(data)
        for command in commands(script)
    ]


def test_the_files_are_found() -> None:
    """Both files, and in each the commands that the jobs are about, those inside --base-cmd and --new-cmd too."""
    assert set(FILES) == {"github-actions.yml", "gitlab-ci.yml"}
    for file in FILES:
        found = [line.words for line in lines() if line.file == file]
        assert {words[0] for words in found} == {"run", "gate", "verify", "history"}
        assert [words for words in found if words[:2] == ("run", "scenarios/gate.yaml") and words[-1] == "{out}"]
        assert [words for words in found if "--deterministic-only" in words]


@pytest.mark.parametrize("line", lines(), ids=str)
def test_every_line_is_one_that_the_program_knows(line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands, options and values, as typer reads them; the scenario that is named is shipped."""
    monkeypatch.chdir(tmp_path)
    assert refusal(line.words) is None
    for word in line.words:
        assert not word.startswith("scenarios/") or (CI.parent.parent / word).is_file()


@pytest.mark.parametrize(
    "words", [("fly",), ("run",), ("run", "a.yaml", "--no-repport"), ("run", "a.yaml", "b.yaml"), ("report", "a", "--out")]
)
def test_the_check_of_a_line_can_fail(words: tuple[str, ...]) -> None:
    """A command, an option, an argument that the program does not know."""
    assert refusal(words)


def keep(run: Run, folder: Path) -> None:
    """A run directory."""
    with RunStore(folder) as store:
        store.create(run.header)
        for sample in run.samples:
            store.append(sample)


def with_passes(times: float) -> Run:
    """A run whose SBD blocks take so many times the passes."""
    arms = tuple(replace(arm, passes_per_block=int(times * arm.passes_per_block)) if arm.gamma else arm for arm in Part().arms)
    return build(Part(arms=arms, jitter=0.05))


def varied() -> Run:
    """A run in which every second prompt takes half the passes, so that there is a spread to make an interval of."""
    usual, fast = with_passes(1), with_passes(0.5)
    samples = [(one, quick)[one.group % 2] for one, quick in zip(usual.samples, fast.samples, strict=True)]
    return usual.model_copy(update={"samples": samples})


@pytest.mark.parametrize("file", FILES)
def test_the_lines_that_need_no_model_run(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In their order, on synthetic runs where `sbd run` would leave its own: all pass, and leave the files that they name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SBD_HISTORY", str(tmp_path / "history.sqlite"))
    run = varied()
    for name in ("base", "new", "nightly"):
        keep(run, tmp_path / "runs" / name)
    ran = [line for line in lines() if line.file == file and line.words[0] != "run" and "--base-cmd" not in line.words]
    assert [line.words[0] for line in ran].count("history") == 2
    for line in ran:
        code = sbd(monkeypatch, *line.words)
        assert code == 0, (str(line), code, *capsys.readouterr())
    named = [word.rpartition("=")[2] for line in ran for option, word in pairwise(line.words) if option in ("--to", "--html")]
    assert len(named) > 4 and [name for name in named if name != "-" and not (tmp_path / name).stat().st_size] == []


@pytest.mark.parametrize("file", FILES)
def test_the_deterministic_job_turns_red(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """More passes per block end the job with 1, and the JUnit file that CI shows names the metric."""
    monkeypatch.chdir(tmp_path)
    keep(with_passes(1), tmp_path / "runs" / "base")
    keep(with_passes(2), tmp_path / "runs" / "new")
    (line,) = [line for line in lines() if line.file == file and "--deterministic-only" in line.words]
    assert sbd(monkeypatch, *line.words) == 1, capsys.readouterr()
    failed = ElementTree.parse(tmp_path / "deterministic.xml").findall(".//testcase[failure]")
    assert any((case.get("name") or "").startswith("passes: ") for case in failed)


# ---- what a careful reviewer asks of a workflow


def test_the_workflow_has_no_more_rights_than_it_needs() -> None:
    """Read only; no trigger that gives a fork's code the rights of the repository; nothing of others unpinned."""
    data = FILES["github-actions.yml"]
    assert data["permissions"] == {"contents": "read"}
    assert set(data[True]) == {"pull_request", "push", "schedule", "workflow_dispatch"}  # YAML 1.1 reads on: as true
    for name, job in data["jobs"].items():
        assert "permissions" not in job and job["timeout-minutes"] <= 120, name
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step["uses"]), step["uses"]
            assert "${{" not in step.get("run", ""), "an expression in a script is a place to inject commands"


def test_a_fork_never_reaches_the_bench_machine() -> None:
    """Whatever runs a pull request on a machine of one's own asks first where it comes from."""
    jobs = FILES["github-actions.yml"]["jobs"].values()
    own = [job["if"] for job in jobs if "self-hosted" in job["runs-on"]]
    assert len(own) == 2
    for condition in own:
        assert "pull_request" not in condition or "head.repo.full_name == github.repository" in condition
    for job in FILES["gitlab-ci.yml"].values():
        if isinstance(job, dict) and "tags" in job:
            for rule in job["rules"]:
                assert "merge_request" not in rule["if"] or "SOURCE_PROJECT_ID == $CI_PROJECT_ID" in rule["if"]


def test_the_readme_tells_formats_that_there_are_and_every_exit_code() -> None:
    """The help of `--to` lists the formats by itself; the table says what to do with them."""
    from harness import errors
    from harness.reporting.exports.formats import FORMATS

    text = (CI / "README.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| (`[^|]*) \|", text.partition("| FORMAT |")[2], re.MULTILINE)
    assert set(re.findall(r"`([a-z-]+)`", " ".join(told))) <= set(FORMATS) and told
    codes = [value for name, value in vars(errors).items() if name.startswith("EXIT_")]
    assert [code for code in codes if f"\n| {code} | " not in text] == []
