"""Set Block Decoding (arXiv 2509.04185, algorithms 2 and 3): a block of masks, made final a set of slots a pass.

The first pass of a block also carries the block before it. Its causal half writes that block's exact KV, so committing costs no
pass of its own. In lockstep all rows of a batch open a block together, and a row that has nothing left to decide waits. Ragged,
each row goes on to its next block at once, in passes where some rows commit and others do not. The trace shows both. Slots:
positions 0..k-1 of the block.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from harness.decoding.acceptance import Acceptance
from harness.decoding.open_blocks import BlockRow, OpenBlocks
from harness.decoding.request import Decoder, DecodeRequest, finished, prefill, prefill_pass
from harness.decoding.sampling import draw, usable
from harness.decoding.session import ModelSession
from harness.decoding.solvers import BlockView
from harness.record.trace import ForwardPass

Batching = Literal["lockstep", "ragged"]


def decode_set_block(
    session: ModelSession,
    request: DecodeRequest,
    *,
    block_size: int,
    mask_id: int,
    acceptance: Acceptance,
    batching: Batching = "lockstep",
) -> Decoder:
    """Yield every pass as it happens; the generator's return value is the whole Generation."""
    # Every block of the answer, and the masks of the one after it.
    room = (-(-request.max_new_tokens // block_size) + 1) * block_size
    _, lengths = prefill(session, request.prompts, request.device, room)
    suppressed = request.never_written(mask_id)
    rows = [BlockRow(request.stop, request.max_new_tokens, block_size, mask_id) for _ in lengths]
    blocks = OpenBlocks(lengths, block_size, mask_id, request.device)
    passes = [prefill_pass(lengths, final_tokens=0)]
    yield passes[-1]
    while True:
        active = [row.deciding for row in rows]
        if not all(active):
            active = _open_blocks(active, rows, blocks, acceptance, batching)
        if not any(active):
            return finished(request, rows, passes)
        passes.append(_pass(session, request, rows, blocks, active, suppressed, acceptance))
        yield passes[-1]


def _open_blocks(
    deciding: list[bool], rows: list[BlockRow], blocks: OpenBlocks, acceptance: Acceptance, batching: Batching
) -> list[bool]:
    """Give the next block to rows: all at once in lockstep, each as soon as it can use it if ragged. Returns which rows have
    anything left to decide.
    """
    if (batching == "lockstep" and any(deciding)) or all(row.ended for row in rows):
        return deciding
    opened = [batching == "lockstep" or not (busy or row.ended) for busy, row in zip(deciding, rows, strict=True)]
    commits = [0] * len(rows)
    for index, row in enumerate(rows):
        if opened[index]:
            commits[index] = row.open_block()
            acceptance.begin_block(index, sum(row.masked))
    if any(opened):
        blocks.open(opened, commits)
        blocks.ask_for([row.masked for row in rows])
    return [row.deciding for row in rows]


def _pass(
    session: ModelSession,
    request: DecodeRequest,
    rows: list[BlockRow],
    blocks: OpenBlocks,
    active: list[bool],
    suppressed: Tensor,
    acceptance: Acceptance,
) -> ForwardPass:
    """One forward pass with its decision; rows with a finished block commit it in this pass."""
    context, width = session.context_tokens, session.context_width
    fed = blocks.feed(active)
    logits = session.forward(fed.segments)
    read = session.read(_sample(logits, blocks, request, suppressed, acceptance))
    session.keep(fed.commits)
    final, decided, cut = [], [], False
    for row, tokens in zip(rows, read, strict=True):  # one loop: each comprehension is a call, and the caches are empty
        final.append(row.decide(tokens))
        decided.append(row.decided)
        cut |= row.cut
    if cut:
        blocks.ask_for([row.masked for row in rows])
    return ForwardPass(
        role=fed.role,
        query_tokens=fed.query_tokens,
        context_tokens=context,
        logit_tokens=blocks.logit_tokens,
        kept_tokens=fed.commits,
        decided_tokens=tuple(map(len, decided)),
        final_tokens=tuple(final),
        active=tuple(active),
        padded_query=fed.padded_query,
        padded_context=width,
        decided_slots=tuple(decided),
    )


def _sample(logits: Tensor, blocks: OpenBlocks, request: DecodeRequest, suppressed: Tensor, acceptance: Acceptance) -> Tensor:
    """(B, k): the token of every slot that becomes known in this pass, -1 in the others."""
    logits = usable(logits, suppressed)
    view = BlockView(logits, blocks.masked, request.temperature, request.figures)
    return blocks.decide(acceptance.choose(view), draw(logits, request) if request.temperature else view.tokens)
