"""The timeline of a few decoded blocks: the tokens in their order, each with the pass that decided it. A table, not an image,
so that it is read and searched as text; every text from the record is escaped.

Knows a Timeline only.
"""

from __future__ import annotations

from collections import Counter

from markupsafe import Markup, escape

from harness import formatting
from harness.analysis.blocks import DecodedBlock, Timeline
from harness.analysis.results import ArmResult
from harness.reporting.drawing import Drawing

LONGEST_TEXT = 12
SEEN = str.maketrans({" ": "·", "\n": "↵", "\t": "→", "\r": "↵"})
"""White space as it is drawn: a token is often nothing but a space."""
STRENGTHS = 6
"""Passes that have a colour of their own; later ones share the last, and the number says which."""


def timeline_drawing(arm: ArmResult, found: Timeline, name: str) -> Drawing:
    """One line per block, one cell per position."""
    size = max(len(block.decided_in) for block in found.blocks)
    head = Markup("").join(Markup('<th scope="col">{}</th>').format(position) for position in range(1, size + 1))
    lines = Markup("").join(_line(number, block, found) for number, block in enumerate(found.blocks, start=1))
    image = Markup(
        '<table class="timeline" id="{}" aria-label="{}"><thead><tr><th scope="col">Block</th>{}</tr></thead>'
        "<tbody>{}</tbody></table>"
    ).format(name, timeline_sentence(found), head, lines)
    caption = (
        f"{timeline_sentence(found)} {arm.label}, first row of {found.prompt_id}: the number under a token is the pass of its "
        "block that decided it; a dot is a space, and after the stop nothing counts."
    )
    marks = ("measured", "replayed") if arm.replayed else ("measured",)
    return Drawing(heading="Decoded blocks, token by token", image=image, caption=caption, marks=marks)


def timeline_sentence(found: Timeline) -> str:
    """How many tokens the passes of the blocks that are shown decided."""
    per_pass = Counter(number for block in found.blocks for number in block.decided_in[: len(block.output_ids)] if number)
    tokens, passes = sum(len(block.output_ids) for block in found.blocks), sum(block.passes for block in found.blocks)
    said = ", ".join(f"{count} in pass {number}" for number, count in sorted(per_pass.items()))
    shown = f"{len(found.blocks)} of {found.blocks_in_all} blocks" if found.blocks_in_all > len(found.blocks) else "all blocks"
    return f"{formatting.count(tokens)} tokens took {formatting.count(passes)} passes ({said} of their block); {shown} of this answer."


def _line(number: int, block: DecodedBlock, found: Timeline) -> Markup:
    passes = f"{block.passes} pass{'es' if block.passes > 1 else ''}"
    cells = Markup("").join(_cell(block, position, found) for position in range(len(block.decided_in)))
    return Markup('<tr><th scope="row">{}<small>{}</small></th>{}</tr>').format(number, passes, cells)


def _cell(block: DecodedBlock, position: int, found: Timeline) -> Markup:
    decided = block.decided_in[position]
    if position >= len(block.output_ids):
        behind = "not asked for" if decided is None else f"decided in pass {decided}, behind the end"
        return Markup('<td class="behind" title="{}">{}</td>').format(behind, "–" if decided is None else f"({decided})")
    token, stop = block.output_ids[position], block.stops and position == len(block.output_ids) - 1
    text = Markup("<b>stop</b>") if stop and not found.texts.get(token) else escape(token_text(token, found.texts))
    colour, said = min(decided or 1, STRENGTHS), f"decided in pass {decided}, final in pass {block.final_in[position]}"
    cell = Markup('<td class="pass-{}{}" title="{}"><code>{}</code><small>{}</small></td>')
    return cell.format(colour, " stop" if stop else "", said, text, decided)


def token_text(token: int, texts: dict[int, str]) -> str:
    """The token as it is drawn: its text with white space seen, or its id where it has none."""
    text = texts.get(token, "").translate(SEEN)
    return (text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…") or f"#{token}"
