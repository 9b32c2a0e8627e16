"""Methods whose target emits tokens or blocks without a draft model: NTP, SBD, next block, chunks, pruning, diffusion.

Verified SBD is priced by how often the next-token head agrees with a draft. Agreement is taken as independent from slot to
slot, as in speculative decoding (arXiv 2211.17192, section 3.1). In split computing other layers lie after a network, so every
pass of the target pays a round trip.

Diffusion language models come in several forms: whole sequences without a KV cache, approximate caches, blocks, and prefixes of
blocks.
"""

from __future__ import annotations

import math
from dataclasses import replace

from harness.errors import UserError
from harness.models import ModelShape
from harness.record.trace import Role
from harness.roofline.methods.calls import (
    MethodTrace,
    ModelCall,
    PricedAt,
    at_least,
    other_call,
    probability,
    target_call,
    whole_widths,
)
from harness.roofline.methods.speculative import expected_tokens


def _after_fed_again(at: PricedAt, role: Role, count_per_token: float, again: int, block_size: int) -> ModelCall:
    """The pass of a block that feeds up to ``again`` tokens of the context once more and keeps their KV."""
    kept = min(again, at.context_tokens)
    context = at.context_tokens - kept
    return target_call(at, role, count_per_token, query=kept + block_size, logits=block_size, kept=kept, context=context)


def next_token(at: PricedAt) -> MethodTrace:
    """Next-token prediction: one target pass of one query token per token."""
    return MethodTrace(family="next token", calls=(target_call(at, "decide", 1.0, query=1, logits=1, kept=1),))


def set_block(at: PricedAt, *, block_size: int, passes_per_block: float) -> MethodTrace:
    """SBD, equation 16 of arXiv 2509.04185: per block one pass of 2k query tokens and l - 1 passes of k.

    The first pass keeps the KV of the block before, which is not in the cache yet. A block of one token is not NTP: its
    pass still feeds the token before it and a mask.

    Raises:
        UserError: a block below 1, or passes outside 1 to the block size.
    """
    at_least("block size", block_size, 1)
    if not 1 <= passes_per_block <= block_size:
        raise UserError(f"passes per block: given was {passes_per_block:g}, allowed are 1 to the block size, {block_size}")
    first = _after_fed_again(at, "commit+decide", 1 / block_size, block_size, block_size)
    later = target_call(at, "decide", (passes_per_block - 1) / block_size, query=block_size, logits=block_size)
    return MethodTrace(family="set block", calls=(first, later))


def next_block(at: PricedAt, *, block_size: int, tokens_per_pass: float | None = None) -> MethodTrace:
    """Each token of a block predicts the one at its place in the next block (arXiv 2502.07737): rows or frames of a video.

    A pass over a block keeps its KV and gives the whole next block. Where ``tokens_per_pass`` is below the block size, the new
    block is refined by passes of its own, which keep nothing. A block of one token is NTP exactly.

    Raises:
        UserError: a block below 1, tokens per pass outside 1 to the block size.
    """
    at_least("block size", block_size, 1)
    per_pass = block_size if tokens_per_pass is None else tokens_per_pass
    if not 1 <= per_pass <= block_size:
        raise UserError(f"tokens per pass: given were {per_pass:g}, allowed are 1 to the block size, {block_size}")
    first = target_call(at, "commit+decide", 1 / block_size, query=block_size, logits=block_size, kept=block_size)
    again = target_call(at, "decide", 1 / per_pass - 1 / block_size, query=block_size, logits=block_size)
    return MethodTrace(family="next block", calls=(first, again) if again.count_per_token > 0 else (first,))


def chunks(at: PricedAt, *, tokens_per_pass: int) -> MethodTrace:
    """One vector per chunk of tokens (continuous CALM, arXiv 2510.27688): one pass per chunk, a cache entry per chunk.

    A decoder with a head over the vocabulary reads the chunk's tokens off the vector. It is priced as the target's LM head at
    that many positions.

    Raises:
        UserError: a chunk below 1 token.
    """
    at_least("tokens per chunk", tokens_per_pass, 1)
    call = target_call(
        at, "decide", 1 / tokens_per_pass, query=1, logits=tokens_per_pass, kept=1, context=at.context_tokens // tokens_per_pass
    )
    notes = "" if tokens_per_pass == 1 else "the generative head and the autoencoder's layers are not priced"
    return MethodTrace(family="chunks of tokens", calls=(call,), notes=notes)


def pruned_decoding(at: PricedAt, *, width_share: float) -> MethodTrace:
    """The target reads the prompt, a pruned model writes (OverFill, arXiv 2508.08446): NTP with another decoder.

    The prefill is the target's own, the same as that of NTP, and like it not part of the decode.
    """
    decoder = pruned(at.target, width_share=width_share)
    call = other_call(at, "pruned", decoder, "decide", 1.0, query=1, logits=1)
    return MethodTrace(family="prefill and decode of different widths", calls=(call,), notes="not the target's own output")


