"""What a replayed arm replays, as the plan knows it: from the scenario alone, without reading a recorded trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.scenario.arms import Arm, ReplayFromTrace, SbdArm, VerifiedSbdArm, replayed_speedup


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySpec:
    """What a replayed arm replays. ``mean_passes_per_block`` is None where a recorded trace says it.

    ``assumed``: the distribution of passes per block is an assumption, and at batch > 1 so is everything that rests on it.
    """

    source: dict[str, Any]
    nfe_speedup: float | None
    mean_passes_per_block: float | None
    assumed: bool

    def to_dict(self) -> dict[str, Any]:
        """As it stands in the record."""
        return {
            "source": self.source,
            "nfe_speedup": self.nfe_speedup,
            "mean_passes_per_block": self.mean_passes_per_block,
            "assumed": self.assumed,
        }


def replay_spec(arm: Arm, variant: dict[str, Any]) -> ReplaySpec | None:
    """None where the sampler decides."""
    if not isinstance(arm, SbdArm | VerifiedSbdArm) or arm.acceptance == "real":
        return None
    speedup = replayed_speedup(arm)
    return ReplaySpec(
        source=arm.acceptance.replay.model_dump(mode="json"),
        nfe_speedup=speedup,
        mean_passes_per_block=variant["block_size"] / speedup if speedup else None,
        assumed=not isinstance(arm.acceptance.replay, ReplayFromTrace),
    )
