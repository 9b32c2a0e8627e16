"""The tables of the report: which values stand in which column, and how each is written.

Puts values of a Comparison into frames of Entry; computes no statistic. An absent value is shown as "none" with a number
that leads to its reason under the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pandas as pd

from harness import units
from harness.compare_pass_values import PassWidth
from harness.compare_values import ArmResult, Cell, Comparison, GenerateMode, Prediction, to_json
from harness.stats import Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One table cell: text, a second line in small type, the raw value behind it, badges and the number of its note."""

    text: str
    small: str = ""
    raw: float | int | None = None
    marks: tuple[str, ...] = ()
    note: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A frame of entries (one column of text first), its sections (rows by name) and the reasons of what is absent."""

    heading: str
    sections: tuple[tuple[str, pd.DataFrame], ...]
    notes: tuple[str, ...]
    marks: dict[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """Column heads."""
        return list(self.sections[0][1].columns)


class Notes:
    """Numbers the reasons under one table; equal reasons share a number."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def number(self, reason: str) -> int:
        """The number of ``reason``, counted from 1."""
        if reason not in self.texts:
            self.texts.append(reason)
        return self.texts.index(reason) + 1

    def entry(self, quantity: Quantity, write: Callable[[float], str], small: str = "", marks: tuple[str, ...] = ()) -> Entry:
        """``quantity`` written by ``write``; absent, or without its interval, it refers to its reason."""
        note = self.number(quantity.reason) if quantity.reason else None
        if quantity.value is None:
            return Entry(text="none", note=note)
        return Entry(text=write(quantity.value), small=small, raw=quantity.value, marks=marks, note=note)


def arms_table(cells: list[Cell]) -> Table:
    """All arms of one part: a section per task and batch size, the summary over tasks first.

    Counted bandwidth has its columns where any was counted; where none was, the page says why.
    """
    notes = Notes()
    counted = any(arm.measured_bandwidth_bytes_per_s.value is not None for cell in cells for arm in cell.arms)
    sections = tuple(
        (section_name(cell), pd.DataFrame([_arm_row(arm, notes, counted) for arm in cell.arms])) for cell in cells if cell.arms
    )
    marks = {"GB/s": "modelled", "Share of ceiling": "modelled", "GB/s, counter": "measured"}
    return Table(heading="Arms", sections=sections, notes=tuple(notes.texts), marks=marks)


def section_name(cell: Cell) -> str:
    """What a section's rows share: ``all 3 tasks, batch 1``."""
    task = f"all {len(cell.tasks)} tasks" if cell.task is None else cell.task
    return f"{task}, batch {cell.batch_size}"


def _counter(arm: ArmResult, notes: Notes) -> dict[str, Entry]:
    return {
        "GB/s, counter": notes.entry(arm.measured_bandwidth_bytes_per_s, units.gigabytes, small="prefill and decode"),
        "Counter ÷ modelled": notes.entry(arm.measured_over_modelled, units.ratio, small="same window"),
    }


def _arm_row(arm: ArmResult, notes: Notes, counted: bool) -> dict[str, Entry]:
    replayed = ("replayed",) if arm.replayed else ()
    wall, totals, right = arm.wall_speedup, arm.wall_speedup_totals, arm.accuracy
    return {
        "Arm": Entry(text=arm.label, small=f"{units.count(arm.prompts)} prompts", marks=replayed),
        "NFE speedup": notes.entry(arm.nfe_speedup, units.ratio, marks=("given",) if arm.nfe_speedup.method == "given" else ()),
        "Wall speedup": notes.entry(wall, units.ratio, small=_between(wall, units.ratio) + _more_prompts(arm)),
        "Ratio of totals": notes.entry(totals, units.ratio, small=_between(totals, units.ratio)),
        "Tokens/s": notes.entry(arm.tokens_per_s, units.rate),
        "Accuracy": notes.entry(right, units.percent, small=_graded(arm)),
        "Against NTP": notes.entry(arm.accuracy_difference, units.points, small=_at_least(arm.accuracy_difference)),
        **_baseline(arm, notes),
        "GB/s": notes.entry(arm.modelled_bandwidth_bytes_per_s, units.gigabytes),
        "Share of ceiling": notes.entry(arm.ceiling_share, units.percent, small=arm.ceiling_share.method or ""),
        **(_counter(arm, notes) if counted else {}),
        "NFE": Entry(text=units.count(arm.nfe), small=f"{units.count(arm.decode_tokens)} decode tokens", raw=arm.nfe),
        "Query tokens per pass": notes.entry(arm.query_tokens_per_pass, units.count),
        "Request latency": notes.entry(arm.latency_s, units.seconds, small="median" if arm.latency_s.value is not None else ""),
    }


