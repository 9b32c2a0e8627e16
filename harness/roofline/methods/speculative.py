"""Speculative decoding: a draft model proposes, the target verifies in one pass; or a hierarchy of draft models.

Acceptance is taken as independent from token to token (Leviathan et al., arXiv 2211.17192, section 3.1).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from harness.errors import UserError
from harness.models import ModelShape
from harness.roofline.methods.calls import MethodTrace, ModelCall, Setting, at_least, other_call, probability, target_call

# (drafter, width of its pass) -> expected passes
Passes = Mapping[tuple[int, int], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafter:
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


def speculative(at: Setting, *, draft: ModelShape, drafted_tokens: int, acceptance: float) -> MethodTrace:
    """Per round ``drafted_tokens`` passes of the draft model and one of the target over all of them and one more token.

    That is the cost of theorem 3.8 of arXiv 2211.17192. No draft at all is NTP exactly.

    Raises:
        UserError: see Drafter.
    """
    return hierarchy(at, (Drafter(shape=draft, drafted_tokens=drafted_tokens, acceptance=acceptance),))


def hierarchy(at: Setting, drafters: tuple[Drafter, ...]) -> MethodTrace:
    """A stack of draft models, the largest first (HSD, arXiv 2510.19705): each but the last is itself sped up by the next.

    To make n tokens a drafter lets the next one draft, verifies, and goes on from what it accepted; it never asks for more
    than it still lacks (min(g, n - 1) tokens, for its own pass adds one). The counts are exact expected values of that
    protocol. The draft's own catch-up after a fully accepted round is not counted, as in theorem 3.8.

    Raises:
        UserError: no drafter.
    """
    if not drafters:
        raise UserError("a hierarchy needs at least one draft model; for none use next_token")
    drafted = drafters[0].drafted_tokens
    per_round = expected_tokens(drafters[0].acceptance, drafted)
    verify = target_call(at, "verify" if drafted else "decide", 1 / per_round, query=drafted + 1, logits=drafted + 1,
                         kept=drafted + 1)  # fmt: skip
    made = _passes_to_make(drafters, 0, drafted)
    calls = [verify, *(_draft_call(at, drafters, key, count / per_round) for key, count in sorted(made.items()))]
    family = "draft model" if len(drafters) == 1 else "hierarchy of draft models"
    return MethodTrace(family=family, calls=tuple(calls), notes="acceptance independent from token to token")


def outcomes(acceptance: float, drafted: int) -> Iterator[tuple[int, float]]:
    """(tokens gained, probability) of one verification: the accepted prefix and one token of the verifier."""
    for accepted in range(drafted):
        yield accepted + 1, acceptance**accepted * (1 - acceptance)
    yield drafted + 1, acceptance**drafted


def _passes_to_make(drafters: tuple[Drafter, ...], index: int, tokens: int) -> Passes:
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


def _draft_call(at: Setting, drafters: tuple[Drafter, ...], key: tuple[int, int], count: float) -> ModelCall:
    index, width = key
    name = "draft" if len(drafters) == 1 else f"draft {index + 1}"
    return other_call(at, name, drafters[index].shape, "draft", count, query=width, logits=width)
