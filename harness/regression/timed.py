"""The timed figures of processes: one number per process and metric, over the samples that all of them have.

A fresh process is the unit of replication (Kalibera and Jones, ISMM 2013). Repeats inside one share its conditions, so they
give one number. A void time is left out on every side, because medians over different prompts would differ.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from harness.analysis.health import without_void_times
from harness.analysis.request_figures import percentile_by_process
from harness.analysis.row_totals import tallies_of
from harness.analysis.sample_totals import Tally, charged, one_name_each
from harness.analysis.stats.two_runs import Observations
from harness.analysis.unpaired import whole
from harness.record.schema import CaseHeader, Run
from harness.regression.metrics import CellMetric, log_ratio, metric_of
from harness.scenario.load import recorded_load

_Place = tuple[str, tuple[tuple[str, str], ...], int]
"""(case id, prompts of the batch, repeat)."""
_Decodes = dict[_Place, Tally]
NO_REQUESTS = "a process has no request with times of its own"


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """The timed decodes of one process of a run; ``void``: why times of it are missing, by rule.

    ``served``: by case id, what servers decoded with times for each request, those that do not count included.
    """

    decodes: _Decodes
    cases: Mapping[str, CaseHeader]
    ntp: Mapping[str, str]
    void: dict[str, int]
    served: Mapping[str, Sequence[Tally]] = field(default_factory=dict)


def processes_of(run: Run) -> list[Process]:
    """The fresh processes of a run, in order, without warm-ups and void times.

    The requests of an imported run without pairs are added up, file by file: there each file has prompts of its own.
    """
    run, health = without_void_times(one_name_each(run))
    found: dict[int, _Decodes] = {}
    served: dict[int, dict[str, list[Tally]]] = {}
    for case, sample in run.of_arms():
        decodes = found.setdefault(sample.process, {})
        for one in tallies_of(case, sample, recorded_load(run.header.written(case.part), case.batch_size)):
            if one.has_decode_time:
                decodes[sample.case_id, one.prompts, sample.repeat] = one
            if one.requests:
                served.setdefault(sample.process, {}).setdefault(sample.case_id, []).append(one)
    if run.header.imported is not None and run.header.imported.pairing is None:
        found = {number: _whole(decodes) for number, decodes in found.items()}
    void = {reason: count for part in health for reason, count in part.reasons.items()}
    cases, ntp = {case.case_id: case for case in run.header.cases}, _ntp_of(run)
    return [
        Process(decodes=_charged(found[number], ntp), cases=cases, ntp=ntp, void=void, served=served.get(number, {}))
        for number in sorted(found)
    ]


def _whole(decodes: _Decodes) -> _Decodes:
    """One tally for all decodes of a case."""
    by_case: dict[str, list[Tally]] = {}
    for (case_id, _, _), one in decodes.items():
        by_case.setdefault(case_id, []).append(one)
    return {(case_id, (), 0): whole(tallies) for case_id, tallies in by_case.items()}


def _charged(decodes: _Decodes, ntp: Mapping[str, str]) -> _Decodes:
    """Tallies whose decode times include the time of the prompts' pass beyond NTP's."""
    by_case: dict[str, _Decodes] = {}
    for place, one in decodes.items():
        by_case.setdefault(place[0], {})[place] = one
    found: _Decodes = {}
    for case_id, own in by_case.items():
        of_ntp = by_case.get(ntp.get(case_id, ""), {})
        found |= zip(own, charged([*own.values()], [*of_ntp.values()]), strict=True)
    return found


def with_times(metric: CellMetric, processes: Sequence[Process]) -> list[Process]:
    """The processes that have a time of the metric's cell: parts of one run may have different numbers of them."""
    return [process for process in processes if next(_of_cell(metric, process), None)]


def numbers(metric: CellMetric, processes: Sequence[Process]) -> list[float] | str:
    """One number per process, in the metric's unit, over the decodes that every process has a time of; or the reason."""
    if metric.definition.of_requests:
        return _over_requests(metric, processes)
    shared = _shared(metric, processes)
    if not shared:
        rules = sorted({reason for process in processes for reason in process.void})
        return f"no decode of it was timed everywhere{': ' + '; '.join(rules) if rules else ''}"
    values = [[_figure(metric.name, process, key) for key in shared] for process in processes]
    if metric.name == "wall_speedup":
        return [statistics.geometric_mean(of_process) for of_process in values]
    return [statistics.median(of_process) for of_process in values]


