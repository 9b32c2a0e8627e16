"""Set Block Decoding without loss: any solver drafts a block, the next-token head of the same weights checks it.

Slot 0 of a block is the newest token of the next-token head, so it is right. A solver drafts the others in passes that keep
nothing. The pass that would commit the full block (causal over its k tokens, arXiv 2509.04185, algorithm 3) then gives the
next-token head's own tokens. Drafts count as far as it agrees, and one token more, its own; exactly their KV is kept. The same
pass feeds the masks of the next block. If the whole block was right, that is the next block's first pass, although slot 0 was
still a mask to it. If not, those masks stand in the wrong place and are forgotten. The first block is drafted after the
prompt's pass, which is the same work as that of next-token prediction.

The output is that of next-token prediction: at temperature 0 token for token, above it in distribution. Every token that counts
is drawn from the next-token head after tokens that count. Every row goes on by itself, so a pass may check some rows and draft
others. DraftedBlocks mirrors the integers of harness.decoding.verification; passes that only draft upload nothing between them.
Axes: B rows, k slots of a block, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from harness.decoding.acceptance import Acceptance
from harness.decoding.open_blocks import DeviceBlocks
from harness.decoding.request import NOT_CHECKED, Checked, Decoder, DecodeRequest, finished, make_pass, prefill, prefill_pass
from harness.decoding.sampling import PositionNoise, usable
from harness.decoding.session import ModelSession, Segment, upload
from harness.decoding.solvers import BlockView
from harness.decoding.verification import NextTokenCheck, VerifiedRow
from harness.frozen import positional
from harness.record.trace import ForwardPass, Role


class DraftedBlocks(DeviceBlocks):
    """The block that every row drafts where the model reads it. ``checks``: rows whose block the next pass checks, up to the
    slots ``ends``. ``opens``: rows among these whose next block the pass also feeds. ``drafts``: rows that feed a block of
    masks and drafts, that one or their own. ``stale``: other slots are to be drafted than the device knows of.
    """

    def __init__(self, block_size: int, mask_id: int, opens_ahead: bool, device: torch.device) -> None:
        self._size, self._mask_id, self._opens_ahead, self._device = block_size, mask_id, opens_ahead, device
        self._slots = torch.arange(block_size, device=device)
        self.stale = True

    def feed(self, rows: Sequence[VerifiedRow], context: Sequence[int]) -> tuple[Role, list[Segment], list[int]]:
        """What the next pass reads after ``context`` committed tokens of each row: blocks to check, then blocks to draft; with
        its role and the tokens of each row.
        """
        self.checks = [row.checking for row in rows]
        self.opens = [self._opens_ahead and row.checking and True in row.masked_next for row in rows]
        self.drafts = [row.drafting or opens for row, opens in zip(rows, self.opens, strict=True)]
        self.ends = [row.end for row in rows]
        if self.stale or any(self.checks):
            self._upload(rows, context)
        self.stale = any(self.checks)  # the rows go on from another place
        role: Role = "verify+draft" if any(self.drafts) else "verify"
        checked = [end * checks for end, checks in zip(self.ends, self.checks, strict=True)]
        drafted = [self._size * drafts for drafts in self.drafts]
        segments = []
        if any(self.checks):
            segments.append(self._segment(self._checked, self._starts[:, :1], checked, causal=True))
        else:
            role = "draft"
        if any(self.drafts):
            segments.append(self._segment(self.tokens, self._starts[:, 1:], drafted, causal=False))
        return role, segments, [*map(sum, zip(checked, drafted, strict=True))]

    def _upload(self, rows: Sequence[VerifiedRow], context: Sequence[int]) -> None:
        """Everything about every row in one copy: where its two blocks begin, what is in them, which slots to draft."""
        size, nothing = self._size, [self._mask_id] * self._size
        table = [
            [
                start,
                start + row.end * opens,
                *row.slots,
                *(nothing if opens else row.slots),
                *(row.masked_next if opens else row.masked),
            ]
            for row, start, opens in zip(rows, context, self.opens, strict=True)
        ]
        held = upload(table, self._device)
        self._starts = held[:, :2]
        self._checked, self.tokens, masked = (held[:, at : at + size] for at in range(2, 2 + 3 * size, size))
        self.masked = masked.bool()

    def _segment(self, tokens: Tensor, starts: Tensor, fed: list[int], *, causal: bool) -> Segment:
        """One block of every row; ``fed`` slots of it count, the others are padding."""
        whole = all(count == self._size for count in fed)
        return Segment(
            tokens=tokens,
            positions=starts + self._slots,
            visibility="causal" if causal else "bidirectional",
            logits=self._size,
            valid=None if whole else torch.arange(self._size) < torch.tensor(fed)[:, None],
        )


def decode_verified_blocks(
    session: ModelSession,
    request: DecodeRequest,
    *,
    block_size: int,
    mask_id: int,
    acceptance: Acceptance,
    opens_ahead: bool = True,
    check: NextTokenCheck | None = None,
    row_type: type[VerifiedRow] = VerifiedRow,
) -> Decoder:
    """Yield every pass as it happens; the generator's return value is the whole Generation.

    ``opens_ahead``: whether the masks of the next block are fed in the pass that checks a block.
    ``check`` and ``row_type``: what drafts are held against, and what that means for a row; by default without loss.
    """
    noise = PositionNoise(request, 2 * block_size)
    rows = [row_type(request.stop, request.max_new_tokens, block_size, mask_id) for _ in request.prompts]
    passes = [start_rows(session, request, rows, mask_id, room=request.max_new_tokens + 2 * block_size, noise=noise)]
    for index, row in enumerate(rows):
        acceptance.begin_block(index, sum(row.masked))
    yield passes[-1]
    suppressed = request.never_written(mask_id)
    blocks = DraftedBlocks(block_size, mask_id, opens_ahead, request.device)
    batch = _Batch(session, request, rows, blocks, suppressed, acceptance, noise, check or NextTokenCheck())
    while not all(row.ended for row in rows):
        passes.append(batch.make_pass())
        yield passes[-1]
    return finished(request, rows, passes)


def start_rows(
    session: ModelSession, request: DecodeRequest, rows: Sequence[VerifiedRow], mask_id: int, room: int, noise: PositionNoise
) -> ForwardPass:
    """Read the prompts and give every row the token that their logits say, where it is final when a block is opened."""
    logits, lengths = prefill(session, request.prompts, request.device, room)
    said = session.read(noise.draw(usable(logits[:, None], request.never_written(mask_id)), 0))
    known = rows[0].KNOWN
    for row, [token] in zip(rows, said, strict=True):
        row.start(token)
    noise.advance([known] * len(rows))
    return prefill_pass(lengths, final_tokens=known)


@positional
class _Batch:
    """What every pass of a decode works with."""

    session: ModelSession
    request: DecodeRequest
    rows: Sequence[VerifiedRow]
    blocks: DraftedBlocks
    suppressed: Tensor
    acceptance: Acceptance
    noise: PositionNoise
    check: NextTokenCheck

    def make_pass(self) -> ForwardPass:
        """One forward pass: rows with a full block have it checked and the next one opened, the others go on drafting."""
        blocks = self.blocks
        role, segments, fed = blocks.feed(self.rows, self.session.context_tokens)
        for index, row in enumerate(self.rows):
            if blocks.opens[index]:
                self.acceptance.begin_block(index, sum(row.masked_next))
        logits, made = make_pass(self.session, segments, fed)
        read = self.session.read(self._sample(usable(logits, self.suppressed)))
        checked, drafted = zip(*(self._take(index, said) for index, said in enumerate(read)), strict=True)
        kept = [outcome.final for outcome in checked]
        self.session.keep(kept)
        self.noise.advance(kept)
        decided = [outcome.final - outcome.agreed + count for outcome, count in zip(checked, drafted, strict=True)]
        return made.described(role, kept, decided, kept)

    def _sample(self, logits: Tensor) -> Tensor:
        """What a pass says, (B, k) or (B, 2k): the draw after each slot of the checked blocks, then this pass's drafts (-1:
        no draft). Draft and check of a position are drawn with the same noise; how a draft is found decides only how often it
        is right.
        """
        blocks, size, known = self.blocks, self.blocks.masked.shape[1], self.rows[0].KNOWN
        said = []
        if any(blocks.checks):
            said.append(self.noise.draw(self.check.verdicts(logits[:, :size]), 1 - known))
        if any(blocks.drafts):
            of_block = logits[:, -size:]
            self.check.drafted(of_block)
            view = BlockView(of_block, blocks.masked, self.request.temperature, self.request.figures)
            first = [end * opens - known for end, opens in zip(blocks.ends, blocks.opens, strict=True)]
            chosen = self.acceptance.choose(view)
            said.append(blocks.decide(chosen, self.check.worth(view, self.noise.draw(of_block, first))))
        return torch.cat(said, dim=1)

    def _take(self, index: int, said: Sequence[int]) -> tuple[Checked, int]:
        """What a pass means for one row: what was checked, and how many drafts of an open block became known."""
        row, blocks, size = self.rows[index], self.blocks, self.blocks.masked.shape[1]
        drafts = said[-size:]
        if not blocks.checks[index]:
            if row.drafting and row.draft(drafts):
                blocks.stale = True
            return NOT_CHECKED, row.known(drafts) if blocks.drafts[index] else 0
        end, checked = row.end, row.check(self.check.heard(index, row.slots, said[:size]))
        if row.ended:
            return checked, 0
        if blocks.opens[index] and checked.final == end:
            row.draft(drafts)
            return checked, row.known(drafts)
        self.acceptance.begin_block(index, sum(row.masked))
        return checked, 0
