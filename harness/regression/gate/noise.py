"""The noise floor of a machine: how far the gate's own estimate strays when both sides are the same program (A/A).

The user's data folder holds one file per machine and work. A floor holds for its hardware and its scenario only. By default
every pair of every A/A gate is measured. With a pool, only its pairs are measured and the gates are drawn from them. This is
faster but misses drift between gates, and its floors say so.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, TypeAdapter

from harness.errors import UserError
from harness.frozen import frozen
from harness.paths import user_data_dir
from harness.progress import Progress
from harness.record.regular_file import refused, write_whole
from harness.record.same import machine_of
from harness.record.schema import Run, RunHeader
from harness.regression.comparability import work_fingerprint
from harness.regression.gate.procedure import Signs, place_terms
from harness.regression.gate.revisions import Pairs, Revisions
from harness.regression.metrics import MARGIN, primary_metrics
from harness.stats.one_sided import freed_mean, prediction_bound

PERCENTILE = 0.99
FEWEST_REPEATS = 20
"""With fewer the floor is given with a warning."""
ENOUGH_REPEATS = 100
"""From here on the percentile is an observed one; with fewer repeats it would be the largest."""


@frozen
class NoiseFloor:
    """What a timed metric strays by under A/A, as a ratio (0.012: 1.2 %).

    ``ratio`` is None where it is not known; ``reason`` says why, or why a given floor is unreliable. ``repeats`` counts full
    A/A gates, ``pairs`` the pairs of processes in each; ``method`` names the formula.
    """

    metric: str
    ratio: float | None
    repeats: int
    pairs: int
    method: str
    reason: str | None = None
    version: Literal[1] = 1
    """Of the JSON form."""

    __pydantic_config__ = ConfigDict(extra="forbid")


def noise_floor(metric: str, estimates: Sequence[float], pairs: int) -> NoiseFloor:
    """Floor of ``metric``: 99th percentile of |estimate|, one per full A/A repeat: the mean d over its ``pairs`` pairs.

    From 100 repeats on it is the observed percentile (an order statistic). With fewer that is the largest, which is below the
    true percentile more often than not. The floor is then at least a bound that one more estimate exceeds with at most 1 %
    probability. This bound is |mean| + t(n-1, 0.995) · s · √(1 + 1/n). A constant bias between the sides counts in full.
    """
    n = len(estimates)
    unknown = NoiseFloor(metric=metric, ratio=None, repeats=n, pairs=pairs, method="none")
    if odd := [str(i) for i, estimate in enumerate(estimates, start=1) if not math.isfinite(estimate)]:
        return replace(unknown, reason=f"no finite estimate in repeat {', '.join(odd)} of {n}")
    if n < 2:
        return replace(unknown, reason=f"{n} A/A repeats show no spread; {FEWEST_REPEATS} are wanted")
    ordered = sorted(map(abs, estimates))
    if n >= ENOUGH_REPEATS:
        floor, method = ordered[math.ceil(PERCENTILE * n) - 1], "99th percentile of |estimate|, observed"
    else:
        floor = max(ordered[-1], prediction_bound(estimates, PERCENTILE))
        method = "larger of the largest |estimate| and the 99 % t prediction bound"
    few = f"{n} A/A repeats, {FEWEST_REPEATS} are wanted: a careful bound, likely too high" if n < FEWEST_REPEATS else None
    return NoiseFloor(metric=metric, ratio=math.expm1(floor), repeats=n, pairs=pairs, method=method, reason=few)


def margin(floor: NoiseFloor | None, pairs: int, least: float = MARGIN) -> tuple[float, str]:
    """(margin as a ratio, where it is from): max(``least``, floor), for a gate of up to ``pairs`` pairs.

    A floor measured with more pairs than the gate has is widened by √(its pairs / pairs). Noise independent from pair to pair
    grows by this factor, shared noise by less.
    """
    if floor is None or floor.ratio is None:
        why = floor.reason if floor is not None else "not measured; sbd noise measures it"
        return least, f"the least margin; noise floor of this machine not known: {why}"
    widened = math.expm1(math.log1p(floor.ratio) * math.sqrt(max(1.0, floor.pairs / pairs)))
    source = f"noise floor {widened:.3%} from {floor.repeats} A/A gates of {floor.pairs} pairs"
    source += f" (widened to {pairs} pairs)" if floor.pairs > pairs else ""
    source += f" ({floor.reason})" if floor.reason else ""
    return (widened, source) if widened > least else (least, f"the least margin, above the {source}")


RESAMPLES = 2_000
SEED = 20_261


@frozen
class NoiseWish:
    """How many A/A gates of how many pairs, of which metrics; ``pool``: pairs to measure and draw from, None: all."""

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
    """The first run, which identifies the machine and work of the floors, and a floor per metric key.

    Raises:
        UserError: nothing was timed. ProcessEndedError: the command failed.
    """
    total = wish.pool or wish.gates * wish.pairs
    pairs = Pairs(revisions, (), progress, counting=False)
    metrics = primary_metrics(pairs.base, wish.metrics)
    if not metrics:
        raise UserError("the scenario times nothing (timed: false), so there is no noise to measure; give one that is timed")
    ratios = pairs.take("pair", total, metrics, f"{total} pairs of the same revision")
    signs = revisions.order.signs("pair", total)
    floors = tuple(_floor(key, values, signs, wish) for key, values in ratios.items())
    revisions.finish({"floors": [floor.ratio for floor in floors]})
    return pairs.base, floors


def _floor(key: str, pairs: Sequence[float], signs: Signs, wish: NoiseWish) -> NoiseFloor:
    known = [d for d in pairs if not math.isnan(d)]
    if len(known) < len(pairs):
        why = f"{len(pairs) - len(known)} of {len(pairs)} pairs have no time of it; measure on a quieter machine"
        return replace(noise_floor(key, (), wish.pairs), reason=why)
    if wish.pool is None:
        gates = [slice(start, start + wish.pairs) for start in range(0, len(known), wish.pairs)]
        return noise_floor(key, [_estimate(known[gate], signs[gate]) for gate in gates], wish.pairs)
    return _resampled(key, [sign * d for sign, d in zip(signs, known, strict=True)], signs[: wish.pairs], wish)


def _resampled(key: str, seconds: Sequence[float], signs: Signs, wish: NoiseWish) -> NoiseFloor:
    """``seconds``: log of the second process's time by the first's, per pair.

    Which side of an A/A pair is NEW is arbitrary, so each drawn pair gets the order of the gate's own pair in its place.
    """
    rng = random.Random(f"{SEED}/{key}")
    draws = (rng.choices(seconds, k=wish.pairs) for _ in range(RESAMPLES))
    estimates = [_estimate([sign * d for sign, d in zip(signs, drawn, strict=True)], signs) for drawn in draws]
    floor = noise_floor(key, estimates, wish.pairs)
    drawn = f"{RESAMPLES} gates drawn from a pool of {len(seconds)} measured pairs, drift between gates not seen"
    return replace(floor, method=f"{floor.method}; {drawn}", repeats=len(seconds) // wish.pairs)


def _estimate(values: Sequence[float], signs: Signs) -> float:
    """The gate's estimate of the change over these pairs."""
    return freed_mean(values, place_terms(signs)).mean


