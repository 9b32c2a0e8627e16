"""`sbd roofline --anchors`: predictions beside speeds that others published, each with its verdict and its reason."""

from __future__ import annotations

import json
from itertools import groupby
from textwrap import fill
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.anchors import AnchorTable
    from harness.roofline.anchors import AnchorReport, Comparison, Prediction

ANCHORS_VERSION = 1
MS_PER_S = 1e3
UNITS = {"tokens_per_s": "tokens/s", "token_s": "ms a token", "first_token_s": "ms to first"}
HEAD = """\
Speeds that others published, beside what this roofline predicts for them. Nothing in the column `figure` was measured here.
  datasheet  published peaks: what nothing reaches          rates     rates that others measured on the part, no fixed cost
  anchored   rates, and {fixed:.1f} µs per layer and pass, the one constant solved here, from {source}
  low..high  memory and arithmetic fully overlapped .. one after the other, on the last rung of the line
  share      modelled bytes per pass times passes per second over the datasheet's bandwidth, per GPU (batch 1, dense models)
Percentages are predicted over published, less 1."""


def print_anchors(as_json: bool) -> None:
    """The table, or all of it as JSON."""
    from harness.anchors import known_anchors
    from harness.hardware import known_profiles
    from harness.roofline.anchors import compare_anchors

    table = known_anchors()
    report = compare_anchors(table, known_profiles())
    print(json.dumps(describe(table, report), indent=1, ensure_ascii=False) if as_json else render(table, report))


def describe(table: AnchorTable, report: AnchorReport) -> dict[str, Any]:
    """Everything as plain data; values in SI units, errors and shares as ratios."""
    return {
        "version": ANCHORS_VERSION,
        "fixed_cost_from": table.fixed_cost_from,
        "fixed_s_per_layer": report.fixed_s_per_layer,
        "groups": {name: group.model_dump(mode="json") for name, group in table.groups.items()},
        "reasons": dict(table.reasons),
        "left_out": [one.model_dump(mode="json") for one in table.left_out],
        "anchors": [_described(one) for one in report.comparisons],
    }


def _described(one: Comparison) -> dict[str, Any]:
    names = ("value", "low", "high", "error")
    return {
        **one.anchor.model_dump(mode="json"),
        "measure": one.anchor.measure,
        "predictions": {rung: {name: getattr(p, name) for name in names} for rung, p in one.predictions.items()},
        "finding": one.finding,
        "judged_rung": one.rung,
        "gave_the_constant": one.fitted,
        "rival_error": one.rival_error,
        "modelled_bytes_per_s": one.modelled_bytes_per_s,
        "datasheet_share": one.datasheet_share,
    }


def render(table: AnchorTable, report: AnchorReport) -> str:
    """One block a system, with its conditions and source; then bars, reasons and what is left out."""
    blocks = [HEAD.format(fixed=1e6 * report.fixed_s_per_layer, source=table.fixed_cost_from)]
    by_system = sorted(report.comparisons, key=lambda one: list(table.systems).index(one.anchor.system))
    for name, group in groupby(by_system, key=lambda one: one.anchor.system):
        system = table.systems[name]
        dated = f", {system.source.date}" if system.source.date else ""
        about = f"{name} on {system.device}: {system.conditions}. Source [{system.source.grade}]: {system.source.text}{dated}"
        blocks.append(f"{fill(about, 128)}\n{_rows(table, list(group))}")
    blocks.append("\n".join(_notes(table, report)))
    return "\n\n".join(blocks)


def _rows(table: AnchorTable, compared: list[Comparison]) -> str:
    from rich.table import Table

    from harness.cli_hardware import printed

    shown = Table(box=None, pad_edge=False)
    shown.add_column("", no_wrap=True)
    for head in ("figure", "datasheet", "rates", "anchored", "low..high", "share", "other tool"):
        shown.add_column(head, justify="right", no_wrap=True)
    shown.add_column("verdict", no_wrap=True)
    for one in compared:
        anchor = one.anchor
        scale = 1.0 if anchor.measure == "tokens_per_s" else MS_PER_S
        last = list(one.predictions.values())[-1]
        shown.add_row(
            anchor.name.removeprefix(f"{anchor.system}-"), f"{_figure(anchor.published, scale)} {UNITS[anchor.measure]}",
            *(_predicted(one.predictions.get(rung), scale) for rung in ("datasheet", "published", "anchored")),
            f"{_figure(last.low, scale)}..{_figure(last.high, scale)}",
            "" if one.datasheet_share is None else f"{100 * one.datasheet_share:.1f} %",
            f"{anchor.rival.name} {100 * one.rival_error:+.1f} %" if anchor.rival and one.rival_error is not None else "",
            verdict(table, one),
        )  # fmt: skip
    return printed(shown)


def verdict(table: AnchorTable, one: Comparison) -> str:
    """In words; a verdict against what the table expects says so."""
    if one.anchor.group is None:
        return f"does not agree: {one.anchor.reason}" if one.finding == "disagrees_as_stated" else (
            f"agrees, although expected not to: {one.anchor.reason}"
        )  # fmt: skip
    bar = f"{table.groups[one.anchor.group].within_pct[one.rung]:g} %" if one.rung != "datasheet" else "any bar"
    said = f"agrees within {bar}" if one.finding == "agrees" else f"does NOT agree within {bar}"
    return f"{said} ({one.anchor.group}{'; gave the constant' if one.fitted else ''})"


def _predicted(prediction: Prediction | None, scale: float) -> str:
    return "?" if prediction is None else f"{_figure(prediction.value, scale)} {100 * prediction.error:+6.1f} %"


def _figure(value: float, scale: float) -> str:
    return f"{value * scale:,.4g}" if value * scale < 1000 else f"{value * scale:,.0f}"


def _notes(table: AnchorTable, report: AnchorReport) -> Iterator[str]:
    judged = [one for one in report.comparisons if one.anchor.group and not one.fitted]
    agreeing = sum(one.finding == "agrees" for one in judged)
    expected = len(report.comparisons) - sum(one.anchor.group is not None for one in report.comparisons)
    yield f"{agreeing} of {len(judged)} anchors that should agree do, beside the one that gave the constant; {expected} should not:"
    yield from _listed(table.reasons)
    yield "\nBars, and how they were chosen:"
    yield from _listed(
        {
            name: f"{group.what}; within {', '.join(f'{bar:g} % ({rung})' for rung, bar in group.within_pct.items())}. {group.chosen}"
            for name, group in table.groups.items()
        }
    )
    yield "\nPublished, but not predicted:"
    yield from _listed({one.what: one.why for one in table.left_out})


def _listed(entries: dict[str, str]) -> Iterator[str]:
    yield from (fill(f"{name}: {text}", 128, initial_indent="  ", subsequent_indent="    ") for name, text in entries.items())
