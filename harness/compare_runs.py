"""What changed from one run to another, by how much, and how sure that is: a comparison to be read, not a verdict.

Times are paired per prompt: the same prompt's times in BASE and in NEW. Counts have no interval. Reads records only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from harness.judgement import Better, Kind
from harness.metrics import Metric, timed_metrics
from harness.metrics_counted import METERS, counted
from harness.metrics_timed import numbers, paired_times, processes_of
from harness.record import Run
from harness.stats import Quantity, absent, exact
from harness.stats_ratios import geometric_mean_ratio

RUNS_COMPARED_VERSION = 1
"""Version of the JSON form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One figure of both runs. ``ratio`` is NEW / BASE; ``base`` and ``new`` are None, with its reason, where one is not known.

    A timed figure is given as the median over processes; its ratio is the geometric mean over prompts.
    """

    key: str
    metric: str
    subject: str
    cell: dict[str, str]
    kind: Kind
    unit: str
    better: Better
    base: float | str | None
    new: float | str | None
    ratio: Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsCompared:
    """NEW beside BASE, by run id; ``unlike`` what was allowed to differ, ``one_sided`` the cases that only one of them has."""

    base: str
    new: str
    changes: tuple[Change, ...]
    unlike: tuple[str, ...] = ()
    one_sided: tuple[str, ...] = ()
    version: int = RUNS_COMPARED_VERSION


def compare_runs(base: Run, new: Run, unlike: Sequence[str] = ()) -> RunsCompared:
    """Every figure of the cases that both runs have: first what was counted, then what was timed."""
    cases = [{case.case_id for case in run.header.cases if not case.is_check} for run in (base, new)]
    return RunsCompared(
        base=base.header.run_id,
        new=new.header.run_id,
        changes=(*_counted(base, new), *_timed(base, new)),
        unlike=tuple(unlike),
        one_sided=tuple(sorted(cases[0] ^ cases[1])),
    )


def to_json(compared: RunsCompared) -> dict[str, Any]:
    """As plain JSON values with their ``version``."""
    return asdict(compared)


def _counted(base: Run, new: Run) -> list[Change]:
    of_base, of_new = counted(base), counted(new)
    found = []
    for metric in of_base:
        left, right = of_base[metric], of_new.get(metric)
        if right is None or (metric.name in METERS and None in (left.value, right.value)):
            continue
        ratio = absent(left.reason or right.reason or "text has no ratio")
        if isinstance(left.value, int | float) and isinstance(right.value, int | float):
            ratio = exact(right.value / left.value) if left.value else absent("nothing in BASE to divide by")
        found.append(_change(metric, left.value, right.value, ratio))
    return found


def _timed(base: Run, new: Run) -> list[Change]:
    of_base, of_new = processes_of(base), processes_of(new)
    count = min(len(of_base), len(of_new))
    there = set(timed_metrics(new))
    found = []
    for metric in timed_metrics(base):
        if metric not in there:
            continue
        values = numbers(metric, [*of_base[:count], *of_new[:count]])
        if isinstance(values, str):
            found.append(_change(metric, None, None, absent(values)))
            continue
        pairs = paired_times(metric, of_base[:count], of_new[:count])
        ratio = geometric_mean_ratio(
            [(one.new, one.base) for one in pairs], [one.prompt for one in pairs], [one.process for one in pairs]
        )
        found.append(_change(metric, median(values[:count]), median(values[count:]), ratio))
    return found


def _change(metric: Metric, base: float | str | None, new: float | str | None, ratio: Quantity) -> Change:
    one = metric.definition
    return Change(
        key=metric.key, metric=metric.name, subject=metric.subject, cell=metric.cell, kind=one.kind, unit=one.unit,
        better=one.better, base=base, new=new, ratio=ratio,
    )  # fmt: skip