def log_ratios(metric: CellMetric, base: Sequence[Process], new: Sequence[Process]) -> list[float] | str:
    """d = log(NEW / BASE) of the first processes, the second and so on, as far as both sides have them; or the reason."""
    count = min(len(base), len(new))
    values = numbers(metric, [*base[:count], *new[:count]])
    return values if isinstance(values, str) else list(map(log_ratio, values[:count], values[count:]))


def observed(metric: CellMetric, base: Sequence[Process], new: Sequence[Process]) -> tuple[Observations, Observations]:
    """BASE's and NEW's figures of every decode that all processes of both have a time of, by prompts of the batch.

    A figure over requests is one a process.
    """
    if metric.definition.of_requests:
        return _one_a_process(numbers(metric, base)), _one_a_process(numbers(metric, new))
    shared = _shared(metric, [*base, *new])

    def of(processes: Sequence[Process]) -> Observations:
        found = [(_figure(metric.name, one, key), key[1], number) for number, one in enumerate(processes) for key in shared]
        values, prompts, numbers_ = zip(*found, strict=True) if found else ((), (), ())
        return Observations(values=values, prompts=prompts, processes=numbers_)

    return of(base), of(new)


def _one_a_process(found: list[float] | str) -> Observations:
    values = () if isinstance(found, str) else found
    return Observations(values=values, prompts=["all"] * len(values), processes=range(len(values)))


def _over_requests(metric: CellMetric, processes: Sequence[Process]) -> list[float] | str:
    """The percentile of every process over its requests, or why one has none."""
    found: list[float | str] = []
    for process in processes:
        cases = [case_id for case_id, case in process.cases.items() if metric_of(metric.name, case).key == metric.key]
        tallies = [one for case_id in cases for one in process.served.get(case_id, ())]
        found.append(next(iter(percentile_by_process(tallies, metric.name).values()), NO_REQUESTS))
    if reason := next((one for one in found if isinstance(one, str)), None):
        return reason
    return [float(one) for one in found]


def _shared(metric: CellMetric, processes: Sequence[Process]) -> list[_Place]:
    """The decodes of the metric's cell that every process has a time of; for a speedup those of NTP beside them too."""
    found: set[_Place] | None = None
    for process in processes:
        mine = set(_of_cell(metric, process))
        found = mine if found is None else found & mine
    return sorted(found or ())


def _of_cell(metric: CellMetric, process: Process) -> Iterator[_Place]:
    cases = {case_id for case_id, case in process.cases.items() if metric_of(metric.name, case).key == metric.key}
    for key in process.decodes:
        if key[0] in cases and (metric.name != "wall_speedup" or _ntp_key(process, key) in process.decodes):
            yield key


def _figure(name: str, process: Process, key: _Place) -> float:
    """Of one decode: seconds, seconds per decode token, or NTP's time per token ÷ its own."""
    one = process.decodes[key]
    if name == "wall_speedup":
        return _s_per_token(process.decodes[_ntp_key(process, key)]) / _s_per_token(one)
    return (one.prompt_s or math.nan) if name == "prefill_s" else _s_per_token(one)


def _ntp_of(run: Run) -> dict[str, str]:
    """Case id of NTP by case id: same part, batch size and task; at the same temperature, else the first."""
    cases = [case for case in run.header.cases if not case.is_check]
    found: dict[str, str] = {}
    for case in cases:
        place = (case.part, case.batch_size, case.task)
        ntp = [one for one in cases if (one.part, one.batch_size, one.task) == place and one.arm.get("method") == "ntp"]
        same = [one for one in ntp if one.arm.get("temperature") == case.arm.get("temperature")]
        if ntp:
            found[case.case_id] = (same or ntp)[0].case_id
    return found


def _ntp_key(process: Process, key: _Place) -> _Place:
    return (process.ntp.get(key[0], ""), *key[1:])


def _s_per_token(one: Tally) -> float:
    return (one.decode_s or math.nan) / one.decode_tokens
