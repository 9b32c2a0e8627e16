"""Next-token prediction: one token a pass. The baseline every speedup is a ratio to."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import torch

from harness.decoding.prefill import prefill, prefill_pass
from harness.decoding.request import DecodeRequest
from harness.decoding.sampling import draw, usable
from harness.decoding.session import ModelSession, Segment
from harness.trace import ForwardPass, Generation, StopReason


def decode_next_token(session: ModelSession, request: DecodeRequest) -> Generator[ForwardPass, None, Generation]:
    """Yield every pass as it happens; the generator's return value is the whole Generation."""
    one = [1] * len(request.prompts)
    suppressed = torch.tensor(request.suppressed_ids, device=request.device)
    logits, lengths = prefill(session, request.prompts, request.device, room=request.max_new_tokens)
    tokens = draw(usable(logits[:, None], suppressed), request.temperature, request.generator)  # (B, 1)
    outputs: list[list[int]] = [[token] for [token] in session.read(tokens)]
    passes = [prefill_pass(lengths, final_tokens=1)]
    yield passes[-1]
    ended = [stop_reason(out, request) for out in outputs]
    positions = torch.tensor([[length] for length in lengths], device=request.device)
    while any(reason is None for reason in ended):
        context = session.context_tokens
        width = session.context_width
        logits = session.forward([Segment(tokens=tokens, positions=positions, visibility="causal", logits=1)])
        tokens = draw(usable(logits, suppressed), request.temperature, request.generator)
        read = session.read(tokens)
        session.keep(one)
        positions = positions + 1  # every row, ended or not: nothing to copy to the device
        active = tuple([reason is None for reason in ended])
        for row, [token] in enumerate(read):
            if active[row]:
                outputs[row].append(token)
                ended[row] = stop_reason(outputs[row], request)
        passes.append(step_pass(context, width, active))
        yield passes[-1]
    return Generation(
        passes=tuple(passes),
        prompt_tokens=lengths,
        output_ids=tuple(map(tuple, outputs)),
        stop_reasons=tuple(reason for reason in ended if reason is not None),
    )


def stop_reason(output: Sequence[int], request: DecodeRequest) -> StopReason | None:
    """Why a row ends at its newest token, or None."""
    if request.stop.stops_at(output, len(output) - 1) is not None:
        return "stop"
    return "length" if len(output) == request.max_new_tokens else None


def step_pass(context: tuple[int, ...], width: int, active: tuple[bool, ...]) -> ForwardPass:
    """The trace entry of a pass that feeds one token a row and makes one final in every active row."""
    one = (1,) * len(context)
    made = tuple(map(int, active))
    return ForwardPass(
        role="decide", query_tokens=one, context_tokens=context, logit_tokens=one, kept_tokens=one,
        decided_tokens=made, final_tokens=made, active=active, padded_query=1, padded_context=width,
    )  # fmt: skip
