"""Lossless self-speculation: the masked head drafts k tokens in one step, the next-token head of the same weights checks them.

Linear: a pass that drafts, then a pass that checks. Quadratic: one pass of k (k + 1) query tokens checks a draft and also
drafts what follows every prefix of it. Only the drafts behind the accepted prefix are used. Both are as in NVIDIA's
Nemotron-Labs-Diffusion and TiDAR (arXiv 2511.08923), with the block head of SBD, which predicts its own positions. Axes: B
rows, k slots of a block, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import torch
from torch import Tensor

from harness.decoding.acceptance import EverySlot
from harness.decoding.bigram import Bigram
from harness.decoding.passes import make_pass
from harness.decoding.request import NOT_CHECKED, DecodeRequest, finished
from harness.decoding.sampling import PositionNoise, usable
from harness.decoding.session import ModelSession, Segment, upload
from harness.decoding.verification import VerifiedRow
from harness.decoding.verified_blocks import decode_verified_blocks, start_rows
from harness.record.trace import ForwardPass, Generation


def decode_linear(
    session: ModelSession, request: DecodeRequest, *, block_size: int, mask_id: int
) -> Generator[ForwardPass, None, Generation]:
    """Two passes an iteration. Yield every pass as it happens; the generator's return value is the whole Generation."""
    return decode_verified_blocks(
        session, request, block_size=block_size, mask_id=mask_id, acceptance=EverySlot(), opens_ahead=False
    )


def decode_quadratic(
    session: ModelSession, request: DecodeRequest, *, block_size: int, mask_id: int, bigram: Bigram | None = None
) -> Generator[ForwardPass, None, Generation]:
    """One pass an iteration. Yield every pass as it happens; the generator's return value is the whole Generation. The first
    pass checks a block of masks, so it yields only the next-token head's own token and the first draft. ``bigram``: the slots
    of a draft are drawn one behind the other.
    """
    room, noise = request.max_new_tokens + block_size * (block_size + 1), PositionNoise(request, 2 * block_size)
    rows = [VerifiedRow(request.stop, request.max_new_tokens, block_size, mask_id) for _ in request.prompts]
    passes = [start_rows(session, request, rows, mask_id, room, noise)]
    yield passes[-1]
    suppressed = request.never_written(mask_id)
    while not all(row.ended for row in rows):
        passes.append(_pass(session, request, rows, suppressed, mask_id, noise, bigram))
        yield passes[-1]
    return finished(request, rows, passes)


def _pass(
    session: ModelSession, request: DecodeRequest, rows: list[VerifiedRow], suppressed: Tensor, mask_id: int,
    noise: PositionNoise, bigram: Bigram | None,
) -> ForwardPass:  # fmt: skip
    """Check every slot of every row and draft behind each of them."""
    active = [not row.ended for row in rows]
    size = len(rows[0].slots)
    drafts = upload([row.slots for row in rows], request.device)
    segment = _segment(drafts, session.context_tokens, size, mask_id, active)
    logits, made = make_pass(session, [segment], [size * (size + 1) * lives for lives in active])
    kept, decided = [], []
    for row, said in zip(rows, session.read(_sample(usable(logits, suppressed), drafts, noise, bigram)), strict=True):
        one = NOT_CHECKED if row.ended else row.check(said[:size])
        kept.append(one.final)
        decided.append(one.final - one.agreed + sum(row.masked))
        row.draft(said[size:])
    session.keep(kept)
    noise.advance(kept)
    return made.described("verify+draft", kept, decided, kept)


def _segment(drafts: Tensor, context: Sequence[int], size: int, mask_id: int, active: Sequence[bool]) -> Segment:
    """The drafts (B, c), then c groups of ``size`` masks, group g in the positions behind draft g."""
    count = drafts.shape[1]
    masks = torch.full((drafts.shape[0], count * size), mask_id, device=drafts.device)
    starts = upload(context, drafts.device)[:, None]
    clean = torch.arange(count, device=drafts.device)
    behind = clean[:, None] + 1 + torch.arange(size, device=drafts.device)
    return Segment(
        tokens=torch.cat([drafts, masks], dim=1),
        positions=starts + torch.cat([clean, behind.flatten()]),
        visibility="explicit",
        logits=count * (size + 1),
        valid=None if all(active) else torch.tensor(active)[:, None].expand(-1, count * (size + 1)),
        seen=who_sees_whom(count, size),
        adapted=count * size,
    )


def who_sees_whom(count: int, size: int) -> Tensor:
    """(Q, Q) bool, Q = count (size + 1). Drafts are causal; the masks of group g see the drafts up to g and their own group."""
    of_draft, of_mask = torch.arange(count), torch.arange(count).repeat_interleave(size)
    seen = torch.zeros(count * (size + 1), count * (size + 1), dtype=torch.bool)
    seen[:, :count] = of_draft <= torch.cat([of_draft, of_mask])[:, None]
    seen[count:, count:] = of_mask == of_mask[:, None]
    return seen


def _sample(logits: Tensor, drafts: Tensor, noise: PositionNoise, bigram: Bigram | None) -> Tensor:
    """(B, 2k): the next-token head's draw behind every draft, then the drafts of the group behind the agreed prefix.

    Draft and check of a position are drawn with the same noise; how a draft is found decides only how often it is right.
    """
    size = drafts.shape[1]
    verdicts = noise.draw(logits[:, :size], 0)
    agreed = (drafts[:, 1:] == verdicts[:, :-1]).cumprod(dim=1).sum(dim=1)  # (B,)
    rows = torch.arange(agreed.shape[0], device=agreed.device)
    group = logits[:, size:].reshape(-1, size, size, logits.shape[-1])[rows, agreed]  # (B, k, V)
    if bigram is None:
        return torch.cat([verdicts, noise.draw(group, agreed)], dim=1)
    newest = verdicts.gather(1, agreed[:, None])[:, 0]
    return torch.cat([verdicts, bigram.drafts(group, newest, lambda scores, slot: noise.draw(scores, agreed + slot))], dim=1)
