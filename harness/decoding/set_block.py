"""Set Block Decoding (arXiv 2509.04185, algorithms 2 and 3): a block of masks, made final a set of slots a pass.

The first pass of a block also carries the block before it: its causal half writes that block's exact KV, so committing
costs no pass of its own. In lockstep all rows of a batch open a block together, and a row that has nothing left to
decide waits; ragged, each row goes on to its next block at once, in passes where some rows commit and others do not.
The trace shows both. Slots: positions 0..k-1 of the block.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator
from typing import Literal

import torch
from torch import Tensor

from harness.decoding.acceptance import Acceptance
from harness.decoding.block import BlockRow
from harness.decoding.prefill import prefill, prefill_pass
from harness.decoding.request import DecodeRequest
from harness.decoding.sampling import draw, entropy, usable
from harness.decoding.session import ModelSession, Segment
from harness.trace import ForwardPass, Generation

Batching = Literal["lockstep", "ragged"]


def decode_set_block(
    session: ModelSession,
    request: DecodeRequest,
    *,
    block_size: int,
    mask_id: int,
    acceptance: Acceptance,
    batching: Batching = "lockstep",
) -> Generator[ForwardPass, None, Generation]:
    """Yield every pass as it happens; the generator's return value is the whole Generation."""
    # Every block of the answer, and the masks of the one behind it.
    room = (-(-request.max_new_tokens // block_size) + 1) * block_size
    _, lengths = prefill(session, request.prompts, request.device, room)
    suppressed = torch.tensor(sorted({*request.suppressed_ids, mask_id}), device=request.device)
    rows = [BlockRow(request.stop, request.max_new_tokens, block_size, mask_id) for _ in lengths]
    passes = [prefill_pass(lengths, final_tokens=0)]
    yield passes[-1]
    while _open_blocks(rows, acceptance, batching):
        passes.append(_pass(session, request, rows, suppressed, acceptance))
        yield passes[-1]
    return Generation(
        passes=tuple(passes),
        prompt_tokens=lengths,
        output_ids=tuple(tuple(row.output) for row in rows),
        stop_reasons=tuple(row.stop_reason for row in rows),
    )


def _open_blocks(rows: list[BlockRow], acceptance: Acceptance, batching: Batching) -> bool:
    """Give the next block to the rows whose turn it is: all at once in lockstep, each as soon as it can use it if ragged.

    Returns whether there is anything left to decide.
    """
    deciding = [any(row.masked) for row in rows]
    if batching == "lockstep" and any(deciding):
        return True
    for index, row in enumerate(rows):
        if batching == "lockstep" or not (deciding[index] or row.ended):
            row.open_block()
            acceptance.begin_block(index, sum(row.masked))
    return any(any(row.masked) for row in rows)


def _upload(rows: list[BlockRow], context: tuple[int, ...], commits: tuple[int, ...], device: torch.device) -> Tensor:
    """(5, B, k): the finished blocks and their positions, the open blocks and theirs, and which slots are to be decided.

    One copy to the device a pass. Where a row has no finished block its open one stands in, as padding.
    """
    size = len(rows[0].slots)
    starts = [seen + commit for seen, commit in zip(context, commits, strict=True)]
    numbers: list[int] = []
    for row in rows:
        numbers += row.finished or row.slots
    for start in context:
        numbers += range(start, start + size)
    for row in rows:
        numbers += row.slots
    for start in starts:
        numbers += range(start, start + size)
    for row in rows:
        numbers += row.masked
    # A tensor made of nested lists costs several times as much.
    return torch.frombuffer(array("q", numbers), dtype=torch.long).view(5, len(rows), size).to(device)


def _segments(uploaded: Tensor, commits: tuple[int, ...]) -> list[Segment]:
    """The blocks as they stand, behind the finished blocks of the rows that commit one (padding in the other rows)."""
    before, before_positions, slots, positions, _ = uploaded.unbind()
    size = slots.shape[1]
    block = Segment(tokens=slots, positions=positions, visibility="bidirectional", logits=size)
    if not any(commits):
        return [block]
    valid = None if all(commits) else torch.tensor(commits, device=slots.device)[:, None].bool().expand(-1, size)
    return [Segment(tokens=before, positions=before_positions, visibility="causal", logits=0, valid=valid), block]


def _pass(
    session: ModelSession, request: DecodeRequest, rows: list[BlockRow], suppressed: Tensor, acceptance: Acceptance
) -> ForwardPass:
    """One forward pass with its decision; rows with a finished block commit it in this pass."""
    size = len(rows[0].slots)
    context, width = session.context_tokens, session.context_width
    commits = tuple([0 if row.finished is None else size for row in rows])
    active = tuple([any(row.masked) for row in rows])
    uploaded = _upload(rows, context, commits, request.device)
    logits = session.forward(_segments(uploaded, commits))
    decided = session.read(_sample(logits, uploaded[-1], request, suppressed, acceptance))
    session.keep(commits)
    for row in rows:
        row.finished = None
    final = tuple([row.decide(slots) for row, slots in zip(rows, decided, strict=True)])
    return ForwardPass(
        role="commit+decide" if any(commits) else "decide",
        query_tokens=tuple([commit + size for commit in commits]),
        context_tokens=context,
        logit_tokens=(size,) * len(rows),
        kept_tokens=commits,
        decided_tokens=tuple([size - slots.count(-1) for slots in decided]),
        final_tokens=final,
        active=active,
        padded_query=max(commits) + size,
        padded_context=width,
    )


def _sample(logits: Tensor, masked: Tensor, request: DecodeRequest, suppressed: Tensor, acceptance: Acceptance) -> Tensor:
    """(B, k): the token of every slot that becomes known in this pass, -1 in the others."""
    logits = usable(logits, suppressed)
    chosen = acceptance.choose(entropy(logits, request.temperature), masked.bool())
    return torch.where(chosen, draw(logits, request.temperature, request.generator), -1)
