"""Self-speculation, the known forms of decoding a block model without loss: the masked head drafts k tokens in one step, the
next-token head of the same weights checks them.

Linear: a pass that drafts, then a pass that checks. Quadratic: one pass that checks a draft and, behind every prefix of it,
already drafts what would follow, of which only the drafts behind the accepted prefix are used: k (k + 1) query tokens. Both
as in NVIDIA's Nemotron-Labs-Diffusion and TiDAR (arXiv 2511.08923), with the block head of SBD, which predicts its own
positions. Axes: B rows, k slots of a block, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import torch
from torch import Tensor

from harness.decoding.block_view import BlockView
from harness.decoding.request import DecodeRequest
from harness.decoding.sampling import draw, usable
from harness.decoding.session import ModelSession, Segment
from harness.decoding.verified_blocks import decode_verified_blocks, finished, never_written, start_rows
from harness.decoding.verified_row import VerifiedRow
from harness.trace import ForwardPass, Generation


class EverySlot:
    """The acceptance of a one-step draft: all masked slots at once."""

    def begin_block(self, row: int, masked: int) -> None:
        """Nothing to remember."""

    def choose(self, view: BlockView) -> Tensor:
        """(B, k) bool: every masked slot."""
        return view.masked


def decode_linear(
    session: ModelSession, request: DecodeRequest, *, block_size: int, mask_id: int
) -> Generator[ForwardPass, None, Generation]:
    """Two passes an iteration. Yield every pass as it happens; the generator's return value is the whole Generation."""
    return decode_verified_blocks(
        session, request, block_size=block_size, mask_id=mask_id, acceptance=EverySlot(), opens_ahead=False
    )


def decode_quadratic(
    session: ModelSession, request: DecodeRequest, *, block_size: int, mask_id: int
) -> Generator[ForwardPass, None, Generation]:
    """One pass an iteration. Yield every pass as it happens; the generator's return value is the whole Generation.

    The first pass has no draft to check: it feeds one token and one group of masks.
    """
    room = request.max_new_tokens + block_size * (block_size + 1)
    rows, prompt = start_rows(session, request, block_size, mask_id, room)
    passes = [prompt]
    yield prompt
    suppressed = never_written(request, mask_id)
    checked = 1
    while not all(row.ended for row in rows):
        passes.append(_pass(session, request, rows, suppressed, mask_id, checked))
        yield passes[-1]
        checked = block_size
    return finished(rows, passes)


def _pass(
    session: ModelSession, request: DecodeRequest, rows: list[VerifiedRow], suppressed: Tensor, mask_id: int, checked: int
) -> ForwardPass:
    """Check the first ``checked`` slots of every row and draft behind each of them."""
    context, width = session.context_tokens, session.context_width
    active = tuple([not row.ended for row in rows])
    size = len(rows[0].slots)
    fed = checked * (size + 1)
    drafts = torch.tensor([row.slots[:checked] for row in rows], device=request.device)
    segment = _segment(drafts, context, size, mask_id, active)
    logits = usable(session.forward([segment]), suppressed)
    kept, decided = [], []
    for row, said in zip(rows, session.read(_sample(logits, drafts, size, request)), strict=True):
        one = None if row.ended else row.check(said[:checked])
        drafted = sum(row.masked)
        row.draft(said[checked:])
        kept.append(0 if one is None else one.final)
        decided.append(0 if one is None else one.final - one.agreed + drafted)
    session.keep(kept)
    return ForwardPass(
        role="verify+draft",
        query_tokens=tuple([fed * lives for lives in active]),
        context_tokens=context,
        logit_tokens=(fed,) * len(rows),
        kept_tokens=tuple(kept),
        decided_tokens=tuple(decided),
        final_tokens=tuple(kept),
        active=active,
        padded_query=fed,
        padded_context=width,
    )


def _segment(drafts: Tensor, context: Sequence[int], size: int, mask_id: int, active: Sequence[bool]) -> Segment:
    """The drafts (B, c), then c groups of ``size`` masks, group g in the positions behind draft g."""
    count = drafts.shape[1]
    masks = torch.full((drafts.shape[0], count * size), mask_id, device=drafts.device)
    starts = torch.tensor(context, device=drafts.device)[:, None]
    clean = torch.arange(count, device=drafts.device)
    behind = clean[:, None] + 1 + torch.arange(size, device=drafts.device)
    return Segment(
        tokens=torch.cat([drafts, masks], dim=1),
        positions=starts + torch.cat([clean, behind.flatten()]),
        visibility="explicit",
        logits=count * (size + 1),
        valid=None if all(active) else torch.tensor(active)[:, None].expand(-1, count * (size + 1)),
        seen=who_sees_whom(count, size),
    )


def who_sees_whom(count: int, size: int) -> Tensor:
    """(Q, Q) bool, Q = count (size + 1): drafts are causal; the masks of group g see the drafts up to g and their own group."""
    causal = torch.ones(count, count, dtype=torch.bool).tril()
    seen = torch.zeros(count * (size + 1), count * (size + 1), dtype=torch.bool)
    seen[:count, :count] = causal
    seen[count:, :count] = causal.repeat_interleave(size, dim=0)
    seen[count:, count:] = torch.eye(count, dtype=torch.bool).repeat_interleave(size, dim=0).repeat_interleave(size, dim=1)
    return seen


def _sample(logits: Tensor, drafts: Tensor, size: int, request: DecodeRequest) -> Tensor:
    """(B, c + k): the next-token head's draw behind every draft, then the drafts of the group behind the agreed prefix.

    A draft is the likeliest token at any temperature: how it was found changes nothing but how often it is right.
    """
    count = drafts.shape[1]
    verdicts = draw(logits[:, :count], request.temperature, request.generator)
    agreed = (drafts[:, 1:] == verdicts[:, :-1]).cumprod(dim=1).sum(dim=1)  # (B,)
    groups = logits[:, count:].argmax(dim=-1).reshape(-1, count, size)
    return torch.cat([verdicts, groups[torch.arange(groups.shape[0], device=groups.device), agreed]], dim=1)
