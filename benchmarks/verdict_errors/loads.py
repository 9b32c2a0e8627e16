"""Loads, drawn by benchmarks.simulated_load and judged as a record is: 48 or 200 requests in each of 3 or 6 starts.

A closed loop of 4, and Poisson arrivals at half, moderate and near-full load. Every start has arrivals and prompts of its own,
the same for NTP and the arm. The truth is that of the load in its steady state, over all arrivals and prompts.
Power is asked of 200 requests in 6 starts, without percentiles that few requests hold. Near full load nothing is quiet: queues
of two starts differ more than any process.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from benchmarks.simulated_load import LOADS, LoadShape, Start, simulated, truth
from benchmarks.verdict_errors.drawn import Task
from benchmarks.verdict_errors.records import claimed, header, judged, row, run_of, sample
from harness.record.schema import Run, Sample

KINDS, QUIET = ("closed", *LOADS), ("closed", "half", "moderate")
FIGURES = (
    *(f"{wait}_p{percent}_s" for wait in ("first_token", "request") for percent in (50, 95)),
    "time_per_token_p95_s",
    *("throughput_tokens_per_s", "goodput_per_s", "wall_speedup", "request_p95_speedup"),
)


def run_loads(task: Task, random: np.random.Generator, counts: Counter[str]) -> None:
    """All figures of one run."""
    shape = shape_of(task)
    true, quiet = truth(shape), task.prompts >= 200 and task.processes >= 5 and task.shape in QUIET
    asked = [one for name in FIGURES for one in claimed(name, true[name], quiet and "p95" not in name, metric=name)]
    judged(load_run(shape, simulated(shape, random)), asked, counts)


def shape_of(task: Task) -> LoadShape:
    """As the simulator says it."""
    if task.shape == "closed":
        return LoadShape(kind="closed", requests=task.prompts, starts=task.processes)
    return LoadShape(kind="poisson", utilisation=LOADS[task.shape], requests=task.prompts, starts=task.processes)


def load_run(shape: LoadShape, drawn: dict[str, list[Start]]) -> Run:
    """One sample a start and arm, whose rows are the requests."""
    base = header(1, batch_size=shape.in_flight)
    samples = [
        _sample(case.case_id, process, start)
        for case, starts in zip(base.cases, drawn.values(), strict=True)
        for process, start in enumerate(starts)
    ]
    load = shape.load.model_dump(mode="json", exclude_defaults=True)
    return run_of(base, samples, {"load": load, "workload": {"prompts": shape.requests}})


def _sample(case_id: str, process: int, start: Start) -> Sample:
    told = zip(start.prompts, start.tokens, start.times, strict=True)
    rows = [row(f"p{prompt}", tokens, output_tokens=tokens, times=times) for prompt, tokens, times in told]
    whole_s = max(one.sent_s + one.last_token_s for one in start.times)
    return sample(case_id, 0, process, rows, whole_s, {})


SHAPES = {"loads": run_loads}
