"""Decides which planned samples a run need not take, and which are still missing.

A case is warm when two decodes in a row agree. A cell is repeated enough when timing noise no longer moves its ratios.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from harness.record.schema import FIRST_TOKENS, Run, Sample
from harness.record.store import finished_keys
from harness.scenario.plan import Case, Plan, Slot

SETTLED = 0.05
"""Two consecutive medians this close are settled: the timing noise of equal work on a quiet machine."""

Times = Mapping[tuple[int, int], float]
"""Decode seconds per decode token of one case in one process, by (group, repeat)."""


class StoppingRule:
    """Follows a run sample by sample; ``held`` is its earlier record, without warm-ups of other processes.

    Each process of a part has its own warm-up and repeats.
    """

    def __init__(self, plan: Plan, held: Run | None = None) -> None:
        self._warming: defaultdict[tuple[str, int], list[float | None]] = defaultdict(list)
        self._times: defaultdict[tuple[str, int], dict[tuple[int, int], float]] = defaultdict(dict)
        self._left_out = {outcome.case_id for outcome in held.outcomes} if held else set()
        self._cells: dict[tuple[str, str, int], list[Case]] = {}
        for case in plan.cases:
            if not case.is_check:
                self._cells.setdefault(case.cell, []).append(case)
        for sample in held.samples if held else ():
            if not sample.warmup:
                self._note_time(sample)

    def leave_out(self, case_id: str) -> None:
        """Ignore a case that cannot run."""
        self._left_out.add(case_id)

    def note(self, sample: Sample) -> None:
        """Note a taken sample."""
        if sample.warmup:
            self._warming[sample.case_id, sample.process].append(pass_s(sample))
        else:
            self._note_time(sample)

    def needs(self, slot: Slot) -> bool:
        """Whether the sample is still to be taken; ask just before it, in plan order."""
        if slot.case.case_id in self._left_out:
            return False
        if slot.warmup:
            return not settled(self._warming[slot.case.case_id, slot.process])
        until = slot.case.part.until
        if until is None:
            return True
        passed = [look for look in looks(until.at_most) if look <= slot.repeat]
        return not any(self._repeated_enough(slot, look, until.standard_error) for look in passed)

    def _repeated_enough(self, slot: Slot, repeats: int, limit: float) -> bool:
        """Whether the first ``repeats`` of the slot's cell and process fix every arm's ratio to NTP; ignores later ones."""
        cases = [case for case in self._cells[slot.case.cell] if case.case_id not in self._left_out]
        ntp = {case.arm.temperature: case.case_id for case in reversed(cases) if case.arm.method == "ntp"}
        arms = [case for case in cases if case.arm.method != "ntp"]
        if not ntp or not arms:
            return False
        first_ntp = next(reversed(ntp.values()))
        pairs = [(ntp.get(arm.arm.temperature, first_ntp), arm.case_id) for arm in arms]

        def first(case_id: str) -> Times:
            return {place: time_s for place, time_s in self._times[case_id, slot.process].items() if place[1] < repeats}

        errors = [timing_error(first(one), first(arm)) for one, arm in pairs]
        return all(error is not None and error <= limit for error in errors)

    def _note_time(self, sample: Sample) -> None:
        if sample.meters.get("compiled_graphs", 0) > 0:
            return  # void: it was compiling
        time_s = per_token_s(sample)
        if time_s is not None:
            self._times[sample.case_id, sample.process][sample.group, sample.repeat] = time_s


def pass_s(sample: Sample) -> float | None:
    """Median seconds of a sample's decode passes, else their mean, else seconds per token; None where nothing was timed."""
    if sample.packed_passes is None:
        return per_token_s(sample)
    columns = sample.passes
    decode = [i for i, role in enumerate(columns.role) if role != "prefill"]
    if not decode or sample.decode_s is None:
        return None
    if columns.forward_s is None:
        return sample.decode_s / len(decode)
    return statistics.median(columns.forward_s[i] for i in decode)


def settled(passes_s: Sequence[float | None]) -> bool:
    """Whether the last two warm-up decodes agree."""
    if len(passes_s) < 2:
        return False
    before, last = passes_s[-2:]
    return before is not None and last is not None and abs(last - before) <= SETTLED * before


def per_token_s(sample: Sample) -> float | None:
    """Decode seconds per decoded token; None without tokens or timing."""
    tokens = sum(row.output_tokens for row in sample.rows) - _given(sample)
    return sample.decode_s / tokens if sample.decode_s and tokens else None


def _given(sample: Sample) -> float:
    """Tokens that the prompts' pass gave; without passes those of the first chunks."""
    if sample.packed_passes is None:
        return sample.meters.get(FIRST_TOKENS, len(sample.rows))
    passes = zip(sample.passes.role, sample.passes.final_tokens, strict=True)
    return sum(sum(final) for role, final in passes if role == "prefill")


def looks(at_most: int) -> tuple[int, ...]:
    """The repeats after which a cell is checked, fixed in advance: 2, 4, 8, … and the limit."""
    return (*(2**n for n in range(1, at_most.bit_length()) if 2**n < at_most), at_most)


def timing_error(ntp: Times, arm: Times) -> float | None:
    """Standard error of the mean log ratio of two cases' times, prompts held fixed: only scatter between repeats counts.

    With G prompts, s_g the standard deviation over the R_g repeats of prompt g: sqrt(Σ s_g² / R_g) / G. None where a prompt
    lacks two repeats by both.
    """
    logs: defaultdict[int, list[float]] = defaultdict(list)
    for place in ntp.keys() & arm.keys():
        logs[place[0]].append(math.log(ntp[place] / arm[place]))
    if not logs or any(len(of_prompt) < 2 for of_prompt in logs.values()):
        return None
    return math.sqrt(sum(statistics.variance(values) / len(values) for values in logs.values())) / len(logs)


def missing_slots(plan: Plan, held: Run, pace: StoppingRule) -> list[Slot]:
    """The samples still to be taken; a case that continues in a new process is warmed up again."""
    done, counting, cold = finished_keys(held), set(), set()
    for slot in plan.slots():
        if not slot.warmup and slot.key not in done and pace.needs(slot):
            counting.add(slot.key)
            cold.add((slot.case.warms, slot.process))
    return [
        slot for slot in plan.slots() if slot.key in counting or (slot.warmup and (slot.case.case_id, slot.process) in cold)
    ]
