"""Lossless self-speculation: the masked head drafts k tokens in one step, the next-token head of the same weights checks them.

Linear: a pass that drafts, then a pass that checks. Quadratic: one pass of k (k + 1) query tokens checks a draft and also
drafts what follows every prefix of it. Only the drafts after the accepted prefix are used. Both are as in NVIDIA's
Nemotron-Labs-Diffusion and TiDAR (arXiv 2511.08923), with the block head of SBD, which predicts its own positions. Axes: B
rows, k slots of a block, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from harness.decoding.acceptance import EverySlot
from harness.decoding.in_turn import InTurn, row_texts
from harness.decoding.request import NOT_CHECKED, Decoder, DecodeRequest, finished, make_pass
from harness.decoding.sampling import NativeFigures, PositionNoise, usable
from harness.decoding.session import ModelSession, Segment, upload
from harness.decoding.verification import NextTokenCheck, VerifiedRow
from harness.decoding.verified_blocks import decode_verified_blocks, start_rows
from harness.frozen import positional
from harness.record.trace import ForwardPass

SIDE_BY_SIDE = InTurn()
WITHOUT_LOSS = NextTokenCheck()


def decode_linear(
    session: ModelSession, request: DecodeRequest, *, block_size: int, mask_id: int, check: NextTokenCheck = WITHOUT_LOSS
) -> Decoder:
    """Two passes an iteration. Yield every pass as it happens; the generator's return value is the whole Generation."""
    return decode_verified_blocks(
        session, request, block_size=block_size, mask_id=mask_id, acceptance=EverySlot(), opens_ahead=False, check=check
    )


def decode_quadratic(
    session: ModelSession,
    request: DecodeRequest,
    *,
    block_size: int,
    mask_id: int,
    in_turn: InTurn = SIDE_BY_SIDE,
    check: NextTokenCheck = WITHOUT_LOSS,
) -> Decoder:
    """One pass an iteration. Yield every pass as it happens; the generator's return value is the whole Generation. The first
    pass checks a block of masks, so it yields only the next-token head's own token and the first draft. ``in_turn``: what
    a slot of a draft is told of those before it. ``check``: what drafts are held against.
    """
    room, noise = request.max_new_tokens + block_size * (block_size + 1), PositionNoise(request, 2 * block_size)
    rows = [VerifiedRow(request.stop, request.max_new_tokens, block_size, mask_id) for _ in request.prompts]
    passes = [start_rows(session, request, rows, mask_id, room, noise)]
    yield passes[-1]
    texts = row_texts(request.prompts, room, request.device)
    by_kernel = request.temperature == 0 and request.figures is NativeFigures
    drafter = _Drafts(request.never_written(mask_id), noise, in_turn, texts, by_kernel)
    while not all(row.ended for row in rows):
        passes.append(_pass(session, request, rows, mask_id, drafter, check))
        yield passes[-1]
    return finished(request, rows, passes)


def _pass(
    session: ModelSession,
    request: DecodeRequest,
    rows: list[VerifiedRow],
    mask_id: int,
    drafter: _Drafts,
    check: NextTokenCheck,
) -> ForwardPass:
    """Check every slot of every row and draft after each of them."""
    active = [not row.ended for row in rows]
    size = len(rows[0].slots)
    drafts = upload([row.slots for row in rows], request.device)
    starts = upload(session.context_tokens, request.device)
    segment = _segment(drafts, starts, mask_id, active)
    logits, made = make_pass(session, [segment], [size * (size + 1) * lives for lives in active])
    kept, decided = [], []
    for index, (row, said) in enumerate(zip(rows, session.read(drafter.said(logits, drafts, starts)), strict=True)):
        checked = NOT_CHECKED if row.ended else row.check(check.heard(index, row.slots, said[:size]))
        kept.append(checked.final)
        decided.append(checked.final - checked.agreed + sum(row.masked))
        row.draft(said[size:])
    session.keep(kept)
    drafter.noise.advance(kept)
    return made.described("verify+draft", kept, decided, kept)


def _segment(drafts: Tensor, starts: Tensor, mask_id: int, active: Sequence[bool]) -> Segment:
    """The drafts (B, k), from ``starts`` (B,) on, then k groups of k masks, group g in the positions after draft g."""
    rows, size = drafts.shape
    slots = torch.arange(size, device=drafts.device)
    of_masks = slots[:, None] + 1 + slots
    fed = size * (size + 1)
    return Segment(
        tokens=torch.cat([drafts, torch.full((rows, size * size), mask_id, device=drafts.device)], dim=1),
        positions=starts[:, None] + torch.cat([slots, of_masks.flatten()]),
        visibility="explicit",
        logits=fed,
        valid=None if all(active) else torch.tensor(active)[:, None].expand(-1, fed),
        seen=who_sees_whom(size),
        adapted=size * size,
    )


def who_sees_whom(size: int) -> Tensor:
    """(Q, Q) bool, Q = k (k + 1). Drafts are causal; the masks of group g see the drafts up to g and their own group."""
    of_draft, of_mask = torch.arange(size), torch.arange(size).repeat_interleave(size)
    seen = torch.zeros(size * (size + 1), size * (size + 1), dtype=torch.bool)
    seen[:, :size] = of_draft <= torch.cat([of_draft, of_mask])[:, None]
    seen[size:, size:] = of_mask == of_mask[:, None]
    return seen


@positional
class _Drafts:
    """What a pass says is drawn with. ``texts`` (B, T): the tokens of every row, and room for more. ``by_kernel``: drafts in
    turn are those of the native kernels.
    """

    suppressed: Tensor
    noise: PositionNoise
    in_turn: InTurn
    texts: Tensor
    by_kernel: bool

    def said(self, logits: Tensor, drafts: Tensor, starts: Tensor) -> Tensor:
        """(B, 2k): the next-token head's draw after every draft, then the drafts of the group after the agreed prefix.
        ``drafts`` (B, k) stand from ``starts`` (B,) on.

        Draft and check of a position are drawn with the same noise; how a draft is found decides only how often it is right.
        """
        logits, size = usable(logits, self.suppressed), drafts.shape[1]
        verdicts = self.noise.draw(logits[:, :size], 0)
        agreed = (drafts[:, 1:] == verdicts[:, :-1]).cumprod(dim=1).sum(dim=1)  # (B,)
        rows = torch.arange(agreed.shape[0], device=agreed.device)
        group = logits[:, size:].reshape(-1, size, size, logits.shape[-1])[rows, agreed]  # (B, k, V)
        if not self.in_turn:
            return torch.cat([verdicts, self.noise.draw(group, agreed)], dim=1)
        # The newest token of the pass before, and what is written now; the next pass writes over what is not.
        places = starts[:, None] + torch.arange(size + 1, device=starts.device)
        self.texts.scatter_(1, places, torch.cat([drafts[:, :1], verdicts], dim=1))
        draw = None if self.by_kernel else lambda scores, slot: self.noise.draw(scores, agreed + slot)
        made = self.in_turn.drafts(group, self.texts, starts + 1 + agreed, draw)
        return torch.cat([verdicts, made], dim=1)
