"""Next-token prediction: one token a pass. The baseline every speedup is a ratio to."""

from __future__ import annotations

from collections.abc import Generator

import torch
from torch import Tensor

from harness.decoding.greedy_sample import next_tokens
from harness.decoding.passes import prefill, prefill_pass
from harness.decoding.request import DecodeRequest
from harness.decoding.sampling import draw, refuse_no_token, usable
from harness.decoding.session import ModelSession, Segment
from harness.decoding.uploading import upload
from harness.record.trace import ForwardPass, Generation


def decode_next_token(session: ModelSession, request: DecodeRequest) -> Generator[ForwardPass, None, Generation]:
    """Yield every pass as it happens; the generator's return value is the whole Generation."""
    one = [1] * len(request.prompts)
    suppressed = request.never_written()
    logits, lengths = prefill(session, request.prompts, request.device, room=request.max_new_tokens)
    tokens = _sample(logits[:, None], request, suppressed)  # (B, 1)
    ending, most = request.stop.ending, request.max_new_tokens
    outputs: list[list[int]] = session.read(tokens)
    for [token] in outputs:
        refuse_no_token(token)
    passes = [prefill_pass(lengths, final_tokens=1)]
    yield passes[-1]
    ended = [ending(out, most) for out in outputs]
    # All at once: a sum in every pass would be one more operation behind a forward that has emptied the caches.
    starts = upload([[length] for length in lengths], request.device)
    positions = (starts + torch.arange(request.max_new_tokens, device=request.device)[:, None, None]).unbind(0)
    newest = Segment(tokens=tokens, positions=starts, visibility="causal", logits=1)
    while any(reason is None for reason in ended):
        context = session.context_tokens
        width = session.context_width
        active = tuple([reason is None for reason in ended])
        newest.tokens, newest.positions, newest.read = tokens, positions[len(passes) - 1], active
        logits = session.forward([newest])
        tokens = _sample(logits, request, suppressed)
        read = session.read(tokens)
        session.keep(one)  # every row's, ended or not
        for row, [token] in enumerate(read):
            if active[row]:
                refuse_no_token(token)
                outputs[row].append(token)
                ended[row] = ending(outputs[row], most)
        passes.append(step_pass(context, width, active))
        yield passes[-1]
    return Generation(
        passes=tuple(passes),
        prompt_tokens=lengths,
        output_ids=tuple(map(tuple, outputs)),
        stop_reasons=tuple(reason for reason in ended if reason is not None),
    )


def _sample(logits: Tensor, request: DecodeRequest, suppressed: Tensor) -> Tensor:
    """(B, 1): the next token of every row."""
    logits = usable(logits, suppressed)
    if request.fuse is not None and request.temperature == 0:
        return request.fuse(next_tokens, logits)[0]
    return draw(logits, request.temperature, request.generator)


def step_pass(context: tuple[int, ...], width: int, active: tuple[bool, ...]) -> ForwardPass:
    """The trace entry of a pass that feeds one token a row and makes one final in every active row."""
    one = (1,) * len(context)
    made = tuple(map(int, active))
    return ForwardPass(
        role="decide", query_tokens=one, context_tokens=context, logit_tokens=one, kept_tokens=one,
        decided_tokens=made, final_tokens=made, active=active, padded_query=1, padded_context=width,
    )  # fmt: skip
