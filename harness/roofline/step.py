"""What one step of a serving engine takes: rows of an arm that decode, and beside them a chunk of a prompt.

**One model of a batch**, for every what-if and plan. Rows are *ragged*, as engines run them: a row opens its next block as soon
as it can. In a step some rows feed 2k tokens (they commit a block and open the next one), the others k, without padding. Of B
independent rows with l passes a block the number of opening rows is binomial, Binomial(B, 1/l). The mean of a step's price
over it is taken by Gauss's rule of two points, which is exact for a price that is a cubic of that number. At B = 1 it gives
equation 16 of arXiv 2509.04185. In *lockstep* all rows open their blocks together and wait for the slowest one; then l is that
of the slowest row.

*Verified* SBD opens a block in the pass that checks the one before. That pass also has 2k tokens, but logits for all of them,
and of the checked block only some tokens become final. So a step costs about the same, and l of them make fewer tokens.

A chunk of a prompt attends causally to itself and to what of the prompt is in the cache. Its lines are multiplied together with
those of the rows, so the weights are read once for both.

The *wall speedup* of SBD over NTP follows: with l passes a block of k tokens, a row writes k / l tokens a step, so it is
k * t(NTP step) / (l * t(SBD step)). At one row, and in lockstep, this is equation 16 of arXiv 2509.04185,
k * t(1) / (t(2k) + (l - 1) * t(k)). Every pass is priced in full: all layers, LM head, KV traffic, sampler and known fixed
costs. In lockstep the caller gives the slowest row's passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.errors import UserError
from harness.frozen import frozen
from harness.models import ModelShape
from harness.models.deployment import Deployment
from harness.roofline.ceilings import Ceilings
from harness.roofline.operation import PassCounts, larger, smaller, some
from harness.roofline.operations import Groups, groups_of
from harness.roofline.pricing import PassPrice, SummedPrice, price_counts, sum_prices
from harness.scenario.arms import Batching

BATCH_WORDS: dict[Batching, str] = {
    "ragged": "ragged batch, phases mixed",
    "lockstep": "lockstep batch, rows wait for the slowest",
}
"""The model of a batch as the header of an answer names it."""
Weighted = tuple[tuple[Any, Groups], ...]
"""(how often on average, groups of rows) of every kind of step; the weights add up to 1."""


@frozen
class DecodeArm:
    """How rows decode. ``block_size`` None: next-token prediction, one token a step. Numbers may be numpy arrays.

    ``passes_per_block``  the committing or checking one included: mean of a row, or in lockstep that of the slowest row
    ``tokens_per_check``  verified: mean tokens of a block that its check makes final; None: blocks are committed whole
    """

    block_size: Any = None
    passes_per_block: Any = 1.0
    batching: Batching = "ragged"
    tokens_per_check: Any = None

    @property
    def tokens_per_step(self) -> Any:
        """Mean tokens that a row writes in a step."""
        return 1.0 if self.block_size is None else self.tokens_per_block / self.passes_per_block

    @property
    def tokens_per_block(self) -> Any:
        """Mean tokens that a block makes final."""
        return self.block_size if self.tokens_per_check is None else self.tokens_per_check


NTP = DecodeArm()


def price_step(
    shape: ModelShape,
    deployment: Deployment | str,
    ceilings: Ceilings,
    arm: DecodeArm,
    *,
    rows: Any,
    context_tokens: Any,
    prefill_tokens: Any = 0,
    prefill_context: Any = 0,
    prefill_logits: Any = 0,
    prefill_rows: Any = 1,
) -> SummedPrice:
    """Mean price of one engine step, on each of the devices of a replica (they work side by side).

    All counts broadcast against each other as numpy arrays do; the result has their shape. With stages (PP) it is the time in
    which every row makes one step.

    Args:
        deployment: how the model is stored and split; a dtype means everything in it, on one device.
        ceilings: of one device; ``harness.roofline.ceilings.joined`` gives them the link of several.
        rows: rows that decode, 0 for a step that only reads a prompt; ``context_tokens``: in the cache of each of them.
        prefill_tokens: tokens of a prompt that the step reads, 0 for none.
        prefill_context: tokens of that prompt in the cache already: earlier chunks, or a shared prefix.
        prefill_logits: 1 where the chunk is the prompt's last one, whose logits give the first token.
        prefill_rows: prompts alike that are read at once; with DP attention one a device costs little more than one alone.

    Raises:
        UserError: a step with neither rows nor a prompt, a count below 0, a dtype or split that cannot be.
        UnknownHardwareError: a split over devices whose link rate is not known.
    """
    counts = (rows, context_tokens, prefill_tokens, prefill_context)
    if any(some(count < 0) for count in counts) or some(rows + prefill_tokens <= 0):
        raise UserError(
            f"got a step of {rows} rows at {context_tokens} tokens with {prefill_tokens} tokens of a prompt; counts are at "
            "least 0, and there are rows or a prompt"
        )
    chunk = prefill_group(prefill_tokens, prefill_context, prefill_logits, prefill_rows)
    return sum_prices(price_kinds(shape, deployment, ceilings, arm, rows, context_tokens, chunk))


def prefill_group(tokens: Any, context: Any, logits: Any, prompts: Any) -> tuple[PassCounts, ...]:
    """Chunks of prompts as a group of rows; none where they are known to be empty."""
    if not some(tokens > 0):
        return ()
    rows = prompts * smaller(tokens, 1)
    return (PassCounts(rows=rows, query=tokens, context=context, logits=logits, kept=rows * tokens, causal=True),)


def decode_groups(arm: DecodeArm, rows: Any, context_tokens: Any) -> Weighted:
    """The kinds of step of ``rows`` rows that decode, the widest first, each as often as it happens on average."""
    if arm.block_size is None:
        return ((1.0, PassCounts(rows=rows, query=1, context=context_tokens, logits=1, kept=rows)),)
    k, passes, cached = arm.block_size, arm.passes_per_block, context_tokens
    if arm.tokens_per_check is None:
        before = smaller(k, context_tokens)
        fed, known, logits = before, context_tokens - before, k
    else:  # the drafts are no context yet, and the last final token is fed with them
        cached = known = context_tokens - smaller(1, context_tokens)
        fed, logits = k, 2 * k

    def opening(some_rows: Any) -> PassCounts:
        """Rows that feed the block before again, whose KV is kept, and k masks."""
        return PassCounts(rows=some_rows, query=fed + k, context=known, logits=logits, kept=some_rows * fed)

    def later(some_rows: Any) -> PassCounts:
        return PassCounts(rows=some_rows, query=k, context=cached, logits=k, kept=0)

    if arm.batching == "lockstep":
        return ((1 / passes, opening(rows)), (1 - 1 / passes, later(rows)))
    return tuple((weight, (opening(opened), later(rows - opened))) for weight, opened in opening_rows(rows, passes))


def opening_rows(rows: Any, passes_per_block: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """(weight, rows) of the two points that stand for Binomial(rows, 1 / passes), the larger first.

    Gauss's rule from mean, variance and skewness: with d = (1 - 2p) / 2 and s = sqrt(rows p (1 - p) + d^2) the points are
    rows p + d +- s and the upper one weighs (1 - d / s) / 2. At one row they are 1 and 0, with weights p and 1 - p.
    """
    chance = 1 / passes_per_block
    skew = (1 - 2 * chance) / 2
    spread = larger(rows * chance * (1 - chance) + skew * skew, _TINY) ** 0.5
    centre = rows * chance + skew
    high, low = smaller(centre + spread, rows), larger(centre - spread, 0)
    upper = (1 - skew / spread) / 2
    return (upper, high), (1 - upper, low)


_TINY = 1e-300


def price_kinds(
    shape: ModelShape,
    deployment: Deployment | str,
    ceilings: Ceilings,
    arm: DecodeArm,
    rows: Any,
    context_tokens: Any,
    chunk: Sequence[PassCounts] = (),
) -> tuple[tuple[Any, PassPrice], ...]:
    """(weight, price) of each kind of step of rows that decode, beside a ``chunk`` of a prompt."""
    return tuple(
        (weight, price_counts(shape, deployment, [*groups_of(groups), *chunk], ceilings))
        for weight, groups in decode_groups(arm, rows, context_tokens)
    )


class WallSpeedups:
    """The wall speedups of a prediction whose times are known for every overlap of memory and arithmetic."""

    __slots__ = ()

    def _speedup(self, side: str) -> float:
        raise NotImplementedError

    @property
    def wall_speedup(self) -> float:
        """Ratio of expected times per decode token, NTP / SBD."""
        return self._speedup("expected_s")

    @property
    def wall_speedup_overlapped(self) -> float:
        """The same with memory and arithmetic fully overlapped in both arms."""
        return self._speedup("low_s")

    @property
    def wall_speedup_serial(self) -> float:
        """The same with nothing overlapped in either arm."""
        return self._speedup("high_s")


@frozen
class SpeedupPrediction(WallSpeedups):
    """Prices of a step of NTP and of the two kinds of step of SBD, and the figures from them.

    ``arm``               how the rows of SBD decode
    ``first``, ``later``  in lockstep, and at one row: the first pass of a block and a later one. Ragged: the two steps, with
                          more and with fewer rows that open a block, that stand for all
    ``first_passes``      of the passes of a block, how many are ``first``; in lockstep one
    """

    arm: DecodeArm
    ntp: PassPrice
    first: PassPrice
    later: PassPrice
    first_passes: float

    def _speedup(self, side: str) -> float:
        ntp_s, first_s, later_s = (getattr(price, side) for price in (self.ntp, self.first, self.later))
        block_s = self.first_passes * first_s + (self.arm.passes_per_block - self.first_passes) * later_s
        speedup: float = self.arm.tokens_per_block * ntp_s / block_s
        return speedup


def price_three_steps(
    shape: ModelShape, deployment: Deployment | str, ceilings: Ceilings, arm: DecodeArm, batch: int, context_tokens: int
) -> SpeedupPrediction:
    """Price NTP and an arm with blocks at ``context_tokens`` known tokens per row before the block.

    The first pass of a block feeds 2k tokens (the previous block, whose KV it keeps, and k masks); later passes feed k.
    At the start the previous block is not in the cache yet, so the first pass reads k tokens less of it. With numpy arrays as
    counts the prices are arrays too (harness.roofline.operation).

    Raises:
        UnknownHardwareError: a split over devices whose link rate is not known.
    """
    ((_, ntp),) = price_kinds(shape, deployment, ceilings, NTP, batch, context_tokens)
    (share, first), (_, later) = price_kinds(shape, deployment, ceilings, arm, batch, context_tokens)
    first_passes = 1.0 if arm.batching == "lockstep" else share * arm.passes_per_block
    return SpeedupPrediction(arm=arm, ntp=ntp, first=first, later=later, first_passes=first_passes)
