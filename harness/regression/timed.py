"""The timed figures of processes: one number per process and metric, over the samples that all of them have.

A fresh process is the unit of replication (Kalibera and Jones, ISMM 2013). Repeats inside one share its conditions, so they
give one number. A void time is left out on every side, because medians over different prompts would differ. Decodes, their
times and NTP beside them are those of harness.analysis.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from harness.analysis.figures.arm_figures import whole
from harness.analysis.figures.arms import beside_ntp
from harness.analysis.figures.request_figures import percentile_by_process
from harness.analysis.tally.by_request import tallies_by_case
from harness.analysis.tally.tally import Tally
from harness.analysis.trust.health import without_void_times
from harness.frozen import frozen
from harness.record.schema import CaseHeader, Run
from harness.regression.metrics import CellMetric, log_ratio, metric_of
from harness.stats.two_runs import Observations

Prompts = tuple[tuple[str, str], ...]
_Place = tuple[str, Prompts, int]
"""(case id, prompts of the batch, repeat)."""
_Decodes = dict[_Place, Tally]
NO_REQUESTS = "a process has no request with times of its own"
ALL: Prompts = (("", "all"),)
"""Stands for the prompts of a figure over requests."""


@frozen
class Process:
    """The timed decodes of one process of a run; ``void``: why times of it are missing, by rule.

    ``ntp``: NTP's case id by case id. ``served``: by case id, what servers decoded with times for each request, those that do
    not count included.
    """

    decodes: _Decodes
    cases: Mapping[str, CaseHeader]
    ntp: Mapping[str, str]
    void: dict[str, int]
    served: dict[str, list[Tally]] = field(default_factory=dict)


@frozen
class Table:
    """The values of every process, one for each of ``prompts``."""

    prompts: Sequence[Prompts]
    values: Sequence[Sequence[float]]


def processes_of(run: Run) -> list[Process]:
    """The fresh processes of a run, in order, without warm-ups and void times.

    The requests of an imported run without pairs are added up, file by file: there each file has prompts of its own.
    """
    run, health = without_void_times(run)
    cases, ntp = {case.case_id: case for case in run.header.cases}, dict[str, str]()
    void = {reason: count for part in health for reason, count in part.reasons.items()}
    found: dict[int, Process] = {}
    for arm, beside in beside_ntp(run.header.cases, tallies_by_case(run)):
        ids = {case.task: case.case_id for case in arm.cases}
        ntp |= {ids[case.task]: case.case_id for case in (beside.cases if beside else ()) if case.task in ids}
        for one in arm.tallies:
            task, _, repeat, number = one.key
            process = found.setdefault(number, Process(decodes={}, cases=cases, ntp=ntp, void=void))
            if one.has_decode_time:
                process.decodes[ids[task], one.prompts, repeat] = one
            if one.requests:
                process.served.setdefault(ids[task], []).append(one)
    for process in found.values() if run.header.imported is not None and run.header.imported.pairing is None else ():
        _add_up(process.decodes)
    return [found[number] for number in sorted(found)]


def _add_up(decodes: _Decodes) -> None:
    """Put one tally in the place of all decodes of a case."""
    by_case: dict[str, list[Tally]] = {}
    for (case_id, _, _), one in decodes.items():
        by_case.setdefault(case_id, []).append(one)
    decodes.clear()
    decodes.update({(case_id, (), 0): whole(tallies) for case_id, tallies in by_case.items()})


def with_times(metric: CellMetric, processes: Sequence[Process]) -> list[Process]:
    """The processes that have a time of the metric's cell: parts of one run may have different numbers of them."""
    return [process for process in processes if next(_of_cell(metric, process), None)]


def numbers(metric: CellMetric, processes: Sequence[Process]) -> list[float] | str:
    """One number per process, in the metric's unit, over the decodes that every process has a time of; or the reason."""
    table = _table(metric, processes)
    mean = statistics.geometric_mean if metric.name == "wall_speedup" else statistics.median
    return table if isinstance(table, str) else [float(mean(values)) for values in table.values]


