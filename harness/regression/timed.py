"""The timed figures of processes: one number per process and metric, over the samples that all of them have.

A fresh process is the unit of replication (Kalibera and Jones, ISMM 2013). Repeats inside one share its conditions, so they
give one number. A void time is left out on every side, because medians over different prompts would differ. Decodes, their
times and NTP beside them are those of harness.analysis.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import field

from harness.analysis.figures.arms import beside_ntp
from harness.analysis.figures.of_files import whole
from harness.analysis.figures.request_figures import percentile_by_process
from harness.analysis.tally.by_request import Tallies
from harness.analysis.tally.tally import PromptKey, Tally, labels_of
from harness.frozen import frozen
from harness.record.schema import CaseHeader, Run
from harness.regression.metrics import CellMetric, log_ratio, metric_of
from harness.stats.crossed import Grouped
from harness.stats.two_runs import Observations

Prompts = tuple[PromptKey, ...]
_Place = tuple[str, Prompts, int]
"""(case id, prompts of the batch, repeat)."""
_Row = dict[_Place, float]
"""The figures of one process."""
NO_REQUESTS = "a process has no request with times of its own"
ALL: _Place = ("", (("", "all"),), 0)
"""Stands for the decodes of a figure over requests."""


@frozen
class Process:
    """The timed decodes of one process of a run; ``void``: why times of it are missing, by rule.

    ``ntp``: NTP's case id by case id. ``served``: by case id, what servers decoded with times for each request, those that do
    not count included.
    """

    decodes: dict[_Place, Tally]
    cases: Mapping[str, CaseHeader]
    ntp: Mapping[str, str]
    void: dict[str, int]
    served: dict[str, list[Tally]] = field(default_factory=dict)


Processes = Sequence[Process]


def processes_of(run: Run) -> list[Process]:
    """The fresh processes of a run, in order, without warm-ups and void times.

    The requests of an imported run without pairs are added up, file by file: there each file has prompts of its own.
    """
    tallies = Tallies(run, priced=False)
    cases, ntp = {case.case_id: case for case in run.cases}, dict[str, str]()
    void = {reason: count for part in tallies.health for reason, count in part.reasons.items()}
    found: dict[int, Process] = {}
    for arm, beside in beside_ntp(run.cases, tallies):
        ids = {case.task: case.case_id for case in arm.cases}
        ntp |= {ids[case.task]: case.case_id for case in (beside.cases if beside else ()) if case.task in ids}
        for one in arm.tallies:
            task, place, repeat, number = one.key
            process = found.setdefault(number, Process(decodes={}, cases=cases, ntp=ntp, void=void))
            if one.has_decode_time:  # a request by its number: a process may have prompts of its own
                prompts = (("", str(place)),) if one.requests and len(one.prompts) == 1 else one.prompts
                process.decodes[ids[task], prompts, repeat] = one
            if one.requests:
                process.served.setdefault(ids[task], []).append(one)
    for process in found.values() if run.header.imported is not None and run.header.imported.pairing is None else ():
        _add_up(process.decodes)
    return [found[number] for number in sorted(found)]


def _add_up(decodes: dict[_Place, Tally]) -> None:
    """Put one tally in the place of all decodes of a case."""
    by_case: dict[str, list[Tally]] = {}
    for (case_id, _, _), one in decodes.items():
        by_case.setdefault(case_id, []).append(one)
    decodes.clear()
    decodes.update({(case_id, (), 0): whole(tallies) for case_id, tallies in by_case.items()})


def with_times(metric: CellMetric, base: Processes, new: Processes) -> tuple[Processes, Processes]:
    """The processes that have a time of the metric's cell which the other run has too, or all where there are none.

    Parts of one run may have different numbers of processes, and these may have prompts of their own.
    """
    times = [[(process, {*_times(metric, process)}) for process in side] for side in (base, new)]
    known = [{place for _, places in side for place in places} for side in times]
    left, right = ([one for one, places in side if places & other] for side, other in zip(times, reversed(known), strict=True))
    return (left, right) if left and right else (base, new)


def numbers(metric: CellMetric, *sides: Processes) -> list[float] | str:
    """One number per process, in the metric's unit, over the decodes that every process has a time of; or the reason."""
    table = _table(metric, *sides)
    mean = statistics.geometric_mean if metric.name == "wall_speedup" else statistics.median
    return table if isinstance(table, str) else [float(mean(row.values())) for row in table]


