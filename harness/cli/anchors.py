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
        "dropped": [entry.model_dump(mode="json") for entry in table.dropped],
        "anchors": [_described(entry) for entry in compared],
    }


def _described(entry: ComparedAnchor) -> dict[str, object]:
    names = ("value", "low", "high", "error")
    return {
        **entry.anchor.model_dump(mode="json"),
        "measure": entry.anchor.measure,
        "kind": entry.anchor.kind,
        "published": entry.anchor.published,
        "predictions": {rung: {name: getattr(p, name) for name in names} for rung, p in entry.predictions.items()},
        "finding": entry.finding,
        "rival_error": entry.rival_error,
        "modelled_bytes_per_s": entry.modelled_bytes_per_s,
        "datasheet_share": entry.datasheet_share,
    }


def render(table: AnchorTable, compared: Sequence[ComparedAnchor]) -> str:
    """One block per source with conditions and address; then the errors, and what was dropped."""
    blocks = [HEAD]
    by_system = sorted(compared, key=lambda entry: list(table.systems).index(entry.anchor.system))
    for name, group in groupby(by_system, key=lambda entry: entry.anchor.system):
        system = table.systems[name]
        dated = f", {system.source.date}" if system.source.date else ""
        where = f" on {system.device}" if system.device else ""
        source = f"Source [{system.source.grade}]: {system.source.text}{dated}, {system.source.address}"
        blocks.append(f"{name}{where}: {system.conditions}. {source}\n{_rows(list(group))}")
    blocks.append("\n".join(_notes(table, compared)))
    return "\n\n".join(blocks)


def _rows(compared: list[ComparedAnchor]) -> str:
    figures = ("figure", "datasheet", "rates", "anchored", "band", "share", "other tool")
    rows = [[*_cells(entry), VERDICTS[entry.finding]] for entry in compared]
    return grid(("", *figures, "verdict"), rows, right=figures, folds=("verdict",))


def _cells(entry: ComparedAnchor) -> Iterator[str]:
    anchor, last = entry.anchor, entry.predictions["anchored"]
    scale = MS_PER_S if UNITS[anchor.measure].startswith("ms") else 1.0
    yield anchor.name.removeprefix(f"{anchor.system}-")
    yield f"{_figure(anchor.published, scale)} {UNITS[anchor.measure]}"
    for rung in get_args(Rung):
        prediction = entry.predictions.get(rung)
        yield "?" if prediction is None else f"{_figure(prediction.value, scale)} {100 * prediction.error:+6.1f} %"
    yield f"{_figure(last.low, scale)}..{_figure(last.high, scale)}"
    yield "" if entry.datasheet_share is None else f"{100 * entry.datasheet_share:.1f} %"
    yield "" if anchor.rival is None or entry.rival_error is None else f"{anchor.rival.name} {100 * entry.rival_error:+.1f} %"


def _figure(value: float, scale: float) -> str:
    return f"{value * scale:,.4g}" if value * scale < 1000 else f"{value * scale:,.0f}"


def _notes(table: AnchorTable, compared: Sequence[ComparedAnchor]) -> Iterator[str]:
    fitted = constants()
    for kind in get_args(Kind):
        of_kind = [entry for entry in compared if entry.anchor.kind == kind]
        inside, (low, high) = sum(entry.finding == "within" for entry in of_kind), fitted.band[kind]
        yield (
            f"{kind}: {inside} of {len(of_kind)} within {low:.2f} to {high:.2f} times the prediction; held out, the median "
            f"error is {fitted.median_error_pct[kind]:.1f} %"
        )
    yield "\nPublished, but not in the table:"
    yield from (f"  {entry.what}: {entry.why}" for entry in table.dropped)
