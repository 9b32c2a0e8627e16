"""How decoding without loss begins and ends: the prompts are read and, in the same pass, the first block is drafted.

The masks of the first block ride along behind the prompt as those of every later block ride along behind the block before,
so that no first draft costs a pass of its own; they are k more query tokens of the prefill. Slot 0 of that block is the token
that the prompt's own logits give, as in next-token prediction. Axes: B rows, k slots of a block, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from harness.decoding.acceptance import Acceptance
from harness.decoding.block_view import BlockView
from harness.decoding.draft_check import DraftCheck
from harness.decoding.position_noise import PositionNoise
from harness.decoding.prefill import prefill_pass, prefill_with
from harness.decoding.request import DecodeRequest
from harness.decoding.sampling import usable
from harness.decoding.session import ModelSession, Segment
from harness.decoding.verified_row import VerifiedRow
from harness.trace import ForwardPass


def start_rows(
    session: ModelSession,
    request: DecodeRequest,
    *,
    block_size: int,
    mask_id: int,
    room: int,
    noise: PositionNoise,
    acceptance: Acceptance | None,
    check: DraftCheck,
    row_type: type[VerifiedRow],
) -> tuple[list[VerifiedRow], ForwardPass]:
    """Read the prompts and give every row its first token; ``acceptance`` drafts the first block, None: nobody does yet."""
    rows = [row_type(request.stop, request.max_new_tokens, block_size, mask_id) for _ in request.prompts]
    lengths = tuple(map(len, request.prompts))
    masked = torch.tensor([row.masked_first for row in rows], device=request.device)  # (B, k)
    drafts = acceptance is not None and bool(masked.any())
    masks = [_first_block(lengths, block_size, mask_id, request.device)] if drafts else []
    logits = prefill_with(session, request.prompts, request.device, room, masks)
    logits = usable(logits, request.never_written(mask_id))
    said = noise.draw(logits[:, :1], 0)
    if drafts and acceptance is not None:
        for index, row in enumerate(rows):
            acceptance.begin_block(index, sum(row.masked_first))
        check.drafted(logits[:, 1:])
        view = BlockView(logits[:, 1:], masked, request.temperature)
        chosen = acceptance.choose(view)
        tokens = check.worth(view, noise.draw(logits[:, 1:], 0))
        said = torch.cat([said, torch.where(chosen, tokens, -1)], dim=1)
    decided = [_take(row, *tokens) for row, tokens in zip(rows, session.read(said), strict=True)]
    noise.advance([row_type.KNOWN] * len(rows))
    return rows, _with_masks(prefill_pass(lengths, final_tokens=row_type.KNOWN), block_size if drafts else 0, decided)


def _first_block(lengths: Sequence[int], size: int, mask_id: int, device: torch.device) -> Segment:
    """A block of masks behind every prompt."""
    starts = torch.tensor(lengths, device=device)[:, None]
    return Segment(
        tokens=torch.full((len(lengths), size), mask_id, device=device),
        positions=starts + torch.arange(size, device=device), visibility="bidirectional", logits=size,
    )  # fmt: skip


def _take(row: VerifiedRow, token: int, *drafts: int) -> int:
    """What the prompt pass means for one row; how many tokens became known by it."""
    row.start(token)
    if row.ended or not drafts:
        return row.KNOWN
    row.draft(drafts)
    return row.KNOWN + row.known(drafts)


def _with_masks(one: ForwardPass, masks: int, decided: Sequence[int]) -> ForwardPass:
    """The prompt pass with so many masks behind every prompt."""
    return one._replace(
        query_tokens=tuple([tokens + masks for tokens in one.query_tokens]),
        logit_tokens=tuple([tokens + masks for tokens in one.logit_tokens]), decided_tokens=tuple(decided),
        padded_query=one.padded_query + masks,
    )  # fmt: skip
