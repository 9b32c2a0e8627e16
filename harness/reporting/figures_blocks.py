"""What the passes of a block decide: positions by pass as a heat map, or, where positions are not recorded, counts by pass.

Draws BlockPasses; computes no statistic.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from harness import formatting
from harness.analysis.blocks import BlockPasses
from harness.analysis.results import ArmResult
from harness.reporting import svg
from harness.reporting.drawing import Drawing

NAMED_SHARE = 0.05
"""Shares below this are coloured but not written."""


def block_heat_map(arm: ArmResult, blocks: BlockPasses, name: str) -> Drawing | None:
    """Position in the block × pass: the share of blocks in which that pass decided the position; None without positions."""
    shares = blocks.shares
    if shares is None:
        return None
    with svg.styled():
        figure, axes = svg.new_axes(height_in=1.2 + 0.3 * len(shares))
        for number, line in enumerate(shares, start=1):
            _heat_line(axes, number, line)
        axes.set_xlim(0.45, len(shares[0]) + 0.55)
        axes.set_ylim(len(shares) + 0.55, 0.45)
        axes.set_xticks(range(1, len(shares[0]) + 1))
        axes.set_yticks(range(1, len(shares) + 1))
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.set_xlabel("position in the block")
        axes.set_ylabel("pass of the block")
        caption = heat_sentence(arm, blocks)
        image = svg.to_inline(figure, name, caption)
    return Drawing(heading="Which pass decides which position", image=image, caption=caption, marks=_marks(arm))


def _heat_line(axes: Axes, number: int, line: tuple[float, ...]) -> None:
    for position, share in enumerate(line, start=1):
        corner = (position - 0.47, number - 0.46)
        axes.add_patch(Rectangle(corner, 0.94, 0.92, facecolor="none", edgecolor=svg.FAINT, lw=0.5))
        if share > 0:
            axes.add_patch(Rectangle(corner, 0.94, 0.92, facecolor=svg.BLUE, alpha=0.06 + 0.5 * share, lw=0))
        if share >= NAMED_SHARE:
            axes.text(position, number, f"{100 * share:.0f}", ha="center", va="center", fontsize=8.5)


def heat_sentence(arm: ArmResult, blocks: BlockPasses) -> str:
    """What the first pass decides at either end of the block, and how long the longest block took."""
    assert blocks.shares is not None, "there are positions to speak of"
    first = blocks.shares[0]
    return (
        f"{arm.label}: the first pass decides position 1 in {formatting.percent(first[0], 0)} and position {len(first)} in "
        f"{formatting.percent(first[-1], 0)} of the blocks where they are decided; {_reach(blocks)}. "
        f"Numbers are per cent of {formatting.count(blocks.blocks)} blocks, each column adds up to 100."
    )


def block_counts(arm: ArmResult, blocks: BlockPasses, name: str) -> Drawing:
    """Positions that the first, second, ... pass of a block decides, and the share of blocks that take so many passes."""
    with svg.styled():
        figure, axes = svg.new_axes(height_in=2.8)
        numbers = range(1, len(blocks.reached) + 1)
        axes.bar(numbers, blocks.mean_decided, 0.7, color=svg.VERMILION)
        for number, mean, share in zip(numbers, blocks.mean_decided, blocks.reached_share, strict=True):
            text = f"{mean:.1f}\n{100 * share:.0f} %"
            axes.annotate(text, (number, mean), (0, 3), textcoords="offset points", ha="center", fontsize=8.5)
        axes.set_ylim(0, max(blocks.mean_decided) * 1.35)
        axes.set_xlim(0.4, max(len(blocks.reached), 4) + 0.6)
        axes.set_xticks(list(numbers))
        axes.set_xlabel("pass of the block (below the mean: share of blocks that take it)")
        axes.set_ylabel("positions decided (mean)")
        caption = (
            f"{arm.label}: the first pass of a block decides {blocks.mean_decided[0]:.1f} positions on average; "
            f"{_reach(blocks)}. Means over {formatting.count(blocks.blocks)} blocks; positions behind the end of an answer count."
        )
        image = svg.to_inline(figure, name, caption)
    return Drawing(heading="What each pass of a block decides", image=image, caption=caption, marks=_marks(arm))


def _reach(blocks: BlockPasses) -> str:
    again = formatting.percent(blocks.reached_share[1], 0) if len(blocks.reached) > 1 else "none"
    return f"{again} of the blocks take a second pass, the longest takes {len(blocks.reached)}"


def _marks(arm: ArmResult) -> tuple[str, ...]:
    return ("measured", "replayed") if arm.replayed else ("measured",)
