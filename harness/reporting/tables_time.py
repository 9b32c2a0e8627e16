"""The tables about time: passes measured and predicted, what a pass spends its time on, whole decodes against the roofline.

Puts values of a Comparison into entries; computes no statistic.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness import formatting
from harness.analysis.pass_values import PassWidth, one_a_rung, price_words
from harness.analysis.results import ArmResult, Cell, Prediction
from harness.reporting.cells import Entry, Mark, Notes, Row, Table, between
from harness.reporting.pointers import Pointers
from harness.reporting.tables import COUNTED, MEASURED, arm_name, section_name, with_count

PREDICTED: tuple[Mark, ...] = ("predicted",)
BOTH: tuple[Mark, ...] = ("predicted", "measured")


def pass_table(cells: Sequence[Cell], pointers: Pointers, heading: str) -> Table | None:
    """Measured and predicted time of every kind of decode pass."""
    notes = Notes(pointers)
    sections = [(section_name(cell), [_pass_row(width, notes) for width in cell.pass_widths]) for cell in cells]
    rungs = dict.fromkeys(rung for cell in cells for width in cell.pass_widths for rung in one_a_rung(width.predicted_s))
    marks = {"Query tokens per row": COUNTED, "Measured": MEASURED, "Cost in NTP passes": MEASURED}
    marks |= {head: PREDICTED for rung in rungs for head in (_time_head(rung), _cost_head(rung))}
    return notes.table(heading, sections, marks)


def _time_head(rung: str) -> str:
    return f"Predicted, {price_words(rung)}"


def _cost_head(rung: str) -> str:
    return f"Predicted cost, {price_words(rung)}"


def _pass_row(width: PassWidth, notes: Notes) -> Row:
    measured, head = width.measured_s, Entry(text="NTP" if width.method == "ntp" else width.role)
    row = {
        "Pass": with_count(head, notes.plain(width, "count", formatting.count), "passes"),
        "Query tokens per row": notes.plain(width, "query_tokens", formatting.count),
        "Measured": notes.entry(measured, formatting.seconds, small=between(measured, formatting.seconds)),
    }
    for rung in one_a_rung(width.predicted_s):
        price = width.predicted_s[rung]
        row[_time_head(rung)] = notes.entry(price, formatting.seconds, small=between(price, formatting.seconds))
    row["Cost in NTP passes"] = notes.entry(width.cost, formatting.ratio)
    for rung in one_a_rung(width.predicted_cost):
        row[_cost_head(rung)] = notes.entry(width.predicted_cost[rung], formatting.ratio)
    return row


def pass_parts_table(cells: Sequence[Cell], pointers: Pointers, heading: str) -> Table | None:
    """What a decode pass spends its time on, per arm."""
    notes = Notes(pointers)
    sections = [
        (section_name(cell), [_parts_row(arm, notes) for arm in cell.arms if arm.pass_parts.forward_s.value is not None])
        for cell in cells
    ]
    marks = {"Passes": COUNTED} | dict.fromkeys(("Forward", "Sampler", "Rest of the loop"), MEASURED)
    return notes.table(heading, sections, marks)


def _parts_row(arm: ArmResult, notes: Notes) -> Row:
    parts = arm.pass_parts
    return {
        "Arm": arm_name(arm),
        "Passes": notes.plain(arm, "passes", formatting.count),
        "Forward": notes.entry(parts.forward_s, formatting.seconds),
        "Sampler": notes.entry(parts.sampler_s, formatting.seconds),
        "Rest of the loop": notes.entry(parts.rest_s, formatting.seconds),
    }


def prediction_table(cells: Sequence[Cell], pointers: Pointers, heading: str) -> Table | None:
    """Predicted beside measured for the whole decode, per arm and price; ex-ante ones first."""
    notes = Notes(pointers)
    sections = [
        (section_name(cell), [_prediction_row(arm, one, notes) for arm in cell.arms for one in arm.predictions])
        for cell in cells
    ]
    marks: dict[str, tuple[Mark, ...]] = {
        "Decode, measured": MEASURED, "of that in forwards": MEASURED, "Decode, predicted": PREDICTED, "Error": BOTH,
        "Wall speedup, measured": MEASURED, "Wall speedup, predicted": PREDICTED, "Error of speedup": BOTH,
    }  # fmt: skip
    return notes.table(heading, sections, marks)


def _prediction_row(arm: ArmResult, one: Prediction, notes: Notes) -> Row:
    decode, speed = one.decode_s, one.wall_speedup
    return {
        "Arm": arm_name(arm, small=f"{price_words(one.price)} roofline"),
        "Decode, measured": notes.entry(arm.decode_s, formatting.seconds),
        "of that in forwards": notes.entry(arm.forward_s, formatting.seconds),
        "Decode, predicted": notes.entry(decode, formatting.seconds, small=between(decode, formatting.seconds)),
        "Error": notes.entry(one.decode_error, formatting.signed_percent),
        "Wall speedup, measured": notes.entry(arm.wall_speedup_totals, formatting.ratio),
        "Wall speedup, predicted": notes.entry(speed, formatting.ratio, small=between(speed, formatting.ratio)),
        "Error of speedup": notes.entry(one.wall_speedup_error, formatting.signed_percent),
    }
