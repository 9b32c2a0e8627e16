"""Next-token prediction: one token a pass, the baseline of every speedup. Also the log-probability of given answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from harness.decoding.request import Decoder, DecodeRequest, padded_segment, prefill, prefill_pass
from harness.decoding.sampling import draw, usable
from harness.decoding.session import NO_NUMBERS, ModelSession, Segment, refuse_no_token, upload
from harness.errors import NoTokenError
from harness.record.trace import ForwardPass, Generation


def decode_next_token(session: ModelSession, request: DecodeRequest) -> Decoder:
    """Yield every pass as it happens; the generator's return value is the whole Generation."""
    one = [1] * len(request.prompts)
    suppressed = request.never_written()
    logits, lengths = prefill(session, request.prompts, request.device, room=request.max_new_tokens)
    tokens = draw(usable(logits[:, None], suppressed), request)  # (B, 1)
    ending, most = request.stop.ending, request.max_new_tokens
    outputs = session.read(tokens)
    for [token] in outputs:
        refuse_no_token(token)
    passes = [prefill_pass(lengths, final_tokens=1)]
    yield passes[-1]
    ended = [ending(out, most) for out in outputs]
    # All at once: a sum in every pass is one more operation after a forward that has emptied the caches.
    starts = upload([[length] for length in lengths], request.device)
    positions = (starts + torch.arange(request.max_new_tokens, device=request.device)[:, None, None]).unbind(0)
    newest = Segment(tokens=tokens, positions=starts, visibility="causal", logits=1)
    while any(reason is None for reason in ended):
        # 1) Feed the newest token of every row.
        context = session.context_tokens
        width = session.context_width
        active = tuple([reason is None for reason in ended])
        newest.tokens, newest.positions, newest.read = tokens, positions[len(passes) - 1], active
        logits = session.forward([newest])
        # 2) Draw the next token of each, read them, and keep their KV, in rows that have ended too.
        tokens = draw(usable(logits, suppressed), request)
        read = session.read(tokens)
        session.keep(one)
        # 3) Write them in the rows that go on.
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


def step_pass(context: tuple[int, ...], width: int, active: tuple[bool, ...]) -> ForwardPass:
    """The trace entry of a pass that feeds one token a row and makes one final in every active row."""
    one = (1,) * len(context)
    made = tuple(map(int, active))
    return ForwardPass(
        role="decide",
        query_tokens=one,
        context_tokens=context,
        logit_tokens=one,
        kept_tokens=one,
        decided_tokens=made,
        final_tokens=made,
        active=active,
        padded_query=1,
        padded_context=width,
    )


Pair = tuple[Sequence[int], Sequence[int]]
"""Ids of a context (at least one) and of what follows it (at least one)."""


class AnswerLogprob(NamedTuple):
    """Natural log of an answer's probability; whether greedy decoding writes it; and how far its tokens are ``behind`` the
    likeliest ones, the sum over its tokens in nats.
    """

    log_p: float
    greedy: bool
    behind: float


def answer_logprobs(
    session: ModelSession, pairs: Sequence[Pair], suppressed_ids: Sequence[int], device: torch.device
) -> list[AnswerLogprob]:
    """Of each pair, what the next-token head says of the second after the first. One causal forward reads both.
    ``suppressed_ids`` have no probability, as for every arm. Sums are taken in float64.

    Raises:
        NoTokenError: the logits are no numbers.
    """
    fed = [[*context, *answer][:-1] for context, answer in pairs]
    ends = [*map(len, fed)]
    longest = max(len(answer) for _, answer in pairs)
    session.reset(len(pairs), max(ends))
    logits = session.forward([padded_segment(fed, ends, device, longest)])
    logits = usable(logits, torch.tensor(sorted(set(suppressed_ids)), dtype=torch.long, device=device))
    found = []
    for row, (_, answer) in enumerate(pairs):
        own = logits[row, longest - len(answer) :]
        wanted = torch.tensor(list(answer), device=device)
        each = torch.log_softmax(own.double(), dim=-1)
        log_p = each.gather(1, wanted[:, None])[:, 0]
        total = float(log_p.sum())
        if math.isnan(total):
            raise NoTokenError(NO_NUMBERS)
        greedy = bool((own.argmax(dim=-1) == wanted).all())
        found.append(AnswerLogprob(total, greedy, float((each.amax(dim=-1) - log_p).sum())))
    return found