def pruned(shape: ModelShape, *, width_share: float) -> ModelShape:
    """``shape`` with this share of its hidden and intermediate widths (experts included); heads and layers stay (OverFill).

    Raises:
        UserError: the share is not above 0 and at most 1.
    """
    if not 0 < width_share <= 1:
        raise UserError(f"width share: given was {width_share:g}, allowed is above 0 and at most 1")
    hidden, intermediate = int(shape.hidden * width_share), int(shape.intermediate * width_share)
    experts = shape.moe and shape.moe.model_copy(update={"intermediate": max(1, int(shape.moe.intermediate * width_share))})
    changed = {"name": f"{shape.name}, width {width_share:g}", "hidden": max(1, hidden), "intermediate": max(1, intermediate)}
    return shape.model_copy(update=changed | {"moe": experts})


def verified_set_block(at: PricedAt, *, block_size: int, draft_passes: float, acceptance: float) -> MethodTrace:
    """Equation 16 of arXiv 2509.04185 for checked blocks.

    Per block, one pass of 2k query tokens checks it and opens the next. A full draft takes ``draft_passes`` of k tokens, less
    the one in the check. Slot 0 is the next-token head's own, so a check covers k - 1 drafts. It gains E = (1 - a^k) / (1 - a)
    tokens, one of them the head's. The masks in the check are the next block's first draft pass only where the whole block was
    right, with probability a^(k-1). Otherwise their positions are wrong, and a pass of its own opens the block. At a = 1 this
    is equation 16 with l = ``draft_passes``, token for token.

    Args:
        draft_passes: mean passes until all slots of a block are drafted, the first included.
        acceptance: probability that the head agrees with a draft after drafts that it agreed with.

    Raises:
        UserError: a block below 1, passes outside 1 to the block size, or no probability.
    """
    at_least("block size", block_size, 1)
    if not 1 <= draft_passes <= block_size:
        raise UserError(f"draft passes: given was {draft_passes:g}, allowed are 1 to the block size, {block_size}")
    drafts = block_size - 1
    gained = expected_tokens(probability("acceptance", acceptance), drafts)
    before = max(0, at.context_tokens - 1)  # slot 0 is known, its KV is written by the check
    check = target_call(
        at, "verify+draft", 1 / gained, query=2 * block_size, logits=2 * block_size, kept=block_size, context=before
    )
    passes = draft_passes - acceptance**drafts
    draft = target_call(at, "draft", passes / gained, query=block_size, logits=block_size, context=before)
    return MethodTrace(family="verified set block", calls=(check, draft), notes="agreement independent from slot to slot")


STATE_BYTES = 2
BITS_PER_BYTE, BITS_PER_MEGABIT, MS_PER_S = 8, 1e6, 1e3


def over_a_link(
    at: PricedAt, *, round_trip_ms: float, megabits_per_s: float, block_size: int | None = None, nfe_speedup: float = 1.0
) -> MethodTrace:
    """NTP, or SBD with a block size, where the hidden states of every pass go to another machine and come back.

    First and last layers with embedding and LM head are on this side, as in arXiv 2602.16760. So a pass sends the hidden state
    of every query token out, in 16 bits, and gets as many back. Nothing of a pass overlaps with its link.

    Raises:
        UserError: no round trip or rate above 0; see set_block.
    """
    if not (0 < round_trip_ms < math.inf and 0 < megabits_per_s < math.inf):
        raise UserError(f"got a round trip of {round_trip_ms:g} ms at {megabits_per_s:g} Mbit/s; allowed are figures above 0")
    inner = (
        next_token(at)
        if block_size is None
        else set_block(at, block_size=block_size, passes_per_block=block_size / nfe_speedup)
    )

    def seconds(call: ModelCall) -> float:
        states = call.forward_pass.rows * call.forward_pass.padded_query
        bits = 2 * states * at.target.hidden * STATE_BYTES * BITS_PER_BYTE
        return round_trip_ms / MS_PER_S + bits / (megabits_per_s * BITS_PER_MEGABIT)

    link_s = sum(call.count_per_token * seconds(call) for call in inner.calls)
    notes = "both sides are priced as this one device"
    return replace(inner, family=f"{inner.family} over a link", notes=notes, link_s_per_token=link_s)


