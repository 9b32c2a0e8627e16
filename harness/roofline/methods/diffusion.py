"""Diffusion language models: whole sequences without a KV cache, approximate caches, blocks, and prefixes of blocks."""

from __future__ import annotations

from harness.errors import UserError
from harness.models import ModelShape
from harness.roofline.methods.calls import MethodTrace, PricedAt, at_least, other_call, target_call, whole_widths


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
    again = min(window, at.context_tokens)
    draft = target_call(
        at,
        "draft",
        1 / tokens_per_pass,
        query=again + lookahead,
        logits=lookahead,
        kept=again,
        context=at.context_tokens - again,
    )
    check = other_call(at, "auxiliary", auxiliary, "verify", 1 / tokens_per_pass, query=lookahead, logits=lookahead)
    return MethodTrace(family="diffusion with an auxiliary model", calls=(draft, check))
