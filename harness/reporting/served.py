"""The table of what servers say of themselves beside what was counted of their answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness import formatting
from harness.analysis.results import ArmResult, Cell
from harness.analysis.tally.served import WAYS
from harness.reporting.cells import Entry, Notes, Pointers, Row, Table
from harness.reporting.tables import arm_name, section_per_cell

HEADS = {"steps": "Passes, engine's steps", "accepted": "Passes, by accepted drafts", "chunks": "Passes, by chunks"}
NOT_TOLD = "the server does not tell it for every request"
HEADLINE = (
    "The engine's headline is 1 + accepted drafts per pass that had a draft. Passes without one, and accepted tokens behind an "
    "answer's end, are in the count of passes and not in the headline."
)
OF_ENGINE = "The engine's headline is: {}. Tokens per pass are the decode tokens over the counted passes."


def served_table(cells: Sequence[Cell], pointers: Pointers, heading: str) -> Table | None:
    """A row per arm that a server decoded; None where none did."""
    return section_per_cell(
        cells,
        pointers,
        heading,
        dict.fromkeys(("Requests", *HEADS.values(), "Tokens per pass"), ("counted",)),
        lambda cell, notes: [_row(arm, notes) for arm in cell.arms if arm.served is not None],
    )


def _row(arm: ArmResult, notes: Notes) -> Row:
    told = arm.served
    assert told is not None
    passes = {HEADS[way]: _entry(told.passes[way], _count, notes) for way in WAYS}
    agree = notes.plain(told, "agreeing", formatting.count)
    means = HEADLINE if told.headline_means is None else OF_ENGINE.format(told.headline_means)
    headline = Entry(text="none") if told.headline is None else _entry(told.headline, _factor, notes, means)
    return {
        "Arm": arm_name(arm),
        "Requests": notes.plain(told, "requests", formatting.count),
        "Ways agree": agree,
        **passes,
        "Tokens per pass": _entry(told.tokens_per_pass, _factor, notes),
        "The engine's headline": headline,
    }


def _factor(value: float) -> str:
    return f"{value:.2f}"


def _count(value: float) -> str:
    return formatting.count(int(value))


def _entry(value: float | None, write: Callable[[float], str], notes: Notes, note: str | None = None) -> Entry:
    if value is None:
        return Entry(text="none", note=notes.number(NOT_TOLD))
    return Entry(text=write(value), raw=value, note=notes.number(note) if note else None)
