"""The drawings that explain one part's speedup, and why some cannot be drawn.

They answer in order: how fast at what accuracy, why this speedup, does the hardware allow it, what do the passes decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from harness.analysis.evidence.best_settings import telling_arms, ways
from harness.analysis.evidence.blocks import BlockPasses, Timeline, block_passes, timeline
from harness.analysis.evidence.break_even import speeds_by_load
from harness.analysis.evidence.explain import bandwidths, claimed_of, residuals, roofline_points
from harness.analysis.evidence.explain import waterfall as waterfall_of
from harness.analysis.results import ArmResult, Cell, Comparison
from harness.analysis.tally.pass_values import reasons_in_words
from harness.record.schema import Run
from harness.reporting import figures_arms, figures_bars, figures_blocks, figures_factors, figures_load, figures_roofline
from harness.reporting.figures_roofline import pass_time
from harness.reporting.svg import MOST_ARMS, Drawing, placed

MOST_BATCHES = 3
"""Batch sizes of a part with their own drawings: smallest, one between, largest. The tables have all."""
BLOCKS = 4
"""Blocks in a timeline."""
NO_TIME = "the forward passes of this part were not timed one by one"
UNTIMED = "this part was not timed"
Shown = list[tuple[Cell, ArmResult]]
Found = Drawing | str | None
"""A drawing, or why it is missing; None for one that nobody misses."""


def explain_drawings(comparison: Comparison, run: Run, part: str, name: str) -> tuple[list[Drawing], list[str]]:
    """All drawings of ``part``, and a line for each that is missing, with its reason; ``name`` begins their ids."""
    cells = [cell for cell in comparison.cells if cell.part == part and cell.is_summary and cell.arms]
    if not cells:
        return [], []
    chosen = _chosen(cells)
    telling = [replace(cell, arms=telling_arms(cell, MOST_ARMS)) for cell in chosen]
    labels = {(one.part, one.batch_size): one.label for one in comparison.answers}  # of the arm that answers the question
    answering = [(cell, cell.arm(labels.get((cell.part, cell.batch_size)))) for cell in chosen]
    shown = [(cell, arm) for cell, arm in answering if arm is not None and not arm.is_ntp]
    falls = [waterfall_of(cell, arm, claimed_of(comparison, cell, arm)) for cell, arm in shown]
    highlighted, untimed = [(cell.batch_size, arm.label) for cell, arm in shown], "" if chosen[0].timed else UNTIMED
    unmetered = (arm.figures[figures_bars.ENERGY].reason for cell in cells for arm in cell.arms if arm.figures)
    found: list[Found] = [
        *(_at(cell, drawn, cells) for cell in chosen for drawn in _arms(cell)),
        figures_factors.waterfall([fall for fall in falls if fall is not None])
        or f"From passes to the clock: {untimed or _no_factors(shown)}",
        figures_load.speed_by_load(speeds_by_load(cells)),
        figures_load.straggler_loss(cells) or _no_stragglers(cells),
        *(_at(cell, pass_time(cell), cells) for cell in chosen),
        *(_at(cell, figures_blocks.cost_by_width(run.header, cell), cells) for cell in chosen),
        figures_roofline.roofline_plot(roofline_points(cells), cells[0].roofs) or f"Passes under the roofline: {NO_TIME}",
        figures_bars.bandwidth_bars(bandwidths(telling)) or f"Bandwidth: {NO_TIME}",
        figures_factors.predicted_measured(residuals(chosen), highlighted)
        or f"Predicted against measured: {untimed or _no_prediction(chosen[0])}",
        *_acceptance(run, shown, telling),
        figures_bars.energy_bars(telling) or f"Energy: {next(filter(None, unmetered), 'no arm was metered')}",
    ]
    missing = [f"{one.rstrip('.')}." for one in found if isinstance(one, str)]
    return placed((one for one in found if isinstance(one, Drawing)), name), missing


def _at(cell: Cell, drawing: Drawing | None, cells: Sequence[Cell]) -> Drawing | None:
    """The drawing of one cell; its heading says of which, where the part has several."""
    return drawing and replace(drawing, heading=f"{drawing.heading}, {cell.size_words}" if len(cells) > 1 else drawing.heading)


def _chosen(cells: list[Cell]) -> list[Cell]:
    """At most three batch sizes, both ends among them."""
    if len(cells) <= MOST_BATCHES:
        return cells
    ordered = sorted(cells, key=lambda cell: cell.batch_size)
    return [ordered[0], ordered[len(ordered) // 2], ordered[-1]]


def _acceptance(run: Run, shown: Shown, cells: list[Cell]) -> Iterator[Found]:
    """What the passes of the highlighted arm decide, at the smallest batch size, where the order of rows has no effect."""
    for cell, arm in [one for one in shown if one[1].method == "sbd"][:1]:
        decoded = timeline(run, cell.part, arm.case_ids, BLOCKS)
        if isinstance(decoded, Timeline) and decoded.blocks:
            yield figures_blocks.timeline_drawing(arm, decoded)
        else:
            why = decoded if isinstance(decoded, str) else "the answer has no block"
            yield f"Decoded blocks, token by token: {why}"
        blocks = block_passes(run, arm.case_ids)
        if isinstance(blocks, BlockPasses):
            heat = figures_blocks.block_heat_map(arm, blocks)
            yield heat or figures_blocks.block_counts(arm, blocks)
            yield f"Which pass decides which position: {blocks.reason}" if blocks.reason else None
    yield figures_arms.tokens_per_pass(cells[0])


def _arms(cell: Cell) -> Iterator[Drawing | None]:
    """Speed against accuracy, and the ways where there are several or no accuracy is known."""
    found = figures_arms.speed_accuracy(cell)
    yield found
    several = ways(cell)
    if len(several) > 1 and (found is None or len(cell.arms) > MOST_ARMS):
        yield figures_bars.ways_compared(several, cell.timed)


def _no_factors(shown: Shown) -> str:
    if not shown:
        return "no arm besides NTP answers the question here"
    return shown[0][1].pass_parts.forward_s.reason or shown[0][1].wall_speedup.reason or "the factors are not known"


def _no_prediction(cell: Cell) -> str:
    reasons = reasons_in_words(cell.rung_reasons)
    return "; ".join(f"{rung}: {why}" for rung, why in reasons.items()) or "there is no arm to compare"


def _no_stragglers(cells: list[Cell]) -> str | None:
    if all(cell.batch_size == 1 for cell in cells):
        return "Rows that wait for the slowest: only batch size 1 was run"
    return None if cells[0].timed else f"Rows that wait for the slowest: {UNTIMED}"
