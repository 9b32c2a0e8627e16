"""The drawings that explain one part's speedup; one line says what cannot be drawn.

They answer in order: why this speedup, does the hardware allow it, what do the passes decide, at what accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from markupsafe import Markup

from harness.analysis.best_settings import telling_arms, ways
from harness.analysis.blocks import BlockPasses, Timeline, block_passes, timeline
from harness.analysis.explain import bandwidths, claimed_of, residuals, roofline_points
from harness.analysis.explain import waterfall as waterfall_of
from harness.analysis.pass_values import reasons_in_words
from harness.analysis.results import ArmResult, Cell, Comparison
from harness.record.schema import Run
from harness.reporting import figures_arms, figures_batch, figures_blocks, figures_factors, figures_roofline
from harness.reporting.figures_blocks import timeline_drawing
from harness.reporting.figures_roofline import pass_time
from harness.reporting.svg import MOST_ARMS, Drawing

MOST_BATCHES = 3
"""Batch sizes of a part with their own drawings: smallest, one between, largest. The tables have all."""
BLOCKS = 4
"""Blocks in a timeline."""
NOT_DRAWN = "Not drawn"
Shown = list[tuple[Cell, ArmResult]]


def explain_drawings(comparison: Comparison, run: Run, part: str, name: str) -> list[Drawing]:
    """All drawings of ``part``; ``name`` begins their ids."""
    cells = [cell for cell in comparison.cells if cell.part == part and cell.is_summary and cell.arms]
    if not cells:
        return []
    chosen = _chosen(cells)
    telling = [replace(cell, arms=telling_arms(cell, MOST_ARMS)) for cell in chosen]
    shown = _highlighted(comparison, chosen)
    wheres = {cell.batch_size: f", batch {cell.batch_size}" if len(cells) > 1 else "" for cell in chosen}
    missing: list[str] = []
    drawn = [
        *_factors(comparison, run, shown, chosen, name, missing),
        *_acceptance(run, shown, telling, name, missing),
        _or_reason(figures_batch.straggler_loss(cells, f"{name}-rows"), missing, _no_stragglers(cells)),
        *(pass_time(cell, f"{name}-{cell.batch_size}-time", wheres[cell.batch_size]) for cell in chosen),
        *_hardware(cells, telling, name, missing),
        _predicted(shown, chosen, name, missing),
        *(_arms(cell, f"{name}-{cell.batch_size}-accuracy", wheres[cell.batch_size]) for cell in chosen),
        _or_reason(figures_batch.energy_bars(telling, f"{name}-energy"), missing, _no_energy(cells)),
    ]
    found = [drawing for drawing in drawn if drawing is not None]
    return [*found, _not_drawn(missing)] if missing else found


def _chosen(cells: list[Cell]) -> list[Cell]:
    """At most three batch sizes, both ends among them."""
    if len(cells) <= MOST_BATCHES:
        return cells
    ordered = sorted(cells, key=lambda cell: cell.batch_size)
    return [ordered[0], ordered[len(ordered) // 2], ordered[-1]]


def _highlighted(comparison: Comparison, cells: Iterable[Cell]) -> Shown:
    """The arm that answers the question, per batch size."""
    labels = {(one.part, one.batch_size): one.label for one in comparison.highlights}
    wanted = [(cell, labels.get((cell.part, cell.batch_size))) for cell in cells]
    return [(cell, arm) for cell, label in wanted for arm in cell.arms if arm.label == label and not arm.is_ntp]


def _factors(
    comparison: Comparison, run: Run, shown: Shown, cells: list[Cell], name: str, missing: list[str]
) -> list[Drawing | None]:
    """The factors of the speedup."""
    falls = [waterfall_of(cell, arm, claimed_of(comparison, run.header, cell, arm)) for cell, arm in shown]
    drawn = figures_factors.waterfall([fall for fall in falls if fall is not None], f"{name}-waterfall")
    return [_or_reason(drawn, missing, f"From passes to the clock: {_no_factors(shown, cells)}")]


def _predicted(shown: Shown, cells: list[Cell], name: str, missing: list[str]) -> Drawing | None:
    """Whether the speedup was predicted."""
    highlighted = [(cell.batch_size, arm.label) for cell, arm in shown]
    drawn = figures_factors.predicted_measured(residuals(cells), highlighted, f"{name}-predicted")
    return _or_reason(drawn, missing, f"Predicted against measured: {_no_prediction(cells)}")


def _hardware(cells: list[Cell], telling: list[Cell], name: str, missing: list[str]) -> list[Drawing | None]:
    """What a pass moves, under the ceilings."""
    no_time = "the forward passes of this part were not timed one by one"
    drawn = figures_roofline.roofline_plot(roofline_points(cells), cells[0].roofs, f"{name}-roofline")
    moved = figures_batch.bandwidth_bars(bandwidths(telling), f"{name}-bandwidth")
    return [
        _or_reason(drawn, missing, f"Passes under the roofline: {no_time}"),
        _or_reason(moved, missing, f"Bandwidth: {no_time}"),
    ]


def _acceptance(run: Run, shown: Shown, cells: list[Cell], name: str, missing: list[str]) -> list[Drawing | None]:
    """What the passes of the highlighted arm decide, at the smallest batch size, where the order of rows has no effect."""
    drawn: list[Drawing | None] = []
    for cell, arm in [one for one in shown if one[1].method == "sbd"][:1]:
        drawn.append(_timeline(run, cell, arm, f"{name}-timeline", missing))
        blocks = block_passes(run, arm.case_ids)
        if isinstance(blocks, BlockPasses):
            heat = figures_blocks.block_heat_map(arm, blocks, f"{name}-heat")
            drawn.append(heat or figures_blocks.block_counts(arm, blocks, f"{name}-block"))
            missing += [f"Which pass decides which position: {blocks.reason}"] if blocks.reason else []
    return [*drawn, figures_arms.tokens_per_pass(cells[0], f"{name}-tokens")]


def _arms(cell: Cell, name: str, where: str) -> Drawing | None:
    """Point by point, while the points can be told apart."""
    if len(cell.arms) <= MOST_ARMS:
        return figures_arms.speed_accuracy(cell, name, where)
    return figures_arms.ways_compared(ways(cell), cell.timed, name, where)


def _timeline(run: Run, cell: Cell, arm: ArmResult, name: str, missing: list[str]) -> Drawing | None:
    found = timeline(run, cell.part, arm.case_ids, BLOCKS)
    if isinstance(found, Timeline) and found.blocks:
        return timeline_drawing(arm, found, name)
    missing.append(f"Decoded blocks, token by token: {found if isinstance(found, str) else 'the answer has no block'}")
    return None


def _or_reason(drawing: Drawing | None, missing: list[str], reason: str) -> Drawing | None:
    if drawing is None and reason:
        missing.append(reason)
    return drawing


def _no_factors(shown: Shown, cells: list[Cell]) -> str:
    if not cells[0].timed:
        return "this part was not timed"
    if not shown:
        return "no arm besides NTP answers the question here"
    return shown[0][1].pass_parts.forward_s.reason or shown[0][1].wall_speedup_totals.reason or "the factors are not known"


def _no_prediction(cells: list[Cell]) -> str:
    if not cells[0].timed:
        return "this part was not timed"
    reasons = reasons_in_words(cells[0].rung_reasons)
    return "; ".join(f"{rung}: {why}" for rung, why in reasons.items()) or "there is no arm to compare"


def _no_stragglers(cells: list[Cell]) -> str:
    alone = all(cell.batch_size == 1 for cell in cells)
    return "Rows that wait for the slowest: only batch size 1 was run" if alone else "" if cells[0].timed else (
        "Rows that wait for the slowest: this part was not timed"
    )  # fmt: skip


def _no_energy(cells: list[Cell]) -> str:
    reasons = (arm.figures[figures_batch.ENERGY].reason for cell in cells for arm in cell.arms if arm.figures)
    return f"Energy: {next((reason for reason in reasons if reason), 'no arm was metered')}"


def _not_drawn(missing: list[str]) -> Drawing:
    """One line per missing drawing, with its reason."""
    line: Callable[[str], Markup] = Markup("<li>{}</li>").format
    lines = Markup("").join(line(text if text.endswith(".") else f"{text}.") for text in missing)
    return Drawing(heading=NOT_DRAWN, image=Markup('<ul class="not-drawn">{}</ul>').format(lines), caption="", marks=())
