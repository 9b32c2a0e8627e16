"""Decoding as the public families of block models do it, by a BlockProtocol; the rule that picks slots is any solver.

This module has the pass, the same for all; the three layouts (blocks, window, canvas) decide what it feeds and keeps. The mask
token is never written. Slots behind a stop or the length limit are not decided; published code decides them and then cuts them
off. Axes: B rows, w slots of the block, n columns of a segment, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from harness.decoding.acceptance import Acceptance
from harness.decoding.block_diffusion_blocks import Blocks
from harness.decoding.block_diffusion_canvas import Canvas, Window
from harness.decoding.open_blocks import BlockRow
from harness.decoding.request import DecodeRequest
from harness.decoding.sampling import draw, usable
from harness.decoding.session import ModelSession, Segment, upload
from harness.decoding.solvers import BlockView
from harness.models.block_families import BlockProtocol
from harness.record.trace import ForwardPass, Generation, Role

Said = Literal["slots", "first slot", "nothing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """One pass. ``says``: what its logits are read for: the block's slots, the next block's first slot, or nothing. The first
    pass of a decode is its prefill, whatever ``role`` says.

    ``query_tokens``, ``kept_tokens``  real tokens of each row, fed and kept
    ``keeps``                          columns that the session keeps of each row, padding included
    ``active``                         rows for which the pass does anything
    ``opens``                          whether the next block begins with this pass
    """

    role: Role
    segments: list[Segment]
    query_tokens: tuple[int, ...]
    keeps: tuple[int, ...]
    kept_tokens: tuple[int, ...]
    says: Said
    active: tuple[bool, ...]
    opens: bool = False

    @property
    def columns(self) -> int:
        """Tokens of each row, padding included."""
        return sum(segment.tokens.shape[1] for segment in self.segments)


class FeedPlan(Protocol):
    """The passes of one batch in one layout. After each of ``feeds`` its outcome is handed to ``take``."""

    @property
    def rows(self) -> Sequence[BlockRow]:
        """The rows' progress."""

    @property
    def capacity(self) -> int:
        """Tokens of a row that the session must make room for."""

    @property
    def asked(self) -> Tensor:
        """(B, w) bool: the slots that may be decided in this pass."""

    def feeds(self) -> Iterator[Feed]:
        """Every pass until all rows have ended."""

    def of_slots(self, logits: Tensor) -> Tensor:
        """(B, w, V): those of a pass's logits that predict the block's slots, in their order."""

    def write(self, chosen: Tensor, tokens: Tensor) -> Tensor:
        """Put ``tokens`` (B, w) where ``chosen``; (B, w) the same tokens, -1 elsewhere."""

    def take(self, feed: Feed, tokens: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What was read of a pass, row by row; (decided, final) tokens of each row."""


def right_aligned(rows: Sequence[Sequence[int]], width: int, device: torch.device) -> tuple[Tensor, Tensor | None]:
    """(B, width) ids with padding before the shorter rows, and (B, width) bool on the CPU, False there, or None."""
    ids = [[0] * (width - len(row)) + list(row) for row in rows]
    if all(len(row) == width for row in rows):
        return upload(ids, device), None
    valid = [[False] * (width - len(row)) + [True] * len(row) for row in rows]
    return upload(ids, device), torch.tensor(valid)


def positions_to(ends: Sequence[int], width: int, device: torch.device) -> Tensor:
    """(B, width): consecutive positions that end right before ``ends``; 0 on padding."""
    return (upload(ends, device)[:, None] - width + torch.arange(width, device=device)).clamp(min=0)


def slots_before(logits: Tensor) -> Tensor:
    """(B, w, V) shifted by one: slot i gets the logits of position i - 1. Slot 0 has none of its own and must be known."""
    return torch.cat([logits[:, :1], logits[:, :-1]], dim=1)


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
