"""The tables about arms and about time: which values stand in which column, and how each is written.

They put values of a Comparison into entries and compute no statistic. An absent value is shown as "none" with the number of its
reason under the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from harness import formatting
from harness.analysis.figures.arm_metrics import Prediction
from harness.analysis.results import ArmResult, Cell, GenerateMode
from harness.analysis.tally.pass_values import PassWidth, one_a_rung, price_words
from harness.reporting.cells import Entry, Marks, Notes, Pointers, Row, Table, between
from harness.stats.quantity import Quantity

MEASURED: Marks = ("measured",)
COUNTED: Marks = ("counted",)
ARM_MARKS: dict[str, Marks] = {
    "NFE speedup": COUNTED,
    "Wall speedup": MEASURED,
    "Request speedup": MEASURED,
    "First token": MEASURED,
    "Tokens/s": MEASURED,
    "Accuracy": COUNTED,
    "Against NTP": COUNTED,
    "Against baseline": COUNTED,
    "Identical to NTP": COUNTED,
}
RATE_MARKS: dict[str, Marks] = {
    "Ratio of totals": MEASURED,
    "Request latency": MEASURED,
    "GB/s": ("modelled",),
    "Share of ceiling": ("modelled",),
    "GB/s, counter": MEASURED,
    "Counter ÷ modelled": ("measured", "modelled"),
    "J/token": MEASURED,
}
COUNT_HEADS = ("Prompts timed", "Correct", "NFE", "Decode tokens", "Query tokens per pass", "Draft passes")


def section_per_cell(
    cells: Sequence[Cell], pointers: Pointers, heading: str, marks: dict[str, Marks], rows: Callable[[Cell, Notes], list[Row]]
) -> Table | None:
    """A table with a section per cell, headed for example ``all 3 tasks, batch 1`` or ``rewriting, 4 in flight``."""
    notes = Notes(pointers)
    named = ((f"all {len(cell.tasks)} tasks" if cell.task is None else cell.task, cell) for cell in cells)
    return notes.table(heading, [(f"{task}, {cell.size_words}", rows(cell, notes)) for task, cell in named], marks)


def arm_name(arm: ArmResult, small: str = "") -> Entry:
    """The head of an arm's row."""
    return Entry(text=arm.label, small=small, marks=("replayed",) if arm.replayed else ())


def with_count(head: Entry, count: Entry, unit: str) -> Entry:
    """The head of a row with a counted number under it; that number is the value behind the head."""
    return replace(head, small=f"{count.text} {unit}", raw=count.raw, key=count.key)


def arms_table(cells: Sequence[Cell], pointers: Pointers, heading: str) -> Table | None:
    """Passes saved, time saved and accuracy of every arm, a section per cell; with a lossless arm, also identity to NTP."""
    lossless = any(arm.lossless or arm.served for cell in cells for arm in cell.arms)
    return section_per_cell(
        cells,
        pointers,
        heading,
        ARM_MARKS,
        lambda cell, notes: [_arm_row(arm, notes, lossless, cell.best_ntp_tokens_per_s) for arm in cell.arms],
    )


def counts_table(cells: Sequence[Cell], pointers: Pointers, heading: str) -> Table | None:
    """Counts of every arm and the prompts its speedup needs; draft-model passes where an arm makes any."""
    drafted = any(arm.draft_passes for cell in cells for arm in cell.arms)
    return section_per_cell(
        cells,
        pointers,
        heading,
        dict.fromkeys(COUNT_HEADS, COUNTED) | {"Prompts for ±5 %": MEASURED},
        lambda cell, notes: [_count_row(arm, notes, drafted) for arm in cell.arms],
    )


def rates_table(cells: Sequence[Cell], pointers: Pointers, heading: str) -> Table | None:
    """Latency, bandwidth and energy of every arm. A meter that read nothing (energy, memory counter) has no column."""
    arms = [arm for cell in cells for arm in cell.arms]
    counted = any(arm.measured_bandwidth_bytes_per_s.value is not None for arm in arms)
    metered = any(_energy(arm) is not None for arm in arms)
    return section_per_cell(
        cells, pointers, heading, RATE_MARKS, lambda cell, notes: [_rate_row(arm, notes, counted, metered) for arm in cell.arms]
    )


def _arm_row(arm: ArmResult, notes: Notes, lossless: bool, best: float | None) -> Row:
    given: Marks = ("given",) if arm.nfe_speedup.method == "given" else ()
    wall, request, right = arm.wall_speedup, arm.request_speedup, arm.accuracy
    return {
        "Arm": with_count(arm_name(arm), notes.plain(arm, "prompts", formatting.count), "prompts"),
        "NFE speedup": notes.entry(arm.nfe_speedup, formatting.ratio, marks=given),
        "Wall speedup": notes.entry(wall, formatting.ratio, small=between(wall, formatting.ratio)),
        "Request speedup": notes.entry(request, formatting.ratio, small=between(request, formatting.ratio)),
        "First token": notes.entry(arm.first_token_s, formatting.seconds),
        "Tokens/s": notes.entry(arm.tokens_per_s, formatting.rate, small=f"best NTP {formatting.rate(best)}" if best else ""),
        "Accuracy": notes.entry(right, formatting.percent, small=between(right, formatting.percent)),
        "Against NTP": _difference(arm.accuracy_difference, notes),
        **({} if arm.baseline_difference is None else {"Against baseline": _difference(arm.baseline_difference, notes)}),
        **({"Identical to NTP": _identity(arm, notes)} if lossless else {}),
    }


