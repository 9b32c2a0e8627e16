"""Early exit: a token leaves the target after some of its layers, and the layers above must get its KV some other way.

Copied up (CALM): the upper layers reuse the exit's hidden state, nothing is computed later, the output changes.
Caught up (FREE, AdaDecode): a segment of layers runs all tokens that wait for it as soon as one token goes on through it.
"""

from __future__ import annotations

import math
from itertools import pairwise

from harness.errors import UserError
from harness.record.trace import Role
from harness.roofline.methods.calls import (
    SHARE_TOLERANCE,
    MethodTrace,
    ModelCall,
    Setting,
    probability,
    whole_widths,
    with_layers,
)
from harness.roofline.speedup import describe_pass

# (layers passed, share of the tokens that leave there), in rising order, the last one being the whole model
Exits = tuple[tuple[int, float], ...]


def copied_state(at: Setting, exits: Exits, *, head_at_every_exit: bool) -> MethodTrace:
    """Early exit with the hidden state copied up (CALM, arXiv 2207.07061). In a batch the last row to leave decides.

    ``head_at_every_exit``: the confidence is read off the LM head, which then runs at every exit a token reaches (CALM's
    softmax measure); otherwise off the hidden state, whose small classifier is not priced. The K and V projections of the
    copied state in the layers above are not priced.

    Raises:
        UserError: exits that do not rise to the last layer, or shares that do not add up to 1.
    """
    calls = []
    reached = _reached(at, exits)
    for index, ((below, layer), share) in enumerate(zip(_segments(exits), reached, strict=True)):
        later = reached[index + 1] if index + 1 < len(reached) else 0.0
        if head_at_every_exit:
            calls.append(_segment_call(at, layer - below, 1, 1, share))
        elif share > later:
            calls.append(_segment_call(at, layer, 1, 1, share - later))
    notes = "lossy; K and V of the copied state above the exit are not priced" if len(exits) > 1 else ""
    return MethodTrace(family="early exit, state copied", calls=tuple(calls), notes=notes)


def caught_up(at: Setting, exits: Exits, *, verified: bool, rejected: float = 0.0) -> MethodTrace:
    """Early exit with the deferred layers run later, side by side (FREE, arXiv 2310.05424; AdaDecode, arXiv 2506.03700).

    Exits are independent from token to token, so that between two runs of a segment that a token reaches with probability
    p, 1/p tokens gather for it. In a batch a segment runs as soon as one row needs it, with what all rows have waiting. The
    LM head runs at every exit a token reaches; at the last layer over one token, or over all that came when ``verified``.
    Verified tokens are rejected with probability ``rejected`` each, and what follows a rejected one is lost.

    Raises:
        UserError: as copied_state; no token that goes through all layers; a rejection that is no probability.
    """
    probability("rejected", rejected)
    reached = _reached(at, exits)
    if not reached[-1]:
        raise UserError("no token goes through all layers, so the waiting ones are never caught up; give the last exit a share")
    early = 1 - reached[-1]
    kept = reached[-1] / (1 - (1 - rejected) * early) if verified else 1.0  # tokens emitted per token processed
    calls = []
    for (below, layer), share in zip(_segments(exits), reached, strict=True):
        for width, part in whole_widths(1 / share):
            logits = width if verified and layer == at.target.layers else 1
            calls.append(_segment_call(at, layer - below, width, logits, share * part / kept))
    family = "early exit, caught up and verified" if verified else "early exit, caught up"
    notes = "" if verified or len(exits) == 1 else "lossy"
    return MethodTrace(family=family, calls=tuple(calls), notes=notes)


def _segment_call(at: Setting, layers: int, width: int, logits: int, count: float) -> ModelCall:
    whole = layers == at.target.layers
    role: Role = "verify" if logits > 1 else "decide"
    return ModelCall(
        model="target" if whole else f"{layers} layers of the target",
        shape=with_layers(at.target, layers),
        forward_pass=describe_pass(role, at.batch, width, at.context_tokens, logits=logits, kept=width),
        count_per_token=count,
        share_of_layers=layers / at.target.layers,
    )


def _segments(exits: Exits) -> list[tuple[int, int]]:
    """(layers below, layers passed) of the stretch before each exit."""
    return list(pairwise([0, *(layer for layer, _ in exits)]))


def _reached(at: Setting, exits: Exits) -> list[float]:
    """For each segment, the probability that at least one row of the batch goes through it."""
    layers, shares = [layer for layer, _ in exits], [share for _, share in exits]
    rising = all(low < high for low, high in pairwise([0, *layers]))
    if not exits or not rising or layers[-1] != at.target.layers:
        raise UserError(
            f"exits after layers {layers}: they must rise, and the last one must be the model's last layer, {at.target.layers}"
        )
    if any(not 0 <= share <= 1 for share in shares) or abs(math.fsum(shares) - 1) > SHARE_TOLERANCE:
        raise UserError(f"shares of the exits: given were {shares}, allowed are probabilities that add up to 1")
    goes_on = [max(0.0, 1 - math.fsum(shares[:index])) for index in range(len(shares))]
    return [1 - (1 - min(1.0, chance)) ** at.batch for chance in goes_on]
