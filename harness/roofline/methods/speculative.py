"""Speculative decoding, early exit and multi-head drafting: a draft is proposed and the target verifies or completes it.

* Draft models: one model proposes, or a hierarchy of them, and the target verifies in one pass. Acceptance is taken as
  independent from token to token (Leviathan et al., arXiv 2211.17192, section 3.1).
* Early exit: a token leaves the target after some of its layers. Copied up (CALM): the upper layers reuse the exit's hidden
  state, nothing is computed later, the output changes. Caught up (FREE, AdaDecode): a segment of layers runs all waiting
  tokens as soon as one token goes on through it.
* Multi-head drafting: a tree of candidates is drafted from the target's own states and verified in one target pass.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise

from harness.errors import UserError
from harness.frozen import frozen
from harness.models import ModelShape
from harness.models.shape import with_layers
from harness.record.trace import Role
from harness.roofline.methods.calls import (
    SHARE_TOLERANCE,
    MethodTrace,
    ModelCall,
    PricedAt,
    at_least,
    other_call,
    probability,
    target_call,
    whole_widths,
)

# (drafter, width of its pass) -> expected passes
Passes = Mapping[tuple[int, int], float]


@frozen
class PricedDrafter:
    """A draft model: how many tokens the model above it asks for, and the probability that it accepts one.

    Raises:
        UserError: fewer than 0 tokens, or no probability.
    """

    shape: ModelShape
    drafted_tokens: int
    acceptance: float

    def __post_init__(self) -> None:
        at_least("drafted tokens", self.drafted_tokens, 0)
        probability("acceptance", self.acceptance)


def expected_tokens(acceptance: float, drafted: int) -> float:
    """Tokens per verifying pass: (1 - a^(g+1)) / (1 - a), equation 1 of arXiv 2211.17192; g + 1 at a = 1."""
    return float(sum(acceptance**position for position in range(drafted + 1)))


def speculative(at: PricedAt, *, auxiliary: ModelShape, drafted_tokens: int, acceptance: float) -> MethodTrace:
    """Per round ``drafted_tokens`` passes of the draft model and one of the target over all of them and one more token.

    That is the cost of theorem 3.8 of arXiv 2211.17192. No draft at all is NTP exactly. A draft model that stops by its
    confidence makes fewer of these passes and somewhat more of the target's; that needs its confidences and is not modelled.

    Raises:
        UserError: see PricedDrafter.
    """
    return hierarchy(at, (PricedDrafter(shape=auxiliary, drafted_tokens=drafted_tokens, acceptance=acceptance),))


def hierarchy(at: PricedAt, drafters: tuple[PricedDrafter, ...]) -> MethodTrace:
    """A stack of draft models, the largest first (HSD, arXiv 2510.19705): each but the last is itself sped up by the next.

    To make n tokens a drafter lets the next one draft, verifies, and continues after what it accepted. It asks for at most
    min(g, n - 1) tokens, because its own pass adds one. The counts are exact expected values of that protocol. The draft's
    own catch-up after a fully accepted round is not counted, as in theorem 3.8.

    Raises:
        UserError: no drafter.
    """
    if not drafters:
        raise UserError("a hierarchy needs at least one draft model; for none use next_token")
    drafted = drafters[0].drafted_tokens
    per_round = expected_tokens(drafters[0].acceptance, drafted)
    verify = target_call(
        at, "verify" if drafted else "decide", 1 / per_round, query=drafted + 1, logits=drafted + 1, kept=drafted + 1
    )
    made = _passes_to_make(drafters, 0, drafted)
    calls = [verify]
    for (index, width), count in sorted(made.items()):
        name = "draft" if len(drafters) == 1 else f"draft {index + 1}"
        calls.append(other_call(at, name, drafters[index].shape, "draft", count / per_round, query=width, logits=width))
    family = "draft model" if len(drafters) == 1 else "hierarchy of draft models"
    return MethodTrace(family=family, calls=tuple(calls), notes="acceptance independent from token to token")


def outcomes(acceptance: float, drafted: int) -> Iterator[tuple[int, float]]:
    """(tokens gained, probability) of one verification: the accepted prefix and one token of the verifier."""
    for accepted in range(drafted):
        yield accepted + 1, acceptance**accepted * (1 - acceptance)
    yield drafted + 1, acceptance**drafted


def _passes_to_make(drafters: tuple[PricedDrafter, ...], index: int, tokens: int) -> Passes:
    """Expected passes of drafter ``index`` and all below it, by width, until exactly ``tokens`` tokens are made."""
    if index == len(drafters) - 1:
        return {(index, 1): float(tokens)} if tokens else {}
    below = drafters[index + 1]
    passes: defaultdict[tuple[int, int], float] = defaultdict(float)
    visits = defaultdict(float, {tokens: 1.0})  # tokens still lacking -> expected number of times this comes up
    for lacking in range(tokens, 0, -1):
        often = visits[lacking]
        drafted = min(below.drafted_tokens, lacking - 1)
        passes[index, drafted + 1] += often
        for key, count in _passes_to_make(drafters, index + 1, drafted).items():
            passes[key] += often * count
        for gained, chance in outcomes(below.acceptance, drafted):
            visits[lacking - gained] += often * chance
    return passes


# (layers passed, share of the tokens that leave there), in rising order, the last one being the whole model
Exits = tuple[tuple[int, float], ...]


def copied_state(at: PricedAt, exits: Exits) -> MethodTrace:
    """Early exit with the hidden state copied up (CALM, arXiv 2207.07061). In a batch the last row to leave decides.

    The confidence comes from the hidden state; its small classifier is not priced. Nor are the K and V projections of the
    copied state in the layers above.

    Raises:
        UserError: exits that do not rise to the last layer, or shares that do not add up to 1.
    """
    reached = [*_reached(at, exits), 0.0]
    calls = [
        _segment_call(at, layer, 1, 1, share - later)
        for (layer, _), (share, later) in zip(exits, pairwise(reached), strict=True)
        if share > later
    ]
    notes = "lossy; K and V of the copied state above the exit are not priced" if len(exits) > 1 else ""
    return MethodTrace(family="early exit, state copied", calls=tuple(calls), notes=notes)


def caught_up(at: PricedAt, exits: Exits, *, verified: bool, rejected: float = 0.0) -> MethodTrace:
    """Early exit with the deferred layers run later, side by side (FREE, arXiv 2310.05424; AdaDecode, arXiv 2506.03700).

    Exits are independent from token to token. So 1/p tokens gather between two runs of a segment that a token reaches with
    probability p. In a batch a segment runs as soon as one row needs it, with all waiting tokens of all rows. The LM head
    runs at every exit a token reaches; at the last layer over one token, or over all that came when ``verified``. Verified
    tokens are rejected with probability ``rejected`` each, and what follows a rejected one is lost.

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
    for (below, layer), share in zip(pairwise([0, *(layer for layer, _ in exits)]), reached, strict=True):
        for width, part in whole_widths(1 / share):
            logits = width if verified and layer == at.target.layers else 1
            calls.append(_segment_call(at, layer - below, width, logits, share * part / kept))
    family = "early exit, caught up and verified" if verified else "early exit, caught up"
    notes = "" if verified or len(exits) == 1 else "lossy"
    return MethodTrace(family=family, calls=tuple(calls), notes=notes)


