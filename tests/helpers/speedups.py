"""A speedup of plain numbers, priced by the program."""

from __future__ import annotations

from harness.models import ModelShape
from harness.models.deployment import Deployment
from harness.roofline.ceilings import Ceilings
from harness.roofline.speedup import SpeedupPrediction, price_three_steps
from harness.roofline.step import DecodeArm
from harness.scenario.arms import Batching


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
) -> SpeedupPrediction:
    """NTP and SBD at ``context_tokens`` known tokens per row; in lockstep the passes are those of the slowest row."""
    arm = DecodeArm(block_size=block_size, passes_per_block=passes_per_block, batching=batching)
    return price_three_steps(shape, deployment, ceilings, arm, batch, context_tokens)
