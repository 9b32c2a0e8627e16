"""The tables of what requests to servers waited for, and of their rates: a part's loads as sections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from harness import formatting
from harness.analysis.results import ArmResult, Cell
from harness.reporting.cells import Entry, Notes, Pointers, Row, Table, between
from harness.reporting.tables import MEASURED, arm_name, section_per_cell
from harness.scenario.metrics import REQUEST_PERCENTILES
from harness.stats.quantity import Quantity, absent

WAIT_HEADS = {
    "first_token": "First token",
    "time_per_token": "Time per token",
    "inter_token": "Between pieces",
    "request": "Request",
}
AGAINST = "Against NTP"
NONE = absent("this comparison is older than the figure")
Heads = tuple[tuple[str, str, Callable[[float], str], str], ...]
RATES: Heads = (
    ("Tokens/s", "throughput_tokens_per_s", formatting.rate, "throughput_ratio"),
    ("Good requests/s", "goodput_per_s", formatting.rate, "goodput_ratio"),
)
"""Head, figure, how it is written, and its ratio to NTP's."""


def waits_table(cells: Sequence[Cell], pointers: Pointers, heading: str) -> Table | None:
    """A row per arm and percentile: each wait with its interval over processes, and NTP's by it; None without requests."""
    return section_per_cell(
        cells,
        pointers,
        heading,
        dict.fromkeys(_wait_columns(), MEASURED),
        lambda cell, notes: [row for arm in cell.arms for row in _wait_rows(arm, notes)],
    )


def rates_table(cells: Sequence[Cell], pointers: Pointers, heading: str) -> Table | None:
    """A row per arm: requests that count, those in flight, and what was answered per second while the load was steady."""
    heads = [one for head, *_ in RATES for one in (head, f"{head} {AGAINST.lower()}")]
    marks = dict.fromkeys(("In flight", "Requests/s", *heads), MEASURED) | dict.fromkeys(("Requests", "Left out"), ("counted",))
    return section_per_cell(
        cells, pointers, heading, marks, lambda cell, notes: [_rate_row(arm, notes) for arm in cell.arms if arm.requests]
    )


def _wait_columns() -> Iterator[str]:
    for head in WAIT_HEADS.values():
        yield from (head, f"{head} {AGAINST.lower()}")


def _wait_rows(arm: ArmResult, notes: Notes) -> Iterator[Row]:
    """None for an arm without requests; the last percentile only where there are enough of them."""
    if arm.requests is None:
        return
    for percent in REQUEST_PERCENTILES:
        found = {wait: arm.figures.get(f"{wait}_p{percent}_s", NONE) for wait in WAIT_HEADS}
        if percent == REQUEST_PERCENTILES[-1] and all(one.value is None for one in found.values()):
            continue
        row = {"Arm": arm_name(arm, "median" if percent == 50 else f"{percent}th percentile")}
        for wait, head in WAIT_HEADS.items():
            row[head] = _entry(found[wait], formatting.seconds, notes)
            row |= _against(arm, f"{head} {AGAINST.lower()}", f"{wait}_p{percent}_speedup", notes)
        yield row


def _rate_row(arm: ArmResult, notes: Notes) -> Row:
    assert arm.requests is not None
    row = {
        "Arm": arm_name(arm),
        "Requests": notes.plain(arm.requests, "counted", formatting.count),
        "Left out": notes.plain(arm.requests, "left_out", formatting.count),
        "In flight": _plain(arm.figures.get("in_flight", NONE), notes),
        "Requests/s": _plain(arm.figures.get("requests_per_s", NONE), notes),
    }
    for head, name, write, ratio in RATES:
        row[head] = _entry(arm.figures.get(name, NONE), write, notes)
        row |= _against(arm, f"{head} {AGAINST.lower()}", ratio, notes)
    return row


def _against(arm: ArmResult, head: str, name: str, notes: Notes) -> Row:
    """How many times better than NTP; nothing to say of NTP itself."""
    return {head: Entry(text="") if arm.is_ntp else _entry(arm.figures.get(name, NONE), formatting.ratio, notes)}


def _entry(found: Quantity, write: Callable[[float], str], notes: Notes) -> Entry:
    return notes.entry(found, write, small=between(found, write))


def _plain(found: Quantity, notes: Notes) -> Entry:
    """A value that a load may fix, so that processes need not differ in it: without interval."""
    return notes.entry(found if found.value is None else replace(found, low=None, high=None, reason=None), formatting.rate)
