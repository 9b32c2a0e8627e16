"""The deterministic figures of a run, case by case: counted, not timed, in the first repeat.

A figure that differs between repeats of the run is absent, with its reason.
"""

from __future__ import annotations

import hashlib
import json
import math
from array import array
from collections import defaultdict
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from harness.analysis.figures.accuracy import identical_outputs, outputs
from harness.analysis.figures.arm_metrics import NO_PASS, summed
from harness.analysis.tally.pass_arrays import TraceArrays
from harness.analysis.tally.pricing import Pricer
from harness.analysis.tally.tally import Tally, tally
from harness.analysis.trust.health import UNCOUNTED, WAYS
from harness.errors import SbdError
from harness.record.schema import CaseHeader, Run, Sample
from harness.regression.metrics import CellMetric, metric_of
from harness.scenario.method import GREEDY

COUNTED = ("passes", "final_tokens_per_pass", "decode_tokens", "output_sha256", "modelled_bytes")
METERS = ("peak_device_memory_bytes", "peak_memory_bytes")
Value = float | str | None


class CountedValue(NamedTuple):
    """A counted value, or None with the reason."""

    value: Value = None
    reason: str | None = None


def counted(run: Run) -> dict[CellMetric, CountedValue]:
    """Every deterministic figure of every case that is an arm; a case without samples has them absent.

    None of an imported run: it has neither passes nor output ids.
    """
    if run.header.imported is not None:
        return {}
    outcomes = {outcome.case_id: f"{outcome.outcome}: {outcome.reason}" for outcome in run.outcomes}
    by_case: dict[str, list[Sample]] = defaultdict(list)
    for case, sample in run.of_arms():
        by_case[case.case_id].append(sample)
    cases = [case for case in run.cases if not case.is_check]
    first = {case.case_id: _first_repeat(by_case[case.case_id]) for case in cases}
    decodes = {case.case_id: [tally(case, sample, None) for sample in first[case.case_id]] for case in cases}
    ntp: dict[tuple[str, int, str], list[Tally]] = defaultdict(list)
    for case in cases:
        if (case.arm.method, case.arm.temperature) == ("ntp", GREEDY):
            ntp[case.part, case.batch_size, case.task] += decodes[case.case_id]
    counts: dict[CellMetric, CountedValue] = {}
    for case in cases:
        samples, own = by_case[case.case_id], decodes[case.case_id]
        why_not = _unsteady(case, samples) if samples else outcomes.get(case.case_id, "no sample of it was finished")
        values = dict.fromkeys(COUNTED, CountedValue(reason=why_not))
        if why_not is None:
            values = _of_case(case, first[case.case_id], own)
        peaks = {name: [sample.meters[name] for sample in samples if name in sample.meters] for name in METERS}
        values |= {name: CountedValue(max(peak)) for name, peak in peaks.items() if peak}
        if case.arm.lossless:
            values["identical_to_ntp"] = _identical_to_ntp(case, own, ntp[case.part, case.batch_size, case.task])
        counts |= {metric_of(name, case, by_task=True): count for name, count in values.items()}
    return counts


def output_sha256(samples: Iterable[Sample]) -> str:
    """Over the JSON list of [prompt id, output ids], sorted by prompt."""
    rows = sorted((row.prompt_id, row.output_ids) for sample in samples for row in sample.rows)
    return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()


def _of_case(case: CaseHeader, samples: list[Sample], decodes: list[Tally]) -> dict[str, CountedValue]:
    passes, tokens = summed(decodes, attrgetter("sums.passes")) or 0, sum(decode.decode_tokens for decode in decodes)
    return {
        "passes": CountedValue(passes),
        "final_tokens_per_pass": CountedValue(tokens / passes) if passes else CountedValue(reason=NO_PASS),
        "decode_tokens": CountedValue(tokens),
        "output_sha256": CountedValue(output_sha256(samples)),
        "modelled_bytes": _modelled_bytes(case, samples),
    }


def _first_repeat(samples: list[Sample]) -> list[Sample]:
    """One sample per batch of prompts: the first process's first repeat, and of one recorded twice the later."""
    if not samples:
        return []
    process = min(sample.process for sample in samples)
    mine = [sample for sample in samples if sample.process == process]
    repeat = min(sample.repeat for sample in mine)
    return list({sample.group: sample for sample in mine if sample.repeat == repeat}.values())


def _unsteady(case: CaseHeader, samples: list[Sample]) -> str | None:
    """Whether the run contradicts itself: other passes or output for the same batch with the same seed, or a greedy one.

    Replayed acceptance is drawn by the seed, so there only samples of the same seed must agree.
    """
    greedy = case.arm.temperature == GREEDY and case.replayed is None
    seen: dict[tuple[int, int], tuple[list[int], list[list[int] | None]]] = {}
    for sample in samples:
        if sample.meters.get(WAYS):
            return UNCOUNTED
        final = sample.packed_passes.arrays()["final_tokens"] if sample.packed_passes else array("B")
        trace = (final.tolist(), [row.output_ids for row in sample.rows])
        if seen.setdefault((sample.group, 0 if greedy else sample.repeat), trace) != trace:
            return (
                f"not deterministic in this run: batch {sample.group} was decoded again (repeat {sample.repeat}, process "
                f"{sample.process}) with other passes or another output"
            )
    return None


def _identical_to_ntp(case: CaseHeader, decodes: list[Tally], of_ntp: list[Tally]) -> CountedValue:
    """Share of the prompts with exactly the output of the cell's NTP case, each in its first repeat."""
    if case.arm.temperature != GREEDY:
        return CountedValue(reason="sampled outputs differ by chance")
    share = identical_outputs(outputs(of_ntp), outputs(decodes), "no prompt was decoded by this arm and by NTP")
    return CountedValue(share.value, share.reason)


def _modelled_bytes(case: CaseHeader, samples: list[Sample]) -> CountedValue:
    pricer = Pricer(case, {})
    try:
        traces = [TraceArrays(sample.packed_passes) for sample in samples if sample.packed_passes is not None]
        return CountedValue(math.fsum(pricer.bytes_(pricer.places(trace, trace.decode)).sum() for trace in traces))
    except SbdError as error:
        return CountedValue(reason=str(error))
