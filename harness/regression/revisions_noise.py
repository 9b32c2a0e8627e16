"""The noise floor of this machine: gates of a command against itself, run as real ones are.

By default every pair of every gate is measured. With a pool, so many pairs are measured and the gates are drawn from them:
quicker, but blind to what drifts between gates, and its floors say so.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.analysis.stats.one_sided import freed_mean
from harness.errors import UserError
from harness.progress import Progress
from harness.record.schema import Run
from harness.regression.metrics import primary_metrics
from harness.regression.noise_floor import FEWEST_REPEATS, NoiseFloor, noise_floor
from harness.regression.pair_order import place_terms
from harness.regression.revision_gate import Pairs
from harness.regression.revisions import Revisions

RESAMPLES = 2_000
SEED = 20_261


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseWish:
    """How many A/A gates of how many pairs, of which metrics; ``pool``: pairs to measure and draw them from, None: all."""

    gates: int = FEWEST_REPEATS
    pairs: int = 12
    pool: int | None = None
    metrics: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.pool is not None and self.pool < 2 * self.pairs:
            raise UserError(
                f"--pool {self.pool}: gates of {self.pairs} pairs drawn from so few are nearly all the same one; give at least "
                f"{2 * self.pairs}, or leave --pool out to measure {self.gates * self.pairs} pairs"
            )


def measure_noise(revisions: Revisions, wish: NoiseWish, progress: Progress) -> tuple[Run, tuple[NoiseFloor, ...]]:
    """The first run, which says what machine and work the floors hold for, and a floor per metric key.

    Raises:
        UserError: nothing was timed. ProcessEndedError: the command failed.
    """
    total = wish.pool or wish.gates * wish.pairs
    progress.start(revisions.missing("pair", range(1, 2)))
    like, _ = revisions.pair("pair", 1)
    metrics = primary_metrics(like, wish.metrics)
    if not metrics:
        raise UserError("the scenario times nothing (timed: false), so there is no noise to measure; give one that is timed")
    pairs = Pairs(revisions, like, (), progress).take("pair", total, metrics, f"{total} pairs of the same revision")
    signs = revisions.order.signs("pair", total)
    floors = tuple(_floor(key, values, signs, wish) for key, values in pairs.items())
    revisions.finish({"floors": [floor.ratio for floor in floors]})
    return like, floors


def _floor(key: str, pairs: Sequence[float], signs: tuple[int, ...], wish: NoiseWish) -> NoiseFloor:
    known = [d for d in pairs if not math.isnan(d)]
    if len(known) < len(pairs):
        return NoiseFloor(
            metric=key, ratio=None, repeats=0, pairs=wish.pairs, method="not known",
            reason=f"{len(pairs) - len(known)} of {len(pairs)} pairs have no time of it; measure on a quieter machine",
        )  # fmt: skip
    if wish.pool is None:
        gates = [slice(start, start + wish.pairs) for start in range(0, len(known), wish.pairs)]
        return noise_floor(key, [_estimate(known[gate], signs[gate]) for gate in gates], wish.pairs)
    return _resampled(key, [sign * d for sign, d in zip(signs, known, strict=True)], signs[: wish.pairs], wish)


def _resampled(key: str, seconds: Sequence[float], signs: tuple[int, ...], wish: NoiseWish) -> NoiseFloor:
    """``seconds``: log of the second process's time by the first's, per pair.

    Which side of an A/A pair is called NEW is arbitrary, so each drawn pair gets the order of the gate's own pair in its place.
    """
    rng = random.Random(f"{SEED}/{key}")
    draws = (rng.choices(seconds, k=wish.pairs) for _ in range(RESAMPLES))
    estimates = [_estimate([sign * one for sign, one in zip(signs, drawn, strict=True)], signs) for drawn in draws]
    floor = noise_floor(key, estimates, wish.pairs)
    drawn = f"{RESAMPLES} gates drawn from a pool of {len(seconds)} measured pairs, drift between gates not seen"
    return replace(floor, method=f"{floor.method}; {drawn}", repeats=len(seconds) // wish.pairs)


def _estimate(values: Sequence[float], signs: tuple[int, ...]) -> float:
    """What a gate takes for the change over these pairs."""
    return freed_mean(values, place_terms(signs)).mean