def log_ratios(metric: CellMetric, base: Sequence[Process], new: Sequence[Process]) -> list[float] | str:
    """d = log(NEW / BASE) of the first processes, the second and so on, as far as both sides have them; or the reason."""
    count = min(len(base), len(new))
    values = numbers(metric, [*base[:count], *new[:count]])
    return values if isinstance(values, str) else list(map(log_ratio, values[:count], values[count:]))


def observed(metric: CellMetric, base: Sequence[Process], new: Sequence[Process]) -> tuple[Observations, Observations]:
    """BASE's and NEW's figures of every decode that all processes of both have a time of, by prompts of the batch.

    A figure over requests is one a process.
    """
    table = _table(metric, [*base, *new])
    rows = [] if isinstance(table, str) else [list(zip(values, table.prompts, strict=True)) for values in table.values]

    def of(rows: Sequence[Sequence[tuple[float, Prompts]]]) -> Observations:
        found = [(value, prompts, number) for number, row in enumerate(rows) for value, prompts in row]
        values, prompts, numbers_ = zip(*found, strict=True) if found else ((), (), ())
        return Observations(values=values, prompts=prompts, processes=numbers_)

    return of(rows[: len(base)]), of(rows[len(base) :])


def _table(metric: CellMetric, processes: Sequence[Process]) -> Table | str:
    """The figure of every decode that all processes have a time of, or of all requests of each process; or the reason."""
    if metric.definition.of_requests:
        found = [_over_requests(metric, process) for process in processes]
        why = next((one for one in found if isinstance(one, str)), None)
        return why or Table(prompts=[ALL], values=[[float(one)] for one in found])
    shared = _shared(metric, processes)
    if not shared:
        rules = sorted({reason for process in processes for reason in process.void})
        return f"no decode of it was timed everywhere{': ' + '; '.join(rules) if rules else ''}"
    values = [[_figure(metric.name, process, place) for place in shared] for process in processes]
    return Table(prompts=[prompts for _, prompts, _ in shared], values=values)


def _over_requests(metric: CellMetric, process: Process) -> float | str:
    """The percentile of a process over its requests, or why it has none."""
    tallies = [one for case_id in _cases(metric, process) for one in process.served.get(case_id, ())]
    return next(iter(percentile_by_process(tallies, metric.name).values()), NO_REQUESTS)


def _shared(metric: CellMetric, processes: Sequence[Process]) -> list[_Place]:
    """The decodes of the metric's cell that every process has a time of; for a speedup those of NTP beside them too."""
    found = [set(_of_cell(metric, process)) for process in processes]
    return sorted(set.intersection(*found)) if found else []


def _cases(metric: CellMetric, process: Process) -> list[str]:
    return [case_id for case_id, case in process.cases.items() if metric_of(metric.name, case).key == metric.key]


def _of_cell(metric: CellMetric, process: Process) -> Iterator[_Place]:
    cases = set(_cases(metric, process))
    for place in process.decodes:
        if place[0] in cases and (metric.name != "wall_speedup" or _beside(process, place) in process.decodes):
            yield place


def _figure(name: str, process: Process, place: _Place) -> float:
    """Of one decode: seconds, seconds per decode token, or NTP's time per token ÷ its own."""
    one = process.decodes[place]
    if name == "wall_speedup":
        return _s_per_token(process.decodes[_beside(process, place)]) / _s_per_token(one)
    return (one.prompt_s or math.nan) if name == "prefill_s" else _s_per_token(one)


def _beside(process: Process, place: _Place) -> _Place:
    """The place of NTP's decode of the same prompts."""
    return (process.ntp.get(place[0], ""), *place[1:])


def _s_per_token(one: Tally) -> float:
    return (one.decode_s or math.nan) / one.decode_tokens