FILE_VERSION = 1


@frozen
class StoredFloors:
    """Contents of one file; ``measured_at`` is the date of its first run."""

    file: Path
    machine: str
    scenario: str
    measured_at: str
    commit: str | None
    floors: tuple[NoiseFloor, ...]


_STORED = TypeAdapter(StoredFloors)


def floors_file(header: RunHeader) -> Path:
    """The file of the floors for the machine and the work of this run, whether it exists or not."""
    return user_data_dir("noise_floors") / f"{machine_of(header).fingerprint}-{work_fingerprint(header)}.json"


def save_floors(header: RunHeader, floors: Sequence[NoiseFloor]) -> StoredFloors:
    """Replace the stored floors by ``floors``.

    Raises:
        StorageError: the file cannot be written.
    """
    stored = StoredFloors(
        file=floors_file(header),
        machine=machine_of(header).words,
        scenario=header.scenario_name,
        measured_at=header.created_at,
        commit=header.environment.get("commit"),
        floors=tuple(floors),
    )
    data = {"version": FILE_VERSION} | asdict(stored)
    del data["file"]
    try:
        stored.file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise refused(stored.file.parent, error) from error
    write_whole(stored.file, json.dumps(data, indent=1, ensure_ascii=False).encode())
    return stored


def known_floors(header: RunHeader) -> dict[str, NoiseFloor]:
    """The floors that hold for the machine and the work of this run, by metric key; empty where none were measured."""
    file = floors_file(header)
    return {floor.metric: floor for floor in _read(file).floors} if file.exists() else {}


def every_floor() -> list[StoredFloors]:
    """All stored floors, by file name."""
    return [_read(file) for file in sorted(user_data_dir("noise_floors").glob("*.json"))]


def _read(file: Path) -> StoredFloors:
    """Raises:
    UserError: the file is damaged. It is not skipped, because the gate's margin would change without notice.
    """
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if data["version"] > FILE_VERSION:
            raise UserError(f"{file}: format version {data['version']} is newer than this program's; upgrade sbd")
        return _STORED.validate_python(data | {"file": file})
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:  # includes pydantic's ValidationError
        raise UserError(f"{file}: cannot be read as noise floors ({error!r}); remove it and run sbd noise again") from error