def _baseline(arm: ArmResult, notes: Notes) -> dict[str, Entry]:
    found = arm.baseline_difference
    return {} if found is None else {"Against baseline": notes.entry(found, units.points, small=_at_least(found))}


def _more_prompts(arm: ArmResult) -> str:
    """What it would take to know the speedup to 5 %, where these prompts were too few."""
    needed, have = arm.prompts_for_5_percent, arm.wall_speedup.n
    return f"; n = {have}, ±5 % takes {units.count(needed)}" if needed is not None and needed > have else ""


def _between(quantity: Quantity, write: Callable[[float], str]) -> str:
    return "" if quantity.low is None or quantity.high is None else f"{write(quantity.low)} – {write(quantity.high)}"


def _at_least(quantity: Quantity) -> str:
    return "" if quantity.low is None else f"at least {units.points(quantity.low)}"


def _graded(arm: ArmResult) -> str:
    if arm.correct is None:
        return ""
    return f"{units.count(arm.correct)} of {units.count(arm.accuracy.n)}; {_between(arm.accuracy, units.percent)}"


def factors_table(cells: list[Cell]) -> Table | None:
    """The wall speedup (ratio of totals) as the product of its factors."""
    notes = Notes()
    sections = []
    for cell in cells:
        rows = [_factor_row(arm, notes) for arm in cell.arms if not arm.is_ntp and arm.wall_speedup_totals.value is not None]
        if rows:
            sections.append((section_name(cell), pd.DataFrame(rows)))
    heading = "Where the speedup comes from"
    return Table(heading=heading, sections=tuple(sections), notes=tuple(notes.texts)) if sections else None


def _factor_row(arm: ArmResult, notes: Notes) -> dict[str, Entry]:
    parts = arm.factors
    row = {"Arm": Entry(text=arm.label, marks=("replayed",) if arm.replayed else ())}
    heads = ("Wall speedup (totals)", "= NFE speedup", "× rows per pass", "× time per pass", "× work around passes")
    if parts is None:
        note = notes.number("the forward passes were not timed one by one")
        none = {head: Entry(text="none", note=note) for head in heads[1:]}
        return row | {heads[0]: notes.entry(arm.wall_speedup_totals, units.ratio)} | none
    values = (parts.product, parts.passes, parts.rows_per_pass, parts.pass_cost, parts.overhead)
    return row | {head: Entry(text=f"{value:.3f}", raw=value) for head, value in zip(heads, values, strict=True)}


def baseline_table(cells: list[Cell]) -> Table | None:
    """The NTP arm beside transformers' generate(): above 1, NTP is the faster."""
    notes = Notes()
    sections = [
        (section_name(cell), pd.DataFrame([_generate_row(mode, notes) for mode in cell.baseline_check.modes]))
        for cell in cells if cell.baseline_check.modes
    ]  # fmt: skip
    heading = "Is the baseline fast?"
    return Table(heading=heading, sections=tuple(sections), notes=tuple(notes.texts)) if sections else None


def _generate_row(mode: GenerateMode, notes: Notes) -> dict[str, Entry]:
    speed = mode.ntp_speed
    return {
        "Decoded by": Entry(text=mode.label, small="transformers"),
        "Speed of our NTP arm beside it": notes.entry(speed, units.ratio, small=_between(speed, units.ratio)),
        "Prompts": Entry(text=units.count(speed.n), raw=speed.n),
    }


