"""`sbd roofline --anchors`: predictions beside published speeds, each with its verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import get_args

from harness.cli.output import give, grid
from harness.hardware.profile import known_profiles
from harness.roofline.anchor_values import AnchorTable, known_anchors
from harness.roofline.anchored import Kind, constants
from harness.roofline.anchors import ComparedAnchor, Rung, compare_anchors

ANCHORS_VERSION = 2
MS_PER_S = 1e3
UNITS = {
    "tokens_per_s": "tok/s",
    "decode_tokens_per_s": "tok/s",
    "token_s": "ms/token",
    "first_token_s": "ms",
    "request_s": "ms",
    "block_tokens_per_s": "passes",
}
RUNGS: tuple[Rung, ...] = ("datasheet", "published", "anchored")
VERDICTS = {"within": "within the band", "too_fast": "predicted too fast", "too_slow": "predicted too slow"}
HEAD = """\
Speeds that others published, beside what this roofline predicts for them. Nothing in the column `figure` was measured here.
  datasheet  published peaks: what nothing reaches          rates     rates that others measured on the part, no fixed cost
  anchored   the datasheet times the constants of anchored.yaml, which were fitted to these figures; its band is the 80 %
             interval of errors on devices and engines that were held out
  share      modelled bytes per pass times passes per second over the datasheet's bandwidth, per GPU (batch 1, dense models)
  passes     what a pass of a block costs in passes of one token
Percentages are predicted over published, less 1."""


def print_anchors(as_json: bool) -> None:
    """Print the table, or all of it as JSON."""
    table = known_anchors()
    compared = compare_anchors(table, known_profiles())
    give(as_json, lambda: describe(table, compared), lambda: render(table, compared))


def describe(table: AnchorTable, compared: Sequence[ComparedAnchor]) -> dict[str, object]:
    """Everything as plain data; values in SI units, errors and shares as ratios."""
    return {
        "version": ANCHORS_VERSION,
        "constants": constants().model_dump(mode="json"),
        "dropped": [one.model_dump(mode="json") for one in table.dropped],
        "anchors": [_described(one) for one in compared],
    }


def _described(one: ComparedAnchor) -> dict[str, object]:
    names = ("value", "low", "high", "error")
    return {
        **one.anchor.model_dump(mode="json"),
        "measure": one.anchor.measure,
        "kind": one.anchor.kind,
        "published": one.anchor.published,
        "predictions": {rung: {name: getattr(p, name) for name in names} for rung, p in one.predictions.items()},
        "finding": one.finding,
        "rival_error": one.rival_error,
        "modelled_bytes_per_s": one.modelled_bytes_per_s,
        "datasheet_share": one.datasheet_share,
    }


def render(table: AnchorTable, compared: Sequence[ComparedAnchor]) -> str:
    """One block per source with conditions and address; then the errors, and what was dropped."""
    blocks = [HEAD]
    by_system = sorted(compared, key=lambda one: list(table.systems).index(one.anchor.system))
    for name, group in groupby(by_system, key=lambda one: one.anchor.system):
        system = table.systems[name]
        dated = f", {system.source.date}" if system.source.date else ""
        where = f" on {system.device}" if system.device else ""
        source = f"Source [{system.source.grade}]: {system.source.text}{dated}, {system.source.address}"
        blocks.append(f"{name}{where}: {system.conditions}. {source}\n{_rows(list(group))}")
    blocks.append("\n".join(_notes(table, compared)))
    return "\n\n".join(blocks)


def _rows(compared: list[ComparedAnchor]) -> str:
    figures = ("figure", "datasheet", "rates", "anchored", "band", "share", "other tool")
    rows = [[*_cells(one), VERDICTS[one.finding]] for one in compared]
    return grid(("", *figures, "verdict"), rows, right=figures, folds=("verdict",))


def _cells(one: ComparedAnchor) -> Iterator[str]:
    anchor, last = one.anchor, one.predictions["anchored"]
    scale = MS_PER_S if UNITS[anchor.measure].startswith("ms") else 1.0
    yield anchor.name.removeprefix(f"{anchor.system}-")
    yield f"{_figure(anchor.published, scale)} {UNITS[anchor.measure]}"
    for rung in RUNGS:
        found = one.predictions.get(rung)
        yield "?" if found is None else f"{_figure(found.value, scale)} {100 * found.error:+6.1f} %"
    yield f"{_figure(last.low, scale)}..{_figure(last.high, scale)}"
    yield "" if one.datasheet_share is None else f"{100 * one.datasheet_share:.1f} %"
    yield "" if anchor.rival is None or one.rival_error is None else f"{anchor.rival.name} {100 * one.rival_error:+.1f} %"


def _figure(value: float, scale: float) -> str:
    return f"{value * scale:,.4g}" if value * scale < 1000 else f"{value * scale:,.0f}"


def _notes(table: AnchorTable, compared: Sequence[ComparedAnchor]) -> Iterator[str]:
    fitted = constants()
    for kind in get_args(Kind):
        found = [one for one in compared if one.anchor.kind == kind]
        inside, (low, high) = sum(one.finding == "within" for one in found), fitted.band[kind]
        yield (
            f"{kind}: {inside} of {len(found)} within {low:.2f} to {high:.2f} times the prediction; held out, the median "
            f"error is {fitted.median_error_pct[kind]:.1f} %"
        )
    yield "\nPublished, but not in the table:"
    yield from (f"  {one.what}: {one.why}" for one in table.dropped)
