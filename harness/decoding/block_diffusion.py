"""Decoding as the public families of block models do it, by a BlockProtocol; the rule that picks slots is any solver.

This module has the pass, the same for all; the three layouts (blocks, window, canvas) decide what it feeds and keeps. The mask
token is never written. Slots behind a stop or the length limit are not decided; published code decides them and then cuts them
off. Axes: B rows, w slots of the block, n columns of a segment, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Generator

from torch import Tensor

from harness.decoding.acceptance import Acceptance
from harness.decoding.block_diffusion_blocks import Blocks, BlockWork, Feed, Layout
from harness.decoding.block_diffusion_canvas import Canvas, Window
from harness.decoding.passes import make_pass
from harness.decoding.request import DecodeRequest, finished
from harness.decoding.sampling import draw, usable
from harness.decoding.session import ModelSession
from harness.decoding.solvers import BlockView
from harness.models.block_families import BlockProtocol
from harness.record.trace import ForwardPass, Generation, Role

LAYOUTS = {"blocks": Blocks, "window": Window, "canvas": Canvas}


def decode_block_diffusion(
    session: ModelSession,
    request: DecodeRequest,
    *,
    protocol: BlockProtocol,
    block_size: int,
    mask_id: int,
    acceptance: Acceptance,
) -> Generator[ForwardPass, None, Generation]:
    """Yield every pass as it happens; the generator's return value is the whole Generation.

    The first pass is the prefill: what it decides is no decode token, as with the token that a prompt gives NTP.
    """
    work = BlockWork(request, protocol, block_size, mask_id, acceptance.begin_block)
    layout: Layout = LAYOUTS[protocol.layout](work)
    session.reset(len(request.prompts), layout.capacity)
    suppressed = request.never_written(mask_id)
    passes: list[ForwardPass] = []
    for feed in layout.feeds():
        logits, made = make_pass(session, feed.segments, feed.query_tokens)
        said = _said(logits, request, layout, feed, suppressed, acceptance)
        read = [] if said is None else session.read(said)
        session.keep(feed.keeps)
        active = tuple([row.deciding if feed.says == "slots" else not row.ended for row in layout.rows])
        decided, final = layout.take(feed, read)
        role: Role = "commit+decide" if any(feed.kept_tokens) else "decide"
        passes.append(made.described(role if passes else "prefill", feed.kept_tokens, decided, final, active))
        yield passes[-1]
    return finished(request, layout.rows, passes)


def _said(
    logits: Tensor, request: DecodeRequest, layout: Layout, feed: Feed, suppressed: Tensor, acceptance: Acceptance
) -> Tensor | None:
    """What a pass says: (B, w) the tokens of its slots, -1 where none was decided; (B, 1) the next block's first."""
    if feed.says == "nothing":
        return None
    if feed.says == "first slot":
        return draw(usable(logits[:, -1:], suppressed), request)
    of_slots = usable(layout.of_slots(logits), suppressed)
    chosen = acceptance.choose(BlockView(of_slots, layout.asked, request.temperature, request.figures))
    return layout.decide(chosen, draw(of_slots, request))
