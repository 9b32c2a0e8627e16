"""A run until decided: when it is looked at, when it ends, and what its record says of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.analysis.answer import compare
from harness.errors import UserError
from harness.models import KNOWN_SHAPES
from harness.progress import Progress
from harness.record.schema import Looks, Run
from harness.record.store import read_run
from harness.runner.job import Job
from harness.runner.options import RunOptions
from harness.runner.planned_looks import DECIDED, TIME_IS_UP, PlannedLooks
from harness.runner.runner import run
from harness.stats.looks import nominal_levels
from tests.helpers.child_processes import InThisProcess
from tests.helpers.fake_machine import SCENARIO
from tests.helpers.scenarios import write

SEVERAL = SCENARIO.replace("name: one", "name: one\n    processes: 2").replace("repeats: 2", "warmup: 0")
UNTIL = RunOptions(until="decided")


class Watcher:
    """Decides after so many processes; remembers what it saw."""

    def __init__(self, after: int) -> None:
        self.after, self.seen = after, list[int]()

    def __call__(self, held: Run, whole: int) -> tuple[bool, Sequence[str]]:
        assert {sample.process for sample in held.samples} == set(range(whole)), "whole processes"
        self.seen.append(whole)
        return whole >= self.after, [f"seen {whole}"]


def taken(folder: Path, look: Watcher, options: RunOptions = UNTIL) -> Run:
    """A run of fake processes."""
    job = Job.of(write(folder, SEVERAL), options)
    return read_run(run(job, folder / "out", spawn=InThisProcess(KNOWN_SHAPES["llama-250m"]), look=look))


def test_it_ends_at_the_first_look_that_decides(tmp_path: Path) -> None:
    """Looked at from the third process on (what it would take), decided from the fourth on; the rule is in its header."""
    watcher = Watcher(after=5)
    held = taken(tmp_path, watcher)
    assert watcher.seen == [3, 4, 5] and {sample.process for sample in held.samples} == {*range(5)}
    assert held.header.looks == Looks(first=4, last=12, error=0.025)
    assert held.unended is None and held.events("end")[-1]["reason"] == DECIDED
    assert held.header.command.endswith("--until decided")
    assert compare(held).looks == pytest.approx(0.025 / nominal_levels(4, 12, 0.025)[5])


def test_it_is_not_decided_before_the_fourth_process(tmp_path: Path) -> None:
    watcher = Watcher(after=0)
    assert {sample.process for sample in taken(tmp_path, watcher).samples} == {*range(4)} and watcher.seen == [3, 4]


def test_it_takes_all_processes_where_nothing_is_decided(tmp_path: Path) -> None:
    held = taken(tmp_path, Watcher(after=99))
    assert {sample.process for sample in held.samples} == {*range(12)} and held.unended is None


def test_a_run_that_was_not_to_be_looked_at_is_judged_as_ever(tmp_path: Path) -> None:
    """All of its processes, at its own level."""
    watcher = Watcher(after=0)
    held = taken(tmp_path, watcher, RunOptions())
    assert watcher.seen == [] and held.header.looks is None and compare(held).looks == 1.0
    assert {sample.process for sample in held.samples} == {0, 1}


def test_a_decided_run_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same command begins another one, as with any finished run; the interrupted one is gone on with."""
    monkeypatch.chdir(tmp_path)
    job = Job.of(write(tmp_path, SEVERAL), UNTIL)
    spawn = InThisProcess(KNOWN_SHAPES["llama-250m"])
    first = run(job, None, spawn=spawn, look=Watcher(after=4))
    assert job.directory(None) != first

    def interrupted(held: Run, whole: int) -> tuple[bool, Sequence[str]]:
        if whole == 4:
            raise KeyboardInterrupt
        return False, []

    with pytest.raises(KeyboardInterrupt):
        run(job, None, spawn=spawn, look=interrupted)
    second = job.directory(None)
    assert second != first and read_run(second).unended is not None
    run(job, None, spawn=spawn, look=Watcher(after=5))
    assert {sample.process for sample in read_run(second).samples} == {*range(5)}


def test_prompts_that_all_processes_share_cannot_be_looked_at(tmp_path: Path) -> None:
    """Refused by name: a process more would only repeat them."""
    with pytest.raises(UserError, match="--until decided: no part has processes with prompts of their own"):
        Job.of(write(tmp_path, SCENARIO), UNTIL)


def test_no_process_begins_that_would_end_too_late() -> None:
    """By a clock of our own: processes of 10, 30 and 20 s, 100 s at most: after 80 s another of 30 would not fit."""
    now_s, notes = iter([0, 0, 10, 40, 60, 80]), list[str]()
    progress = Progress()
    progress.note = notes.append  # type: ignore[method-assign]  # a test's own
    looks = PlannedLooks(Looks(first=4, last=12, error=0.025, at_most_s=100.0), None, progress, clock=lambda: next(now_s))
    held = None
    assert [looks.ended(held, whole) for whole in range(5)] == [None, None, None, None, TIME_IS_UP]  # type: ignore[arg-type]
    assert notes == [f"{TIME_IS_UP}: another process would end after 100 s"]