def _segment_call(at: PricedAt, layers: int, width: int, logits: int, count: float) -> ModelCall:
    model = "target" if layers == at.target.layers else f"{layers} layers of the target"
    return other_call(
        at,
        model,
        with_layers(at.target, layers),
        "verify" if logits > 1 else "decide",
        count,
        query=width,
        logits=logits,
        share_of_layers=layers / at.target.layers,
    )


def _reached(at: PricedAt, exits: Exits) -> list[float]:
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


def tree_drafting(
    at: PricedAt,
    *,
    tree_tokens: int,
    tokens_per_pass: float,
    drafter_layers: int | None = None,
    drafter_intermediate_of_hidden: float | None = None,
    drafter_passes: int | None = None,
    drafter_query_tokens: int = 1,
) -> MethodTrace:
    """One target pass over ``tree_tokens`` query tokens emits ``tokens_per_pass``; a small drafter runs between them, once or
    ``drafter_passes`` times.

    ``tree_tokens`` counts the root, the token known already; a tree of one token is NTP exactly. Without a drafter the
    candidates come out of the target pass itself (Hidden Transfer, arXiv 2404.12022). All tokens of the tree get a K and
    V, those of rejected branches to be overwritten.

    Raises:
        UserError: sizes below 1, more tokens per pass than the tree has, passes of no drafter.
    """
    at_least("tree tokens", tree_tokens, 1)
    at_least("drafter query tokens", drafter_query_tokens, 1)
    if not 1 <= tokens_per_pass <= tree_tokens:
        raise UserError(f"tokens per pass: given were {tokens_per_pass:g}, allowed are 1 to the tree's {tree_tokens} tokens")
    role: Role = "verify" if tree_tokens > 1 else "decide"
    calls = [target_call(at, role, 1 / tokens_per_pass, query=tree_tokens, logits=tree_tokens, kept=tree_tokens)]
    if drafter_layers is not None:
        drafter = small_drafter(at.target, layers=drafter_layers, intermediate_of_hidden=drafter_intermediate_of_hidden)
        count = at_least("drafter passes", 1 if drafter_passes is None else drafter_passes, 1) / tokens_per_pass
        query = drafter_query_tokens
        calls.append(other_call(at, "drafter", drafter, "draft", count, query=query, logits=query))
    elif drafter_passes is not None:
        raise UserError("a drafter and its passes go together: give both, or neither")
    return MethodTrace(family="multi-head drafting", calls=tuple(calls))


def small_drafter(target: ModelShape, *, layers: int, intermediate_of_hidden: float | None) -> ModelShape:
    """A drafter with the target's widths and vocabulary, few layers, and if said so its own dense feed-forward width.

    Raises:
        UserError: no layer, or no feed-forward width.
    """
    at_least("drafter layers", layers, 1)
    shape = with_layers(target, layers)
    if intermediate_of_hidden is None:
        return shape
    intermediate = int(at_least("drafter feed-forward width", target.hidden * intermediate_of_hidden, 1))
    return shape.model_copy(update={"intermediate": intermediate, "moe": None})
