"""What a decoding method costs per emitted token: a mixture of model calls, as counts, and its price in seconds.

NTP is one call a token. A method with drafts is several kinds of call, each with a number of calls per token that a row
emits. A random number is replaced by its expected value, a random width of a call by the two whole widths around its mean.
All rows of a batch progress alike: none waits for the slowest.
"""

from __future__ import annotations

import math
from dataclasses import replace

from harness.errors import UserError
from harness.frozen import frozen
from harness.models import ModelShape
from harness.record.trace import ForwardPass, Role
from harness.roofline.ceilings import Ceilings
from harness.roofline.operation import describe_pass
from harness.roofline.pricing import SummedPrice, price_pass, sum_prices

# Shares and probabilities are typed in decimal; a sum of them may miss 1 by their rounding.
SHARE_TOLERANCE = 1e-9


@frozen
class PricedAt:
    """Where a method is priced: the model whose tokens are wanted, the batch, and the tokens in the cache of every row.

    Raises:
        UserError: a batch below 1 or a context below 0.
    """

    target: ModelShape
    batch: int = 1
    context_tokens: int = 0

    def __post_init__(self) -> None:
        if self.batch < 1 or self.context_tokens < 0:
            raise UserError(f"given were batch {self.batch}, context {self.context_tokens}; allowed: batch >= 1, context >= 0")


@frozen
class ModelCall:
    """One kind of model call.

    ``model``            which model, in words: target, draft, some layers of the target, ...
    ``forward_pass``     one such call, every row alike; what a method writes to a cache and rejects later counts as kept
    ``count_per_token``  expected calls per token that a row emits
    ``share_of_layers``  the part of the target's layers that the call runs; 0 for another model
    """

    model: str
    shape: ModelShape
    forward_pass: ForwardPass
    count_per_token: float
    share_of_layers: float


@frozen
class MethodTrace:
    """All kinds of call of one method; ``notes`` say what the counts leave out.

    ``link_s_per_token``: seconds on a network between two parts of the target, expected per token that a row emits.
    """

    family: str
    calls: tuple[ModelCall, ...]
    notes: str = ""
    link_s_per_token: float = 0.0

    @property
    def target_passes_per_token(self) -> float:
        """Passes through the whole target per token; a pass through half its layers counts as half a pass."""
        return sum(call.count_per_token * call.share_of_layers for call in self.calls)

    @property
    def tokens_per_target_pass(self) -> float | None:
        """Its inverse; None where the target makes no pass."""
        passes = self.target_passes_per_token
        return 1 / passes if passes else None

    @property
    def query_tokens_per_target_pass(self) -> float | None:
        """Mean query tokens of a row in a target pass, by layers; None where the target makes no pass."""
        passes = self.target_passes_per_token
        if not passes:
            return None
        fed = sum(call.count_per_token * call.share_of_layers * call.forward_pass.padded_query for call in self.calls)
        return fed / passes


def target_call(
    at: PricedAt, role: Role, count_per_token: float, *, query: int, logits: int, kept: int = 0, context: int | None = None
) -> ModelCall:
    """A pass through the whole target, at the context of the setting unless another is given."""
    tokens = at.context_tokens if context is None else context
    return ModelCall(
        model="target",
        shape=at.target,
        forward_pass=describe_pass(role, at.batch, query, tokens, logits=logits, kept=kept),
        count_per_token=count_per_token,
        share_of_layers=1.0,
    )


def other_call(
    at: PricedAt,
    model: str,
    shape: ModelShape,
    role: Role,
    count_per_token: float,
    *,
    query: int,
    logits: int,
    share_of_layers: float = 0.0,
) -> ModelCall:
    """A pass through another model, or a part of the target, at the same context; it keeps the KV of all it is fed."""
    call = target_call(at, role, count_per_token, query=query, logits=logits, kept=query)
    return replace(call, model=model, shape=shape, share_of_layers=share_of_layers)


def whole_widths(mean: float) -> tuple[tuple[int, float], ...]:
    """(width, share) of the two whole widths around a mean. Exact for a price that is linear in the width."""
    low = math.floor(mean + SHARE_TOLERANCE)
    above = max(0.0, mean - low)
    return ((low, 1.0),) if above < SHARE_TOLERANCE else ((low, 1 - above), (low + 1, above))


def probability(name: str, value: float) -> float:
    """``value``, if it is a probability.

    Raises:
        UserError: it is not.
    """
    if not 0 <= value <= 1:
        raise UserError(f"{name} is a probability; given was {value:g}, allowed are 0 to 1")
    return value


def at_least(name: str, value: float, lowest: float) -> float:
    """``value``, if it is no less than ``lowest``.

    Raises:
        UserError: it is less, or not finite.
    """
    if not lowest <= value < math.inf:
        raise UserError(f"{name}: given was {value:g}, allowed is {lowest:g} or more")
    return value


def price_method(trace: MethodTrace, dtype: str, ceilings: Ceilings) -> SummedPrice:
    """Price per token that a row emits: calls with their samplers, and the link. In a batch, every row emits one in that time.

    Raises:
        UserError: unknown dtype.
    """
    calls = sum_prices(
        (call.count_per_token, price_pass(call.shape, dtype, call.forward_pass, ceilings)) for call in trace.calls
    )
    link_s = trace.link_s_per_token
    return replace(calls, low_s=calls.low_s + link_s, expected_s=calls.expected_s + link_s, high_s=calls.high_s + link_s)
