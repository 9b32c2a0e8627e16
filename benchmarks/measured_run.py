"""The run that a benchmark's figures are derived from: measured now, or one that is there already (the first argument)."""

from __future__ import annotations

import sys
from pathlib import Path

from harness.analysis.answer import Comparison
from harness.cli.run import take_and_tell
from harness.record.schema import Run
from harness.record.store import read_run
from harness.runner.runner import run


def measured_run(scenario: Path) -> Run:
    """Read the run directory that the command line names, else measure ``scenario``."""
    return read_run(Path(sys.argv[1])) if len(sys.argv) > 1 else measured_now(scenario)


def measured_now(scenario: Path) -> Run:
    """Measure ``scenario``: into a run directory under reports/ that stays, or the unfinished one of a run that was stopped."""
    return read_run(take_and_tell(lambda progress: run(scenario, None, progress), report=False))


def print_void(comparison: Comparison) -> None:
    """How many timed samples of each part were void, and why."""
    for found in comparison.health:
        print(f"{found.part}: {found.void} of {found.timed} samples void {found.reasons}")