def log_ratios(metric: CellMetric, base: Processes, new: Processes) -> list[float] | str:
    """d = log(NEW / BASE) of the first processes, the second and so on, as far as both sides have them; or the reason."""
    count = min(len(base), len(new))
    values = numbers(metric, base[:count], new[:count])
    return values if isinstance(values, str) else list(map(log_ratio, values[:count], values[count:]))


def observed(metric: CellMetric, base: Processes, new: Processes) -> tuple[Observations, Observations]:
    """BASE's and NEW's figures of every decode that all processes of both have a time of, by prompts of the batch.

    A figure over requests is one a process.
    """
    table = _table(metric, base, new)
    rows = [] if isinstance(table, str) else table
    decodes = {place: one for process in (*base, *new) for place, one in process.decodes.items()} if rows else {}
    labels = dict(zip(decodes, labels_of([*decodes.values()])[0], strict=True))
    return _observations(rows[: len(base)], labels), _observations(rows[len(base) :], labels)


def _observations(rows: Sequence[_Row], labels: Mapping[_Place, Grouped]) -> Observations:
    return Observations(
        values=[value for row in rows for value in row.values()],
        prompts=[labels.get(place, place) for row in rows for place in row],
        processes=[number for number, row in enumerate(rows) for _ in row],
    )


def _table(metric: CellMetric, *sides: Processes) -> list[_Row] | str:
    """By process, side after side, the figure of every decode that all have a time of, or of all its requests; or the reason.

    Where no two processes of a side share a prompt, a process shares its decodes with the one at its place on the other side.
    """
    rows = []
    for process in itertools.chain(*sides):
        row = _over_requests(metric, process) if metric.definition.of_requests else _times(metric, process)
        if isinstance(row, str):
            return row
        rows.append(row)
    shared = set.intersection(*map(set, rows)) if rows else set()
    count = len(sides[0])
    twins = [set.intersection(*map(set, rows[place::count])) for place in range(count)]
    own = len(rows) == count * len(sides) and sum(map(len, rows[:count])) == len(set().union(*rows[:count]))
    if not shared and own and twins and all(twins):
        return [{place: row[place] for place in sorted(twin)} for twin, row in zip(twins * len(sides), rows, strict=True)]
    if not shared:
        rules = sorted({reason for process in itertools.chain(*sides) for reason in process.void})
        return f"no decode of it was timed everywhere{': ' + '; '.join(rules) if rules else ''}"
    return [{place: row[place] for place in sorted(shared)} for row in rows]


def _cases(metric: CellMetric, process: Process) -> list[str]:
    return [case_id for case_id, case in process.cases.items() if metric_of(metric.name, case).key == metric.key]


def _over_requests(metric: CellMetric, process: Process) -> _Row | str:
    """The percentile of a process over its requests, or why it has none."""
    tallies = [one for case_id in _cases(metric, process) for one in process.served.get(case_id, ())]
    found = next(iter(percentile_by_process(tallies, metric.name).values()), NO_REQUESTS)
    return found if isinstance(found, str) else {ALL: found}


def _times(metric: CellMetric, process: Process) -> _Row:
    """Of every decode of the cell: seconds, seconds per decode token, or NTP's time per token ÷ its own, where NTP has one."""
    row: _Row = {}
    cases = set(_cases(metric, process))
    for place, one in process.decodes.items():
        ntp = process.decodes.get((process.ntp.get(place[0], ""), *place[1:]))
        if place[0] not in cases:
            continue
        if metric.name == "prefill_s":
            row[place] = one.prompt_s or math.nan
        elif metric.name != "wall_speedup":
            row[place] = _s_per_token(one)
        elif ntp is not None:
            row[place] = _s_per_token(ntp) / _s_per_token(one)
    return row


def _s_per_token(one: Tally) -> float:
    return (one.decode_s or math.nan) / one.decode_tokens
