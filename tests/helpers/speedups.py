"""A speedup of plain numbers, priced by the program."""

from __future__ import annotations

from dataclasses import dataclass

from harness.models import ModelShape
from harness.models.deployment import Deployment
from harness.roofline.ceilings import Ceilings
from harness.roofline.step import DecodeArm, SpeedupPrediction, price_three_steps
from harness.scenario.arms import Batching


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted(SpeedupPrediction):
    """A prediction with the speeds of its batch."""

    batch: int

    @property
    def ntp_tokens_per_s(self) -> float:
        """Of the whole batch, NTP."""
        return self.batch / self.ntp.expected_s

    @property
    def sbd_tokens_per_s(self) -> float:
        """Of the whole batch, SBD."""
        return self.ntp_tokens_per_s * self.wall_speedup


def predict_speedup(
    shape: ModelShape,
    deployment: Deployment | str,
    ceilings: Ceilings,
    *,
    block_size: int,
    passes_per_block: float,
    batch: int,
    context_tokens: int,
    batching: Batching = "ragged",
) -> Predicted:
    """NTP and SBD at ``context_tokens`` known tokens per row; in lockstep the passes are those of the slowest row."""
    arm = DecodeArm(block_size=block_size, passes_per_block=passes_per_block, batching=batching)
    found = price_three_steps(shape, deployment, ceilings, arm, batch, context_tokens)
    return Predicted(batch=batch, arm=arm, ntp=found.ntp, first=found.first, later=found.later, first_passes=found.first_passes)
