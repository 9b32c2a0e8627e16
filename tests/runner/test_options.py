"""An option of `sbd run` is a field of RunOptions: every process of the run has the same value."""

from __future__ import annotations

from dataclasses import fields
from inspect import signature
from math import isfinite
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis.strategies import from_type, integers, none

from harness.cli.run import run_command
from harness.progress import Progress
from harness.runner import runner, worker
from harness.runner.cluster import ray_worker, scheduler
from harness.runner.job import Job
from harness.runner.options import RunOptions
from harness.runner.subprocesses import ChildTask, FreshInterpreter
from harness.scenario.plan import Share
from tests.helpers.child_processes import InThisProcess
from tests.helpers.fake_cluster import FakeCluster
from tests.helpers.fake_machine import SCENARIO, FakeEngine, fake_machine
from tests.helpers.scenarios import write


@given(from_type(RunOptions).filter(lambda asked: isfinite(asked.at_most or 0)), none() | from_type(Share), integers(1, 8))
def test_a_child_has_every_option_of_its_parent(options: RunOptions, share: Share | None, ranks: int) -> None:
    """Whatever fields they have: a new option needs no word of its own on the child's command line."""
    task = ChildTask(scenario=Path("s.yaml"), directory=Path("o"), share=share, lent=(3, 4), ranks=ranks, options=options)
    assert ChildTask.read(FreshInterpreter().command(task)[-1]) == task


def test_every_option_is_one_of_the_command() -> None:
    """By the same name."""
    assert {field.name for field in fields(RunOptions)} <= signature(run_command).parameters.keys()


@pytest.mark.parametrize("way", ["here", "fresh", "cluster"])
def test_whoever_takes_samples_has_the_options(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, in fresh ones and on the nodes of a cluster: the worker's door is the same."""
    seen: list[RunOptions] = []

    def take(work, *more):
        seen.append(work.options)
        return worker.take(work, *more)

    for door in (runner, ray_worker):
        monkeypatch.setattr(door, "take", take)
    options, machine = RunOptions(allow=("cpu", "code")), fake_machine()
    text = SCENARIO.replace("name: one", "name: one\n    processes: 2") if way == "fresh" else SCENARIO
    job, out, cluster = Job.of(write(tmp_path, text), options), tmp_path / "out", FakeCluster()
    if way == "cluster":
        scheduler.spread(job, out, cluster, Progress())
    else:
        runner.run(job, out, machine=machine, spawn=InThisProcess(FakeEngine().shape))
    assert seen == [options] * {"here": 1, "fresh": 2, "cluster": len(cluster.units)}[way]
