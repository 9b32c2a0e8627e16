"""How likely the next-token head finds a given answer: one causal forward over prompts with their answers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from harness.decoding.passes import left_padded
from harness.decoding.sampling import NO_NUMBERS, usable
from harness.decoding.session import ModelSession, Segment
from harness.decoding.uploading import upload
from harness.errors import NoTokenError

Pair = tuple[Sequence[int], Sequence[int]]
"""Ids of a context (at least one) and of what follows it (at least one)."""


def log_likelihoods(
    session: ModelSession, pairs: Sequence[Pair], suppressed_ids: Sequence[int], device: torch.device
) -> list[tuple[float, bool]]:
    """Per pair, natural log of the probability that the next-token head writes the second after the first, and whether it is
    what greedy decoding would write.

    ``suppressed_ids`` have no probability, as for every arm. Sums are taken in float64.

    Raises:
        NoTokenError: the logits are no numbers.
    """
    fed = [[*context, *answer][:-1] for context, answer in pairs]
    tokens, real = left_padded(fed, device)
    longest = max(len(answer) for _, answer in pairs)
    session.reset(len(pairs), tokens.shape[1])
    logits = session.forward([
        Segment(
            tokens=tokens, positions=upload((real.cumsum(dim=1) - 1).clamp(min=0), device), visibility="causal", logits=longest,
            valid=None if bool(real.all()) else real,
        )
    ])  # fmt: skip
    logits = usable(logits, torch.tensor(sorted(set(suppressed_ids)), dtype=torch.long, device=device))
    found = []
    for row, (_, answer) in enumerate(pairs):
        own = logits[row, longest - len(answer) :]
        wanted = torch.tensor(list(answer), device=device)
        log_p = torch.log_softmax(own.double(), dim=-1).gather(1, wanted[:, None])
        total = float(log_p.sum())
        if math.isnan(total):
            raise NoTokenError(NO_NUMBERS)
        found.append((total, bool((own.argmax(dim=-1) == wanted).all())))
    return found
