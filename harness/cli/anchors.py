"""`sbd roofline --anchors`: predictions beside published speeds, each with its verdict and its reason."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from harness.cli.output import give, grid
from harness.hardware.profile import known_profiles
from harness.roofline.anchor_values import AnchorTable, Group, known_anchors
from harness.roofline.anchors import AnchorReport, Comparison, Rung, compare_anchors

ANCHORS_VERSION = 1
MS_PER_S = 1e3
UNITS = {"tokens_per_s": "tok/s", "token_s": "ms/token", "first_token_s": "ms"}
RUNGS: tuple[Rung, ...] = ("datasheet", "published", "anchored")
HEAD = """\
Speeds that others published, beside what this roofline predicts for them. Nothing in the column `figure` was measured here.
  datasheet  published peaks: what nothing reaches          rates     rates that others measured on the part, no fixed cost
  anchored   rates, and {fixed:.1f} µs per layer and pass, the one constant solved here, from {source}
  low..high  memory and arithmetic fully overlapped .. one after the other, on the last rung of the line
  share      modelled bytes per pass times passes per second over the datasheet's bandwidth, per GPU (batch 1, dense models)
Percentages are predicted over published, less 1."""


def print_anchors(as_json: bool) -> None:
    """Print the table, or all of it as JSON."""
    table = known_anchors()
    report = compare_anchors(table, known_profiles())
    give(as_json, lambda: describe(table, report), lambda: render(table, report))


def describe(table: AnchorTable, report: AnchorReport) -> dict[str, Any]:
    """Everything as plain data; values in SI units, errors and shares as ratios."""
    return {
        "version": ANCHORS_VERSION, "fixed_cost_from": table.fixed_cost_from, "fixed_s_per_layer": report.fixed_s_per_layer,
        "groups": {name: group.model_dump(mode="json") for name, group in table.groups.items()},
        "reasons": dict(table.reasons), "left_out": [one.model_dump(mode="json") for one in table.left_out],
        "anchors": [_described(one) for one in report.comparisons],
    }  # fmt: skip


def _described(one: Comparison) -> dict[str, Any]:
    names = ("value", "low", "high", "error")
    return {
        **one.anchor.model_dump(mode="json"), "measure": one.anchor.measure,
        "predictions": {rung: {name: getattr(p, name) for name in names} for rung, p in one.predictions.items()},
        "finding": one.finding, "judged_rung": one.rung, "gave_the_constant": one.fitted, "rival_error": one.rival_error,
        "modelled_bytes_per_s": one.modelled_bytes_per_s, "datasheet_share": one.datasheet_share,
    }  # fmt: skip


def render(table: AnchorTable, report: AnchorReport) -> str:
    """One block per system with conditions and source; then bars, reasons and omissions."""
    blocks = [HEAD.format(fixed=1e6 * report.fixed_s_per_layer, source=table.fixed_cost_from)]
    by_system = sorted(report.comparisons, key=lambda one: list(table.systems).index(one.anchor.system))
    for name, group in groupby(by_system, key=lambda one: one.anchor.system):
        system = table.systems[name]
        dated = f", {system.source.date}" if system.source.date else ""
        about = f"{name} on {system.device}: {system.conditions}. Source [{system.source.grade}]: {system.source.text}{dated}"
        blocks.append(f"{about}\n{_rows(table, list(group))}")
    blocks.append("\n".join(_notes(table, report)))
    return "\n\n".join(blocks)


def _rows(table: AnchorTable, compared: list[Comparison]) -> str:
    figures = ("figure", "datasheet", "rates", "anchored", "low..high", "share", "other tool")
    rows = [[*_cells(one), verdict(table, one)] for one in compared]
    return grid(("", *figures, "verdict"), rows, right=figures, folds=("verdict",))


def _cells(one: Comparison) -> Iterator[str]:
    anchor, last = one.anchor, list(one.predictions.values())[-1]
    scale = 1.0 if anchor.measure == "tokens_per_s" else MS_PER_S
    yield anchor.name.removeprefix(f"{anchor.system}-")
    yield f"{_figure(anchor.published, scale)} {UNITS[anchor.measure]}"
    for rung in RUNGS:
        found = one.predictions.get(rung)
        yield "?" if found is None else f"{_figure(found.value, scale)} {100 * found.error:+6.1f} %"
    yield f"{_figure(last.low, scale)}..{_figure(last.high, scale)}"
    yield "" if one.datasheet_share is None else f"{100 * one.datasheet_share:.1f} %"
    yield "" if anchor.rival is None or one.rival_error is None else f"{anchor.rival.name} {100 * one.rival_error:+.1f} %"


def verdict(table: AnchorTable, one: Comparison) -> str:
    """The verdict in words, in capitals where it contradicts the table."""
    group, reason = one.anchor.group, one.anchor.reason
    if group is None:
        return f"no: {reason}" if one.finding == "disagrees_as_stated" else f"AGREES, expected not to: {reason}"
    bar = table.groups[group].within_pct.get(one.rung) if one.rung != "datasheet" else None
    said = "within" if one.finding == "agrees" else "NOT within"
    return f"{said} {bar:g} %: {group}{' (gave the constant)' if one.fitted else ''}"


def _figure(value: float, scale: float) -> str:
    return f"{value * scale:,.4g}" if value * scale < 1000 else f"{value * scale:,.0f}"


def _notes(table: AnchorTable, report: AnchorReport) -> Iterator[str]:
    judged = [one for one in report.comparisons if one.anchor.group and not one.fitted]
    agreeing = sum(one.finding == "agrees" for one in judged)
    yield f"{agreeing} of {len(judged)} anchors that should agree do; the one that gave the constant is not counted. Whether"
    yield "that was expected before a prediction was seen, or said afterwards, stands with each bar and reason."
    yield f"\n{sum(one.anchor.reason is not None for one in report.comparisons)} should not agree:"
    yield from _listed(table.reasons)
    yield "\nBars, and how they were chosen:"
    yield from _listed({name: _bar(group) for name, group in table.groups.items()})
    yield "\nPublished, but not predicted:"
    yield from _listed({one.what: one.why for one in table.left_out})


def _bar(group: Group) -> str:
    bars = ", ".join(f"{bar:g} % ({'rates' if rung == 'published' else rung})" for rung, bar in group.within_pct.items())
    return f"{group.what}; within {bars}, assigned {group.assigned} the first prediction. {group.chosen}"


def _listed(entries: dict[str, str]) -> Iterator[str]:
    yield from (f"  {name}: {text}" for name, text in entries.items())
