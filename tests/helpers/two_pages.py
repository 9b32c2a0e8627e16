"""Two runs beside each other."""

from __future__ import annotations

from typing import Any

from harness.record.schema import Run
from harness.regression.side_by_side import compare_several
from tests.helpers import synthetic_run as synthetic
from tests.helpers.two_runs import MORE_PASSES, in_processes, slower, two_arms


def named(run: Run, run_id: str, **environment: Any) -> Run:
    """The run under another id, on a machine that differs in ``environment``."""
    header = run.header.model_copy(update={"run_id": run_id, "environment": run.header.environment | environment})
    return run.model_copy(update={"header": header})


BASE = in_processes(two_arms(jitter=0.05, prompts=8), 1.0, 1.02, 0.98)
SLOWER = named(in_processes(slower(two_arms(jitter=0.05, prompts=8), 1.2, "sbd"), 1.01, 0.99, 1.0), "run-slower")
OTHER = named(two_arms(arms=(synthetic.NTP, MORE_PASSES), jitter=0.05, prompts=8), "run-other", cpu_model="Other CPU")
FOUND = compare_several([BASE, SLOWER, OTHER])
