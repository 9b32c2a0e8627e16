"""What the passes of a block decide (by position and pass, and as a timeline), and why a block has its width.

Counts replace the heat map where positions are not recorded. The timeline shows each token with the pass that decided it; it is
HTML, so its text can be searched and its lines break where the page ends. Text from the record is escaped. It draws BlockPasses
and a Timeline and computes no statistic.
"""

from __future__ import annotations

from collections import Counter
from itertools import cycle, product

from markupsafe import Markup
from matplotlib.patches import Rectangle

from harness import formatting
from harness.analysis.evidence.blocks import BlockPasses, Timeline
from harness.analysis.results import ArmResult, Cell
from harness.record.schema import RunHeader, WidthChoice
from harness.reporting.assets import environment
from harness.reporting.svg import BLUE, FAINT, SERIES, VERMILION, Drawing, dot, drawing, name_lines, new_axes, tell

NAMED_SHARE = 0.05
"""Shares below this are coloured but not written."""
WRITTEN = 16
"""Positions of a block; the squares of a longer one are too narrow for a number."""


def block_heat_map(arm: ArmResult, blocks: BlockPasses) -> Drawing | None:
    """Position × pass: the share of blocks in which that pass decided the position; None without positions."""
    shares = blocks.shares
    if shares is None:
        return None
    first, width = shares[0], len(shares[0])
    with new_axes(height_in=max(2.0, 0.8 + 0.26 * len(shares))) as (figure, axes):
        for number, position in product(range(1, len(shares) + 1), range(1, width + 1)):
            share, corner = shares[number - 1][position - 1], (position - 0.47, number - 0.46)
            axes.add_patch(Rectangle(corner, 0.94, 0.92, facecolor="none", edgecolor=FAINT, lw=0.5))
            if share > 0:
                filled = Rectangle(corner, 0.94, 0.92, facecolor=BLUE, alpha=0.06 + 0.5 * share, lw=0)
                tell(axes.add_patch(filled), f"pass {number} decides position {position} in {formatting.percent(share)}")
            if share >= NAMED_SHARE and width <= WRITTEN:
                axes.text(position, number, f"{100 * share:.0f}", ha="center", va="center", fontsize=8)
        axes.set(xlim=(0.45, width + 0.55), xticks=range(1, width + 1, 1 + width // WRITTEN), xlabel="position in the block")
        axes.set(ylim=(len(shares) + 0.55, 0.45), yticks=range(1, len(shares) + 1), ylabel="pass of the block")
        axes.tick_params(length=0)
        axes.set_frame_on(False)
        caption = (
            f"{arm.label}: the first pass decides position 1 in {formatting.percent(first[0], 0)} and position {width} in "
            f"{formatting.percent(first[-1], 0)}; {_reach(blocks)}. In per cent of {formatting.count(blocks.blocks)} blocks."
        )
        return drawing(figure, "Which pass decides which position", caption, _marks(arm))


def block_counts(arm: ArmResult, blocks: BlockPasses) -> Drawing:
    """Positions that pass 1, 2, ... of a block decides, and the share of blocks that reach that pass."""
    with new_axes(height_in=2.5) as (figure, axes):
        numbers = range(1, len(blocks.reached) + 1)
        bars = axes.bar(numbers, blocks.mean_decided, 0.7, color=VERMILION)
        for bar, number, mean, share in zip(bars, numbers, blocks.mean_decided, blocks.reached_share, strict=True):
            tell(bar, f"pass {number}: decides {mean:.1f} positions (mean), {formatting.percent(share)} of blocks take it")
            if len(numbers) <= WRITTEN // 2:
                text = f"{mean:.1f}\n{100 * share:.0f} %"
                axes.annotate(text, (number, mean), (0, 3), textcoords="offset points", ha="center", fontsize=9)
        ticks = range(1, len(numbers) + 1, 1 + len(numbers) // WRITTEN)
        xlabel = "pass of the block (per cent: of blocks that take it)"
        axes.set(xlim=(0.4, max(len(numbers), 4) + 0.6), xticks=ticks, xlabel=xlabel)
        axes.set(ylim=(0, max(blocks.mean_decided) * 1.35), ylabel="positions decided (mean)")
        caption = (
            f"{arm.label}: the first pass of a block decides {blocks.mean_decided[0]:.1f} positions on average; "
            f"{_reach(blocks)}. {formatting.count(blocks.blocks)} blocks, with positions after the end of an answer."
        )
        return drawing(figure, "What each pass of a block decides", caption, _marks(arm))


def _reach(blocks: BlockPasses) -> str:
    again = formatting.percent(blocks.reached_share[1], 0) if len(blocks.reached) > 1 else "none"
    return f"{again} of the blocks take a second pass, the longest takes {len(blocks.reached)}"


def _marks(arm: ArmResult) -> tuple[str, ...]:
    return ("measured", "replayed") if arm.replayed else ("measured",)


LONGEST_TEXT = 12
SEEN = str.maketrans({" ": "·", "\n": "↵", "\t": "→", "\r": "↵"})
"""White space as it is drawn; a token is often only a space."""
STRENGTHS = 6
"""Passes with their own colour; later passes share the last one and show their number."""


def timeline_drawing(arm: ArmResult, found: Timeline) -> Drawing:
    """One line per block, one cell per position."""
    said = timeline_sentence(found)
    template = environment().get_template("timeline.html.j2")
    image = template.render(found=found, said=said, strengths=STRENGTHS, token_text=token_text)
    caption = f"{said} {arm.label}, {found.prompt_id}. Under a token: the pass of its block that decided it; a dot is a space."
    return Drawing(heading="Decoded blocks, token by token", image=Markup(image), caption=caption, marks=_marks(arm))


def timeline_sentence(found: Timeline) -> str:
    """How many tokens each pass of the shown blocks decided."""
    per_pass = Counter(number for block in found.blocks for number in block.decided_in[: len(block.output_ids)] if number)
    tokens, passes = sum(len(block.output_ids) for block in found.blocks), sum(block.passes for block in found.blocks)
    said = ", ".join(f"{count} in pass {number}" for number, count in sorted(per_pass.items()))
    shown = f"{len(found.blocks)} of {found.blocks_in_all} blocks" if found.blocks_in_all > len(found.blocks) else "all blocks"
    took = f"{formatting.count(tokens)} tokens took {formatting.count(passes)} passes"
    return f"{took} ({said} of their block); {shown} of this answer."


def token_text(token: int, texts: dict[int, str]) -> str:
    """The token as it is drawn: its text with visible white space, or its id without text."""
    text = texts.get(token, "").translate(SEEN)
    return (text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…") or f"#{token}"


def cost_by_width(header: RunHeader, cell: Cell) -> Drawing | None:
    """Time of a pass over that of NTP's against its query tokens, a line for each arm; the choice is a diamond."""
    choices = {
        case.label: case.width
        for case in header.cases
        if case.width is not None and (case.part, case.batch_size) == (cell.part, cell.batch_size)
    }
    if not choices:
        return None
    with new_axes() as (figure, axes):
        for colour, (label, choice) in zip(cycle(SERIES), choices.items(), strict=False):
            places = {one.width: (one.query_tokens, one.pass_s / choice.ntp.pass_s) for one in (choice.ntp, *choice.tried)}
            axes.plot(*zip(*places.values(), strict=True), ".-", color=colour, label=label)
            x, y = places[choice.best.width]
            dot(axes, x, y, "D", colour, _width_words(label, choice))
        axes.set(xlabel="query tokens of a pass", ylabel="time of a pass over NTP's", ylim=0)
        name_lines(axes)
        caption = (
            f"{'; '.join(_width_words(*one) for one in choices.items())}. "
            "Chosen before the first sample, on prompts that are not timed."
        )
        return drawing(figure, "Width chosen by the machine", caption, ("measured",))


def _width_words(label: str, choice: WidthChoice) -> str:
    """``SBD k=auto is 3: a pass of 12 tokens costs 1.62x and makes 2.21, expected 1.36x NTP's speed``."""
    best, cost = choice.best, formatting.ratio(choice.best.pass_s / choice.ntp.pass_s)
    return (
        f"{label} is {best.width}: a pass of {best.query_tokens:.3g} tokens costs {cost} and makes {best.tokens_per_pass:.2f}, "
        f"expected {formatting.ratio(choice.gain)} NTP's speed"
    )
