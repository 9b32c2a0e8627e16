"""The prompt pass, the same work for every arm: causal, left-padded, the prompt kept, logits of its last token.

What an arm does beyond it, drafting included, is a pass of its own behind it: time that NTP does not need is decode time.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from harness.decoding.session import ModelSession, Segment
from harness.decoding.uploading import upload
from harness.record.trace import ForwardPass


def prefill(
    session: ModelSession, prompts: Sequence[Sequence[int]], device: torch.device, room: int
) -> tuple[Tensor, tuple[int, ...]]:
    """Feed the prompts, with ``room`` tokens behind the longest; returns the (B, V) logits after each and their lengths."""
    lengths = tuple(len(p) for p in prompts)
    tokens, real = left_padded(prompts, device)
    width = tokens.shape[1]
    positions = upload((real.cumsum(dim=1) - 1).clamp(min=0), device)
    valid = None if min(lengths) == width else real
    session.reset(len(prompts), width + room)
    logits = session.forward([Segment(tokens=tokens, positions=positions, visibility="causal", logits=1, valid=valid)])
    session.keep([width] * len(prompts))
    return logits[:, -1], lengths


def left_padded(prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """(B, W) ids with padding before the shorter prompts; and bool, on the CPU, True on what is a prompt's own."""
    width = max(map(len, prompts))
    ids = [[0] * (width - len(p)) + list(p) for p in prompts]
    real = [[False] * (width - len(p)) + [True] * len(p) for p in prompts]
    return upload(ids, device), torch.tensor(real)


def prefill_pass(lengths: tuple[int, ...], final_tokens: int) -> ForwardPass:
    """The trace entry of a prompt pass that made ``final_tokens`` output tokens final in every row."""
    rows = len(lengths)
    return ForwardPass(
        role="prefill",
        query_tokens=lengths,
        context_tokens=(0,) * rows,
        logit_tokens=(1,) * rows,
        kept_tokens=lengths,
        decided_tokens=(final_tokens,) * rows,
        final_tokens=(final_tokens,) * rows,
        active=(True,) * rows,
        padded_query=max(lengths),
        padded_context=0,
    )
