"""An option of `sbd run` is a field of RunOptions: every process of the run has the same value."""

from __future__ import annotations

from dataclasses import fields
from inspect import signature
from pathlib import Path

from hypothesis import given
from hypothesis.strategies import from_type, integers, none

from harness.cli.run import run_command
from harness.runner.options import RunOptions
from harness.runner.subprocesses import ChildTask, FreshInterpreter
from harness.scenario.plan import Share


@given(from_type(RunOptions), none() | from_type(Share), integers(1, 8))
def test_a_child_has_every_option_of_its_parent(options: RunOptions, share: Share | None, ranks: int) -> None:
    """Whatever fields they have: a new option needs no word of its own on the child's command line."""
    task = ChildTask(scenario=Path("s.yaml"), directory=Path("o"), share=share, lent=(3, 4), ranks=ranks, options=options)
    assert ChildTask.read(FreshInterpreter().command(task)[-1]) == task


def test_every_option_is_one_of_the_command() -> None:
    """By the same name."""
    assert {field.name for field in fields(RunOptions)} <= signature(run_command).parameters.keys()