def _identity(arm: ArmResult, notes: Notes) -> Entry:
    """The counted identity, and what the arm is lossless against by construction."""
    return notes.entry(
        arm.identical_to_ntp, formatting.percent, small=f"lossless against {arm.lossless}" if arm.lossless else ""
    )


def _difference(found: Quantity, notes: Notes) -> Entry:
    least = "" if found.low is None else f"at least {formatting.points(found.low)}"
    return notes.entry(found, formatting.points, small=least)


def _count_row(arm: ArmResult, notes: Notes, drafted: bool) -> Row:
    graded = Entry(text="none", note=None if arm.accuracy.reason is None else notes.number(arm.accuracy.reason))
    return {
        "Arm": arm_name(arm),
        "Prompts timed": notes.plain(arm.wall_speedup, "n", formatting.count),
        "Prompts for ±5 %": _prompts_needed(arm, notes),
        "Correct": graded if arm.correct is None else notes.plain(arm, "correct", formatting.count),
        "NFE": notes.plain(arm, "nfe", formatting.count),
        "Decode tokens": notes.plain(arm, "decode_tokens", formatting.count),
        "Query tokens per pass": notes.entry(arm.query_tokens_per_pass, formatting.count),
        **({"Draft passes": notes.plain(arm, "draft_passes", formatting.count)} if drafted else {}),
    }


def _rate_row(arm: ArmResult, notes: Notes, counted: bool, metered: bool) -> Row:
    totals, latency, energy = arm.wall_speedup_totals, arm.latency_s, _energy(arm)
    row = {
        "Arm": arm_name(arm),
        "Ratio of totals": notes.entry(totals, formatting.ratio, small=between(totals, formatting.ratio)),
        "Request latency": notes.entry(latency, formatting.seconds, small="median"),
        "GB/s": notes.entry(arm.modelled_bandwidth_bytes_per_s, formatting.gigabytes),
        "Share of ceiling": notes.entry(arm.ceiling_share, formatting.percent, small=arm.ceiling_share.method or ""),
    }
    if counted:
        measured, over = arm.measured_bandwidth_bytes_per_s, arm.measured_over_modelled
        row["GB/s, counter"] = notes.entry(measured, formatting.gigabytes, small="prefill and decode")
        row["Counter ÷ modelled"] = notes.entry(over, formatting.ratio, small="same window")
    if metered:
        absent = Entry(text="none", note=notes.number("no energy was read over these decodes"))
        row["J/token"] = (
            absent if energy is None else notes.entry(energy, formatting.rate, small=between(energy, formatting.rate))
        )
    return row


def _energy(arm: ArmResult) -> Quantity | None:
    found = arm.figures.get("joules_per_token")
    return found if found is not None and found.value is not None else None


def _prompts_needed(arm: ArmResult, notes: Notes) -> Entry:
    """The prompts that give the wall speedup to 5 %."""
    if arm.prompts_for_5_percent is None:
        return Entry(text="none", note=notes.number("without an interval of the wall speedup nothing can be planned"))
    return notes.plain(arm, "prompts_for_5_percent", formatting.count)


def factors_table(cells: Sequence[Cell], pointers: Pointers, heading: str) -> Table | None:
    """The wall speedup as the product of its factors, all of them geometric means over prompts."""
    marks = dict.fromkeys(FACTORS, MEASURED) | {"= NFE speedup": COUNTED, "× rows per pass": COUNTED}
    return section_per_cell(
        cells,
        pointers,
        heading,
        marks,
        lambda cell, notes: [
            _factor_row(arm, notes) for arm in cell.arms if not arm.is_ntp and arm.wall_speedup.value is not None
        ],
    )


FACTORS = {
    "Wall speedup": "product",
    "= NFE speedup": "passes",
    "× rows per pass": "rows_per_pass",
    "× time per pass": "pass_cost",
    "× work around passes": "overhead",
}


def _factor_row(arm: ArmResult, notes: Notes) -> Row:
    row = {"Arm": arm_name(arm)}
    if arm.factors is not None:
        return row | {head: notes.plain(arm.factors, name, lambda value: f"{value:.3f}") for head, name in FACTORS.items()}
    none = Entry(text="none", note=notes.number("the forward passes were not timed one by one"))
    return row | dict.fromkeys(FACTORS, none) | {"Wall speedup": notes.entry(arm.wall_speedup, formatting.ratio)}


def baseline_table(cells: Sequence[Cell], pointers: Pointers, heading: str) -> Table | None:
    """The NTP arm beside transformers' generate() and the engines of others; above 1, NTP is faster."""
    return section_per_cell(
        cells,
        pointers,
        heading,
        {"Speed of our NTP arm beside it": MEASURED, "Prompts": COUNTED},
        lambda cell, notes: [_generate_row(mode, notes) for mode in cell.baseline_check.modes],
    )


