"""What voids or weakens an answer: a slow baseline, one process only, replayed acceptance, void samples, missing cases.

Said beside the figure itself, because a reader of the figure alone would be misled. Reads values; computes nothing.
"""

from __future__ import annotations

from harness import formatting
from harness.analysis.results import ArmResult, Cell, Comparison
from harness.record.schema import RunHeader
from harness.reporting import sentences


def weaknesses(cell: Cell, arm: ArmResult | None, comparison: Comparison, header: RunHeader) -> tuple[str, ...]:
    """A sentence for each, the gravest kind first; none is good news."""
    found = [_baseline(cell), _emulated(cell, header), _ceiling(cell)]
    if arm is not None:
        found += [_replayed(arm), _estimated(arm), _unpaired(arm), _processes(arm), _picked(arm)]
        found.append(_voids(cell, arm))
    found += [*_health(comparison, cell.part), _missing(cell, comparison, header)]
    return tuple(sentence for sentence in found if sentence)


def strengths(cell: Cell) -> str:
    """That the baseline is a fast one, where that was shown; empty elsewhere."""
    return _against_generate(cell) if cell.baseline_check.state == "kept_up" else ""


def _baseline(cell: Cell) -> str:
    return "" if cell.baseline_check.state == "kept_up" else _against_generate(cell)


def _against_generate(cell: Cell) -> str:
    """Whether the NTP arm, to which every speedup is a ratio, is itself fast."""
    check, speed = cell.baseline_check, cell.baseline_check.best_speed
    if not cell.timed:
        return ""
    if check.state == "different_tokens":
        return f"{check.reason}: the two did other work, and no speedup is claimed."
    if speed is None or speed.value is None:
        return f"The NTP arm was not held against transformers' generate(): {check.reason}."
    ground = ", ".join(text for text in (sentences.interval(speed), check.best) if text)
    ran = f"The NTP arm ran at {formatting.ratio(speed.value)} the speed of transformers' own generate() at its best ({ground})"
    if check.state == "kept_up":
        return f"{ran}. {check.tokens.words}." if check.tokens else f"{ran}."
    if check.state == "slow":
        return f"{ran}: every ratio here is against a slow baseline, and no speedup is claimed."
    return f"{ran}; these samples do not show that it keeps up with every mode, so they confirm no speedup."


def _emulated(cell: Cell, header: RunHeader) -> str:
    """Whether bfloat16 is slow for a reason that has nothing to do with the decoding."""
    case = next((one for one in header.cases if one.part == cell.part), None)
    flags = header.environment.get("isa_flags")
    if case is None or (case.device, case.dtype) != ("cpu", "bfloat16") or flags is None:
        return ""
    if any("bf16" in flag for flag in flags):
        return ""
    return (
        "This CPU has no instructions for bfloat16 products (AVX512-BF16, AMX), so a pass of several tokens costs as much as "
        "several passes of one: dtype: float32 shows what the machine can do."
    )


def _ceiling(cell: Cell) -> str:
    """Whether memory would give NTP more than it takes."""
    words = cell.baseline_check.ceiling.words if cell.baseline_check.ceiling else ""
    return f"{words[0].upper()}{words[1:]}." if words else ""


def _replayed(arm: ArmResult) -> str:
    said = "The acceptance was replayed: times are measured, the number of passes was given, and there are no answers."
    return said if arm.replayed else ""


def _estimated(arm: ArmResult) -> str:
    return f"{arm.decode_time_estimated[:1].upper()}{arm.decode_time_estimated[1:]}." if arm.decode_time_estimated else ""


def _unpaired(arm: ArmResult) -> str:
    lost = arm.paired.one_sided
    return f"{formatting.count(lost)} prompts were decoded by NTP or by this arm alone, so there is no interval." if lost else ""


def _processes(arm: ArmResult) -> str:
    only = arm.wall_speedup.these_processes_only
    return f"The interval is about {only}; another process on the same machine may differ by more." if only else ""


def _picked(arm: ArmResult) -> str:
    """That the arm on top was picked by what it is judged on, and its speedup at the level of all it was picked from."""
    if arm.simultaneous is None:
        return ""
    speedup = arm.simultaneous.figures["wall_speedup"]
    said = f"{arm.label} was picked from {arm.simultaneous.picked_from} arms on these same decodes, which flatters it"
    if speedup.low is None or speedup.high is None:
        return f"{said}: verdicts take its figures at a simultaneous 95 % level."
    ends = f"{formatting.ratio(speedup.low)} to {formatting.ratio(speedup.high)}"
    return f"{said}: at a simultaneous 95 % level, which verdicts take, its speedup is {ends}."


def _voids(cell: Cell, arm: ArmResult) -> str:
    """Which side of the speedup lost samples: one that loses its slow ones looks faster."""
    said = cell.void_words(arm)
    return f"Timed samples by arm: {said}." if said else ""


def _health(comparison: Comparison, part: str) -> list[str]:
    """How many timed samples were void, and by which rule."""
    return [
        f"{found.void} of {found.timed} timed samples are void and left out of every time: "
        + "; ".join(f"{words} ({times})" for words, times in found.reasons.items()) + "."
        for found in comparison.health if found.part == part and found.void
    ]  # fmt: skip


def _missing(cell: Cell, comparison: Comparison, header: RunHeader) -> str:
    """Cases that were planned and left no sample; how they ended is said by their outcomes."""
    here = (cell.part, cell.batch_size)
    cases = [case for case in header.cases if (case.part, case.batch_size) == here and not case.is_check]
    cells = [one for one in comparison.cells if (one.part, one.batch_size) == here]
    by_task = [one for one in cells if not one.is_summary] or cells
    have = {case_id for one in by_task for arm in one.arms for case_id in arm.case_ids}
    ended = {outcome["case_id"] for outcome in comparison.outcomes}
    without = sum(case.case_id not in have | ended for case in cases)
    return f"{without} of {len(cases)} cases have no sample yet: the run is not finished." if without else ""
