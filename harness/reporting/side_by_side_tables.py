"""The tables of several runs beside each other: what changed, and every shared arm run by run.

Puts values of harness.regression.run_comparison into entries; computes no statistic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness import formatting
from harness.analysis.stats.quantity import Quantity
from harness.regression.changes import OUTCOME_WORDS, Change
from harness.regression.metrics import DEFINITIONS
from harness.regression.run_comparison import SharedArm, SideBySide
from harness.reporting.cells import Entry, Mark, Row, Table, between
from harness.reporting.pointers import Pointers

HASH_DIGITS = 12
ARM_FIGURES: tuple[tuple[str, str, Mark, Callable[[float], str]], ...] = (
    ("nfe_speedup", "NFE speedup", "counted", formatting.ratio),
    ("wall_speedup", "Wall speedup", "measured", formatting.ratio),
    ("request_speedup", "Request speedup", "measured", formatting.ratio),
    ("accuracy", "Accuracy", "counted", formatting.percent),
)
"""Field, column, what it rests on and how it is written."""


def changes_table(found: Sequence[tuple[Change, str]], heading: str, letter: str) -> Table | None:
    """Changes with their place, a section per metric, the reasons of those that are no answer below; None without any."""
    reasons = list(dict.fromkeys(why for change, _ in found if (why := _reason(change))))
    sections: dict[str, list[Row]] = {}
    for change, key in found:
        definition = DEFINITIONS[change.metric]
        name = f"{change.metric}: {definition.what}{f', in {change.unit}' if change.unit else ''}"
        why = _reason(change)
        sections.setdefault(name, []).append({
            "Figure": Entry(text=change.subject),
            "A": _value(change, change.base, f"{key}/base"),
            letter: _value(change, change.new, f"{key}/new"),
            "Change": _change(change, key),
            "Found": Entry(text=OUTCOME_WORDS[change.outcome], note=reasons.index(why) + 1 if why else None),
        })  # fmt: skip
    marks: tuple[Mark, ...] = ("measured",) if heading == "Timed" else ("counted",)
    rows = tuple((name, tuple(members)) for name, members in sections.items())
    return Table(heading=heading, sections=rows, notes=tuple(reasons), marks={"Change": marks}) if rows else None


def _reason(change: Change) -> str | None:
    """Why there is no answer, and what would give one; None where there is one."""
    if change.outcome == "unknown":
        return change.reason or "not known in one of the runs"
    return "; ".join(filter(None, (change.reason, change.remedy))) if change.outcome in ("unclear", "no_interval") else None


def _value(change: Change, value: float | str | None, key: str) -> Entry:
    if value is None:
        return Entry(text="none")
    if isinstance(value, str):
        return Entry(text=value[:HASH_DIGITS])
    if change.unit.startswith("s"):
        return Entry(text=formatting.seconds(value), raw=value, key=key)
    if change.unit == "x":
        return Entry(text=formatting.ratio(value), raw=value, key=key)
    return Entry(text=formatting.figure(value, 4) if "/" in change.unit else formatting.count(value), raw=value, key=key)


def _change(change: Change, key: str) -> Entry:
    one, zero = (change.ratio, 1.0) if change.difference is None else (change.difference, 0.0)
    write = formatting.signed_percent if change.difference is None else formatting.points
    if one.value is None:
        return Entry(text="other" if change.base is not None and change.base != change.new else "none")
    known = one.low is not None and one.high is not None
    return Entry(
        text=write(one.value - zero), raw=one.value, low=one.low, high=one.high,
        key=f"{key}/{'ratio' if change.difference is None else 'difference'}",
        small=f"{write((one.low or 0) - zero)} to {write((one.high or 0) - zero)}" if known else "",
    )  # fmt: skip


def arms_table(found: SideBySide) -> Table | None:
    """NFE speedup, wall speedup and accuracy of every shared arm, run by run; None where no arm is shared."""
    pointers = [Pointers(side.comparison) for side in found.sides]
    letters = [side.letter for side in found.sides]
    rows = tuple(_arm_row(arm, letters, pointers) for arm in found.arms)
    marks: dict[str, tuple[Mark, ...]] = {
        f"{head} {letter}": (mark,) for _, head, mark, _ in ARM_FIGURES for letter in letters
    }  # fmt: skip
    return Table(heading="Arms, run by run", sections=(("", rows),), notes=(), marks=marks) if rows else None


def _arm_row(arm: SharedArm, letters: Sequence[str], pointers: Sequence[Pointers]) -> Row:
    row: Row = {"Arm": Entry(text=arm.label, small=f"{arm.part}, batch {arm.batch_size}")}
    for name, head, _, write in ARM_FIGURES:
        for number, (letter, result) in enumerate(zip(letters, arm.results, strict=True)):
            value: Quantity | None = None if result is None else getattr(result, name)
            row[f"{head} {letter}"] = _arm_figure(value, write, f"/runs/{number}/comparison", pointers[number])
    return row


def _arm_figure(value: Quantity | None, write: Callable[[float], str], where: str, pointers: Pointers) -> Entry:
    if value is None or value.value is None:
        return Entry(text="none")
    return Entry(
        text=write(value.value), small=between(value, write), raw=value.value, low=value.low, high=value.high,
        key=where + pointers.of(value),
    )  # fmt: skip