def whole_sequence(at: PricedAt, *, new_tokens: int, passes: float) -> MethodTrace:
    """No KV cache: every pass feeds the whole sequence, prompt and answer slots (LLaDA, Dream as published).

    Raises:
        UserError: sizes below 1.
    """
    at_least("new tokens", new_tokens, 1)
    at_least("passes", passes, 1)
    call = target_call(at, "decide", passes / new_tokens, query=at.context_tokens + new_tokens, logits=new_tokens, context=0)
    return MethodTrace(family="diffusion without KV cache", calls=(call,))


def approximate_cache(at: PricedAt, *, new_tokens: int, block_size: int, passes_per_block: float) -> MethodTrace:
    """An approximate KV cache (Fast-dLLM, arXiv 2505.22618), refreshed by a pass over everything at the start of a block.

    Later passes feed the block and all slots after it. Logits are wanted in the block only.

    Raises:
        UserError: sizes below 1, a block that does not divide the new tokens, fewer than one pass per block.
    """
    at_least("block size", block_size, 1)
    at_least("passes per block", passes_per_block, 1)
    if new_tokens < 1 or new_tokens % block_size:
        raise UserError(f"given were {new_tokens} new tokens in blocks of {block_size}; allowed are whole blocks, at least one")
    total = at.context_tokens + new_tokens
    calls = []
    for start in range(0, new_tokens, block_size):
        fed = new_tokens - start
        calls.append(target_call(at, "decide", 1 / new_tokens, query=total, logits=block_size, kept=total, context=0))
        calls.append(
            target_call(at, "decide", (passes_per_block - 1) / new_tokens, query=fed, logits=block_size, context=total - fed)
        )
    return MethodTrace(family="diffusion with approximate KV cache", calls=tuple(calls))


def block_diffusion(at: PricedAt, *, block_size: int, passes_per_block: float, drafts: int) -> MethodTrace:
    """Blocks with an exact KV cache of the blocks before: passes that decide, then one that stores the block's KV.

    ``drafts``: nested drafts checked side by side, each a copy of the block (FreeDave, arXiv 2510.00294).

    Raises:
        UserError: sizes below 1.
    """
    at_least("block size", block_size, 1)
    at_least("drafts", drafts, 1)
    decide_passes = at_least("deciding passes per block", passes_per_block - 1, 1)
    width = block_size * drafts
    decide = target_call(at, "decide", decide_passes / block_size, query=width, logits=width)
    store = target_call(at, "commit+decide", 1 / block_size, query=block_size, logits=0, kept=block_size)
    return MethodTrace(family="block diffusion", calls=(decide, store))


def longest_prefix(at: PricedAt, *, block_size: int, tokens_per_pass: float) -> MethodTrace:
    """A block drafted anew after every pass; its longest confident prefix stays (SDLM, arXiv 2509.24007).

    A pass feeds the tokens of the pass before, whose KV it keeps, the last of them once more, and block_size - 1 masks. A
    block of one token is NTP exactly: no mask, so nothing to feed twice.

    Raises:
        UserError: a block below 1, tokens per pass outside 1 to the block size.
    """
    at_least("block size", block_size, 1)
    if not 1 <= tokens_per_pass <= block_size:
        raise UserError(f"tokens per pass: given were {tokens_per_pass:g}, allowed are 1 to the block size, {block_size}")
    drafted = block_size if block_size > 1 else 0
    calls = tuple(
        target_call(
            at,
            "commit+decide",
            part / tokens_per_pass,
            query=kept + drafted,
            logits=block_size,
            kept=kept,
            context=max(0, at.context_tokens + 1 - kept),
        )
        for kept, part in whole_widths(tokens_per_pass)
    )
    return MethodTrace(family="block diffusion, longest prefix", calls=calls)


def with_auxiliary(at: PricedAt, *, auxiliary: ModelShape, window: int, lookahead: int, tokens_per_pass: float) -> MethodTrace:
    """A diffusion model drafts left to right, a small autoregressive model accepts (APD, arXiv 2506.00413).

    A pass feeds the last ``window`` tokens again and ``lookahead`` masks, over an approximate cache of what lies before. The
    auxiliary model reads the drafted tokens in one pass.

    Raises:
        UserError: a lookahead below 1, a window below 0, tokens per pass outside 1 to the lookahead.
    """
    at_least("lookahead", lookahead, 1)
    at_least("window", window, 0)
    if not 1 <= tokens_per_pass <= lookahead:
        raise UserError(f"tokens per pass: given were {tokens_per_pass:g}, allowed are 1 to the lookahead, {lookahead}")
    draft = _after_fed_again(at, "draft", 1 / tokens_per_pass, window, lookahead)
    check = other_call(at, "auxiliary", auxiliary, "verify", 1 / tokens_per_pass, query=lookahead, logits=lookahead)
    return MethodTrace(family="diffusion with an auxiliary model", calls=(draft, check))
