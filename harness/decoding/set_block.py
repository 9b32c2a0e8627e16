"""Set Block Decoding (arXiv 2509.04185, algorithms 2 and 3): a block of masks, made final a set of slots a pass.

The first pass of a block also carries the block before it: its causal half writes that block's exact KV, so committing
costs no pass of its own. Rows of a batch go through their blocks in lockstep; a row that has nothing left to decide
waits, and the trace shows it. Slots: positions 0..k-1 of the block.
"""

from __future__ import annotations

from collections.abc import Generator

import torch
from torch import Tensor

from harness.decoding.acceptance import Acceptance
from harness.decoding.block import BlockRow
from harness.decoding.prefill import prefill, prefill_pass
from harness.decoding.request import DecodeRequest
from harness.decoding.sampling import draw, entropy, usable
from harness.decoding.session import ModelSession, Segment
from harness.trace import ForwardPass, Generation


def decode_set_block(
    session: ModelSession, request: DecodeRequest, *, block_size: int, mask_id: int, acceptance: Acceptance
) -> Generator[ForwardPass, None, Generation]:
    """Yield every pass as it happens; the generator's return value is the whole Generation."""
    _, lengths = prefill(session, request.prompts, request.device)
    passes = [prefill_pass(lengths, final_tokens=0)]
    yield passes[-1]
    suppressed = torch.tensor(sorted({*request.suppressed_ids, mask_id}), device=request.device)
    rows = [BlockRow(request.stop, request.max_new_tokens, block_size, mask_id) for _ in lengths]
    finished: Tensor | None = None
    while not all(row.ended for row in rows):
        for row in rows:
            row.open_block()
        acceptance.begin_block([sum(row.masked()) for row in rows])
        while any(any(row.masked()) for row in rows):
            forward_pass = _pass(session, request, rows, finished, suppressed, acceptance)
            finished = None
            passes.append(forward_pass)
            yield forward_pass
        finished = _tokens(rows, request.device)
    return Generation(
        passes=tuple(passes),
        prompt_tokens=lengths,
        output_ids=tuple(tuple(row.output) for row in rows),
        stop_reasons=tuple(row.stop_reason for row in rows),
    )


def _tokens(rows: list[BlockRow], device: torch.device) -> Tensor:
    """The block as it stands, (B, k)."""
    return torch.tensor([row.slots for row in rows], device=device)


def _pass(
    session: ModelSession,
    request: DecodeRequest,
    rows: list[BlockRow],
    finished: Tensor | None,
    suppressed: Tensor,
    acceptance: Acceptance,
) -> ForwardPass:
    """One forward pass with its decision; ``finished`` is the block before, where this pass has to commit it."""
    tokens = _tokens(rows, request.device)
    size = tokens.shape[1]
    context, width = session.context_tokens, session.context_width
    offsets = torch.arange(size, device=request.device)
    start = torch.tensor(context, device=request.device)[:, None]
    commit = 0 if finished is None else size
    block = Segment(tokens=tokens, positions=start + commit + offsets, visibility="bidirectional", logits=size)
    segments = [block]
    if finished is not None:
        segments.insert(0, Segment(tokens=finished, positions=start + offsets, visibility="causal", logits=0))
    logits = usable(session.forward(segments), suppressed)
    session.keep([commit] * len(rows))
    masked = torch.tensor([row.masked() for row in rows], device=request.device)
    chosen = acceptance.choose(entropy(logits, request.temperature), masked)
    drawn = draw(logits, request.temperature, request.generator)
    # One readback a pass: -1 where nothing was decided.
    decided = torch.where(chosen, drawn, -1).tolist()
    active = tuple(any(row.masked()) for row in rows)
    final = tuple(row.decide(slots) for row, slots in zip(rows, decided, strict=True))
    everyone = (1,) * len(rows)
    return ForwardPass(
        role="decide" if finished is None else "commit+decide",
        query_tokens=tuple((commit + size) * n for n in everyone),
        context_tokens=context,
        logit_tokens=tuple(size * n for n in everyone),
        kept_tokens=tuple(commit * n for n in everyone),
        decided_tokens=tuple(sum(token >= 0 for token in slots) for slots in decided),
        final_tokens=final,
        active=active,
        padded_query=commit + size,
        padded_context=width,
    )
