"""Expected wall speedup of SBD over NTP before anything runs, from the one model of a batch (harness.roofline.step).

With l passes a block of k tokens, a row writes k / l tokens a step: the speedup is k * t(NTP step) / (l * t(SBD step)). At one
row, and in lockstep, this is equation 16 of arXiv 2509.04185, k * t(1) / (t(2k) + (l - 1) * t(k)). Every pass is priced in
full: all layers, LM head, KV traffic, sampler and known fixed costs. In lockstep the caller gives the slowest row's passes.
"""

from __future__ import annotations

from harness.frozen import frozen
from harness.models import ModelShape
from harness.models.deployment import Deployment
from harness.record.trace import ForwardPass, Role
from harness.roofline.ceilings import Ceilings
from harness.roofline.pricing import PassPrice
from harness.roofline.step import NTP, DecodeArm, price_kinds


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
                          more and with fewer rows that open a block, that stand for all (harness.roofline.step)
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


def describe_pass(role: Role, batch: int, query: int, context: int, *, logits: int, kept: int = 0) -> ForwardPass:
    """A pass written by hand, every row alike, for pricing only (nothing is decided in it)."""
    return ForwardPass(
        role=role,
        query_tokens=(query,) * batch,
        context_tokens=(context,) * batch,
        logit_tokens=(logits,) * batch,
        kept_tokens=(kept,) * batch,
        decided_tokens=(0,) * batch,
        final_tokens=(0,) * batch,
        active=(True,) * batch,
        padded_query=query,
        padded_context=context,
    )