def _generate_row(mode: GenerateMode, notes: Notes) -> Row:
    speed = mode.ntp_speed
    agreed = "" if mode.agreed is None else f"{formatting.percent(mode.agreed)} of an answer as NTP's"
    return {
        "Decoded by": Entry(text=mode.label, small=agreed if mode.is_engine else "transformers"),
        "Speed of our NTP arm beside it": notes.entry(speed, formatting.ratio, small=between(speed, formatting.ratio)),
        "Prompts": notes.plain(speed, "n", formatting.count),
    }


PREDICTED: Marks = ("predicted",)
BOTH: Marks = ("predicted", "measured")
TIME_HEAD, COST_HEAD = "Predicted, {}", "Predicted cost, {}"


def pass_table(cells: Sequence[Cell], pointers: Pointers, heading: str) -> Table | None:
    """Measured and predicted time of every kind of decode pass."""
    rungs = dict.fromkeys(rung for cell in cells for width in cell.pass_widths for rung in one_a_rung(width.predicted_s))
    marks = {"Query tokens per row": COUNTED, "Measured": MEASURED, "Cost in NTP passes": MEASURED}
    marks |= {head.format(price_words(rung)): PREDICTED for rung in rungs for head in (TIME_HEAD, COST_HEAD)}
    return section_per_cell(
        cells, pointers, heading, marks, lambda cell, notes: [_pass_row(width, notes) for width in cell.pass_widths]
    )


def _pass_row(width: PassWidth, notes: Notes) -> Row:
    measured, name = width.measured_s, Entry(text="NTP" if width.method == "ntp" else width.role)
    row = {
        "Pass": with_count(name, notes.plain(width, "count", formatting.count), "passes"),
        "Query tokens per row": notes.plain(width, "query_tokens", formatting.count),
        "Measured": notes.entry(measured, formatting.seconds, small=between(measured, formatting.seconds)),
    }
    for rung in one_a_rung(width.predicted_s):
        price, head = width.predicted_s[rung], TIME_HEAD.format(price_words(rung))
        row[head] = notes.entry(price, formatting.seconds, small=between(price, formatting.seconds))
    row["Cost in NTP passes"] = notes.entry(width.cost, formatting.ratio)
    for rung in one_a_rung(width.predicted_cost):
        row[COST_HEAD.format(price_words(rung))] = notes.entry(width.predicted_cost[rung], formatting.ratio)
    return row


def pass_parts_table(cells: Sequence[Cell], pointers: Pointers, heading: str) -> Table | None:
    """The parts of a decode pass's time, per arm."""
    return section_per_cell(
        cells,
        pointers,
        heading,
        {"Passes": COUNTED} | dict.fromkeys(PARTS, MEASURED),
        lambda cell, notes: [_parts_row(arm, notes) for arm in cell.arms if arm.pass_parts.forward_s.value is not None],
    )


PARTS = {"Forward": "forward_s", "Sampler": "sampler_s", "Rest of the loop": "rest_s"}


def _parts_row(arm: ArmResult, notes: Notes) -> Row:
    parts = {head: notes.entry(getattr(arm.pass_parts, name), formatting.seconds) for head, name in PARTS.items()}
    return {"Arm": arm_name(arm), "Passes": notes.plain(arm, "passes", formatting.count), **parts}


def prediction_table(cells: Sequence[Cell], pointers: Pointers, heading: str) -> Table | None:
    """Predicted and measured time of the whole decode, per arm and price, ex-ante prices first."""
    marks: dict[str, Marks] = {
        "Decode, measured": MEASURED,
        "of that in forwards": MEASURED,
        "Decode, predicted": PREDICTED,
        "Error": BOTH,
        "Wall speedup, measured": MEASURED,
        "Wall speedup, predicted": PREDICTED,
        "Error of speedup": BOTH,
    }
    return section_per_cell(
        cells,
        pointers,
        heading,
        marks,
        lambda cell, notes: [_prediction_row(arm, one, notes) for arm in cell.arms for one in arm.predictions],
    )


def _prediction_row(arm: ArmResult, one: Prediction, notes: Notes) -> Row:
    decode, speed = one.decode_s, one.wall_speedup
    return {
        "Arm": arm_name(arm, small=f"{price_words(one.price)} roofline"),
        "Decode, measured": notes.entry(arm.decode_s, formatting.seconds),
        "of that in forwards": notes.entry(arm.forward_s, formatting.seconds),
        "Decode, predicted": notes.entry(decode, formatting.seconds, small=between(decode, formatting.seconds)),
        "Error": notes.entry(one.decode_error, formatting.signed_percent),
        "Wall speedup, measured": notes.entry(arm.wall_speedup, formatting.ratio),
        "Wall speedup, predicted": notes.entry(speed, formatting.ratio, small=between(speed, formatting.ratio)),
        "Error of speedup": notes.entry(one.wall_speedup_error, formatting.signed_percent),
    }