def pass_table(cell: Cell) -> Table | None:
    """Measured and predicted time of every kind of decode pass."""
    if not cell.pass_widths:
        return None
    notes = Notes()
    frame = pd.DataFrame([_pass_row(width, notes) for width in cell.pass_widths])
    return Table(heading="Time per pass", sections=((section_name(cell), frame),), notes=tuple(notes.texts))


def _pass_row(width: PassWidth, notes: Notes) -> dict[str, Entry]:
    measured = width.measured_s
    row = {
        "Pass": Entry(text="NTP" if width.method == "ntp" else width.role, small=f"{units.count(width.count)} passes"),
        "Query tokens per row": Entry(text=str(width.query_tokens), raw=width.query_tokens),
        "Measured": notes.entry(measured, units.seconds, small=_between(measured, units.seconds)),
    }
    for rung, price in width.predicted_s.items():
        row[f"Predicted, {rung}"] = notes.entry(price, units.seconds, small=_between(price, units.seconds))
    row["Cost in NTP passes"] = notes.entry(width.cost, units.ratio)
    for rung, cost in width.predicted_cost.items():
        row[f"Predicted cost, {rung}"] = notes.entry(cost, units.ratio)
    return row


def pass_parts_table(cells: list[Cell]) -> Table | None:
    """What a decode pass spends its time on, per arm."""
    notes = Notes()
    sections = []
    for cell in cells:
        rows = [_pass_parts_row(arm, notes) for arm in cell.arms if arm.pass_parts.forward_s.value is not None]
        if rows:
            sections.append((section_name(cell), pd.DataFrame(rows)))
    heading = "A decode pass taken apart (means)"
    return Table(heading=heading, sections=tuple(sections), notes=tuple(notes.texts)) if sections else None


def _pass_parts_row(arm: ArmResult, notes: Notes) -> dict[str, Entry]:
    parts = arm.pass_parts
    return {
        "Arm": Entry(text=arm.label, marks=("replayed",) if arm.replayed else ()),
        "Passes": Entry(text=units.count(arm.passes), raw=arm.passes),
        "Forward": notes.entry(parts.forward_s, units.seconds),
        "Sampler": notes.entry(parts.sampler_s, units.seconds),
        "Rest of the loop": notes.entry(parts.rest_s, units.seconds),
    }


def prediction_table(cells: list[Cell]) -> Table | None:
    """Predicted beside measured for the whole decode, per arm and rung."""
    notes = Notes()
    sections = []
    for cell in cells:
        rows = [_prediction_row(arm, one, notes) for arm in cell.arms for one in arm.predictions]
        if rows:
            sections.append((section_name(cell), pd.DataFrame(rows)))
    heading = "Predicted beside measured, whole decode"
    return Table(heading=heading, sections=tuple(sections), notes=tuple(notes.texts)) if sections else None


def _prediction_row(arm: ArmResult, one: Prediction, notes: Notes) -> dict[str, Entry]:
    decode, speed = one.decode_s, one.wall_speedup
    return {
        "Arm": Entry(text=arm.label, small=f"{one.rung} roofline", marks=("replayed",) if arm.replayed else ()),
        "Decode, measured": notes.entry(arm.decode_s, units.seconds),
        "of that in forwards": notes.entry(arm.forward_s, units.seconds),
        "Decode, predicted": notes.entry(decode, units.seconds, small=_between(decode, units.seconds)),
        "Error": notes.entry(one.decode_error, units.signed_percent),
        "Wall speedup, measured": notes.entry(arm.wall_speedup_totals, units.ratio),
        "Wall speedup, predicted": notes.entry(speed, units.ratio, small=_between(speed, units.ratio)),
        "Error of speedup": notes.entry(one.wall_speedup_error, units.signed_percent),
    }


def raw_csv(comparison: Comparison) -> str:
    """Every arm with every number unrounded, one row per arm and cell, as CSV."""
    data = to_json(comparison)
    keys = ("part", "task", "batch_size", "model", "dtype", "device")
    rows = [{key: cell[key] for key in keys} | arm for cell in data["cells"] for arm in cell["arms"]]
    if not rows:
        return ""
    dropped = ["predictions", "final_tokens_histogram", "case_ids"]
    return str(pd.json_normalize(rows).drop(columns=dropped).dropna(axis=1, how="all").to_csv(index=False))
