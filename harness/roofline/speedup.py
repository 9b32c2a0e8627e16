"""Expected wall speedup of SBD over NTP before anything runs: equation 16 with this project's pricing.

The paper's formula, k * t(1) / (t(2k) + (l - 1) * t(k)), with every pass priced in full: all layers, LM head, KV traffic,
sampler and, where known, fixed costs. All rows share the number of passes per block (lockstep): at batch > 1 the caller
hands in that of the slowest row. Knows no decoder and no clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.errors import UserError
from harness.models import ModelShape
from harness.models.deployment import Deployment
from harness.record.trace import ForwardPass, Role
from harness.roofline.arrays import smaller
from harness.roofline.ceilings import Ceilings
from harness.roofline.operation import PassCounts
from harness.roofline.pricing import PassPrice, price_counts


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedupPrediction:
    """Prices of the three kinds of pass, and what follows from them. ``passes_per_block`` includes the committing one."""

    block_size: int
    passes_per_block: float
    batch: int
    context_tokens: int
    ntp: PassPrice
    first: PassPrice
    later: PassPrice

    @property
    def nfe_speedup(self) -> float:
        """Tokens per pass: k / l."""
        return self.block_size / self.passes_per_block

    @property
    def wall_speedup(self) -> float:
        """Ratio of expected times per token, NTP / SBD."""
        return self._speedup("expected_s")

    @property
    def wall_speedup_overlapped(self) -> float:
        """The same with memory and arithmetic fully overlapped in both arms."""
        return self._speedup("low_s")

    @property
    def wall_speedup_serial(self) -> float:
        """The same with nothing overlapped in either arm."""
        return self._speedup("high_s")

    @property
    def ntp_tokens_per_s(self) -> float:
        """Expected tokens per second of the whole batch, NTP."""
        return self.batch / self.ntp.expected_s

    @property
    def sbd_tokens_per_s(self) -> float:
        """Expected tokens per second of the whole batch, SBD."""
        return self.ntp_tokens_per_s * self.wall_speedup

    def _speedup(self, side: str) -> float:
        ntp_s, first_s, later_s = (getattr(price, side) for price in (self.ntp, self.first, self.later))
        speedup: float = self.block_size * ntp_s / (first_s + (self.passes_per_block - 1) * later_s)
        return speedup


def predict_speedup(
    shape: ModelShape,
    deployment: Deployment | str,
    ceilings: Ceilings,
    *,
    block_size: int,
    passes_per_block: float,
    batch: int,
    context_tokens: int,
) -> SpeedupPrediction:
    """Price NTP and SBD at ``context_tokens`` known tokens per row before the block.

    The first pass of a block feeds 2k tokens (the previous block, whose KV it keeps, and k masks); later passes feed k.
    At the start the previous block is not in the cache yet, so the first pass reads k tokens less of it.

    Raises:
        UserError: a size below 1, a context below 0, fewer than one pass per block or more than k, unknown dtype.
        UnknownHardwareError: a split over devices whose link rate is not known.
    """
    if block_size < 1 or batch < 1 or context_tokens < 0 or not 1 <= passes_per_block <= block_size:
        raise UserError(
            f"given were block_size {block_size}, passes_per_block {passes_per_block}, batch {batch}, context_tokens "
            f"{context_tokens}; sizes must be at least 1, the context at least 0, and 1 <= passes_per_block <= block_size"
        )
    return price_three_passes(shape, deployment, ceilings, block_size, passes_per_block, batch, context_tokens)


def price_three_passes(
    shape: ModelShape,
    deployment: Deployment | str,
    ceilings: Ceilings,
    block_size: int,
    passes_per_block: float,
    batch: int,
    context_tokens: int,
) -> SpeedupPrediction:
    """As predict_speedup, unchecked; every count may be a numpy array, and then so are the prices (see roofline.arrays)."""
    previous = smaller(block_size, context_tokens)
    ntp = PassCounts(rows=batch, query=1, context=context_tokens, logits=1, kept=batch)
    first = PassCounts(
        rows=batch, query=previous + block_size, context=context_tokens - previous, logits=block_size, kept=batch * previous
    )
    later = PassCounts(rows=batch, query=block_size, context=context_tokens, logits=block_size, kept=0)
    return SpeedupPrediction(
        block_size=block_size,
        passes_per_block=passes_per_block,
        batch=batch,
        context_tokens=context_tokens,
        ntp=price_counts(shape, deployment, ntp, ceilings),
        first=price_counts(shape, deployment, first, ceilings),
        later=price_counts(shape, deployment, later, ceilings),
    )


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
