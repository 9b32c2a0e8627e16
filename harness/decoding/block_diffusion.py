"""Decoding as the public families of block models do it, by a BlockProtocol; the rule that picks slots is any solver.

This module has the pass, the same for all; the three layouts (blocks, window, canvas) decide what it feeds and keeps. The mask
token is never written. Slots behind a stop or the length limit are not decided; published code decides them and then cuts them
off. Axes: B rows, w slots of the block, n columns of a segment, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Generator

from torch import Tensor

from harness.decoding.acceptance import Acceptance
from harness.decoding.block_diffusion_blocks import Blocks
from harness.decoding.block_diffusion_canvas import Canvas, Window
from harness.decoding.block_diffusion_feed import Feed, FeedPlan
from harness.decoding.request import DecodeRequest
from harness.decoding.sampling import draw, usable
from harness.decoding.session import ModelSession
from harness.decoding.solvers import BlockView
from harness.models.block_families import BlockProtocol
from harness.record.trace import ForwardPass, Generation

LAYOUTS: dict[str, type[Blocks] | type[Window] | type[Canvas]] = {"blocks": Blocks, "window": Window, "canvas": Canvas}


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
    plan: FeedPlan = LAYOUTS[protocol.layout](request, protocol, block_size, mask_id, acceptance.begin_block)
    session.reset(len(request.prompts), plan.capacity)
    suppressed = request.never_written(mask_id)
    passes: list[ForwardPass] = []
    for feed in plan.feeds():
        passes.append(_pass(session, request, plan, feed, suppressed, acceptance, first=not passes))
        yield passes[-1]
    return Generation(
        passes=tuple(passes),
        prompt_tokens=tuple(map(len, request.prompts)),
        output_ids=tuple(tuple(row.output) for row in plan.rows),
        stop_reasons=tuple(row.stop_reason for row in plan.rows),
    )


def _pass(
    session: ModelSession,
    request: DecodeRequest,
    plan: FeedPlan,
    feed: Feed,
    suppressed: Tensor,
    acceptance: Acceptance,
    first: bool,
) -> ForwardPass:
    context, width = session.context_tokens, session.context_width
    said = _said(session.forward(feed.segments), request, plan, feed, suppressed, acceptance)
    read = [] if said is None else session.read(said)
    session.keep(feed.keeps)
    decided, final = plan.take(feed, read)
    return ForwardPass(
        role="prefill" if first else feed.role,
        query_tokens=feed.query_tokens,
        context_tokens=context,
        logit_tokens=(sum(segment.logits for segment in feed.segments),) * len(context),
        kept_tokens=feed.kept_tokens,
        decided_tokens=decided,
        final_tokens=final,
        active=(True,) * len(context) if first else feed.active,
        padded_query=feed.columns,
        padded_context=width,
    )


def _said(
    logits: Tensor, request: DecodeRequest, plan: FeedPlan, feed: Feed, suppressed: Tensor, acceptance: Acceptance
) -> Tensor | None:
    """What a pass says: (B, w) the tokens of its slots, -1 where none was decided; (B, 1) the next block's first."""
    if feed.says == "nothing":
        return None
    if feed.says == "first slot":
        return draw(usable(logits[:, -1:], suppressed), request.temperature, request.generator)
    of_slots = usable(plan.of_slots(logits), suppressed)
    chosen = acceptance.choose(BlockView(of_slots, plan.asked, request.temperature))
    return plan.write(chosen, draw(of_slots, request.temperature, request.generator))
