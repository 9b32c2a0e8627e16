"""Gates two revisions by running them in pairs, and measures this machine's noise floor by gates of a command against itself.

Counted figures are judged on every pair, and a change fails at once. Timed figures take as many pairs as the gate asks for, and
new pairs confirm a suspicion.

A noise floor by default measures every pair of every A/A gate. With a pool, only its pairs are measured and the gates are drawn
from them. This is faster but misses drift between gates, and its floors say so.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from statistics import fmean

from harness.analysis.judgement import Judgement, Judgements, to_json
from harness.analysis.stats.one_sided import freed_mean
from harness.errors import UserError
from harness.progress import Progress
from harness.record.schema import Run
from harness.regression.comparability import Unlike, refuse_unlike, shared_prompts
from harness.regression.counted import counted
from harness.regression.gate.procedure import GateProcedure, NeedPairs
from harness.regression.gate.decision import GatePlan, PairStage, place_terms
from harness.regression.gate_metrics import MARGIN
from harness.regression.gate.counts import CountedPair, judge_counted_pairs, judged_metric
from harness.regression.metrics import CellMetric, primary_metrics
from harness.regression.gate.noise import FEWEST_REPEATS, NoiseFloor, noise_floor
from harness.regression.gate.revisions import Revisions
from harness.regression.timed import log_ratios, processes_of

MOST_VOID_PAIRS = 3
"""Most pairs taken again because the machine's state left a metric without a time; later ones go to the gate as void."""
Floors = Callable[[Run], Mapping[str, NoiseFloor]]
"""Known noise floors of the machine and the work of a run, by metric key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions:
    """What the user asks of a gate besides the two sides."""

    metrics: Sequence[str] = ()
    deterministic_only: bool = False
    allow: Collection[str] = ()
    least_margin: float = MARGIN
    plan: GatePlan = field(default_factory=GatePlan)


def gate_revisions(revisions: Revisions, wish: GateOptions, floors: Floors, progress: Progress) -> Judgements:
    """Run pairs until every metric has its answer, which is written to the work folder too.

    Raises:
        UserError: the sides are not alike. ProcessEndedError: a command failed.
    """
    progress.start(revisions.missing("pair", range(1, 2)))
    base, new = revisions.pair("pair", 1)
    counts = Counts(refuse_unlike(base, [new], wish.allow, ("--base-cmd", "--new-cmd")))
    counts.see("pair 1", revisions.taken_again, base, new)
    timed: tuple[Judgement, ...] = ()
    if not wish.deterministic_only and not counts.changed:
        with suppress(CountChangedError):
            timed = _timed(revisions, base, wish, floors(base), progress, counts)
    answers = (*timed, *counts.judgements())
    judgements = Judgements(
        title=f"gate: {base.header.scenario_name}",
        judgements=answers,
        runs=(str(revisions.work / "pair-*/base"), str(revisions.work / "pair-*/new")),
    )
    revisions.finish(to_json(judgements))
    return judgements


class CountChangedError(Exception):
    """A counted figure differs in a pair: the gate has failed, and measuring stops."""


class Counts:
    """Counts of every pair, re-runs and pairs without times included; ``allowed``: the permitted differences of the sides."""

    def __init__(self, allowed: Sequence[Unlike]) -> None:
        self._allowed = allowed
        self._pairs: dict[tuple[str, int], CountedPair] = {}

    def see(self, name: str, taken_again: int, base: Run, new: Run) -> None:
        """These counts and one more pair; ``taken_again``: how many pairs were set aside so far."""
        left, right = shared_prompts(base, new)
        self._pairs.setdefault((name, taken_again), CountedPair(name=name, base=counted(left), new=counted(right)))

    def judgements(self) -> tuple[Judgement, ...]:
        """Over all pairs seen."""
        return judge_counted_pairs(tuple(self._pairs.values()), self._allowed)

    @property
    def changed(self) -> bool:
        """Whether any figure has failed."""
        return any(one.state == "missed" for one in self.judgements())


def _timed(
    revisions: Revisions, base: Run, wish: GateOptions, floors: Mapping[str, NoiseFloor], progress: Progress, counts: Counts
) -> tuple[Judgement, ...]:
    """Raises: CountChangedError."""
    most = wish.plan.looks[-1]
    metrics = {one.key: judged_metric(one, floors, most, wish.least_margin) for one in primary_metrics(base, wish.metrics)}
    if not metrics:
        return ()
    pairs = Pairs(revisions, base, wish.allow, progress, counts)
    procedure = GateProcedure(metrics=tuple(metrics.values()), plan=wish.plan, order=revisions.order)
    while isinstance(step := procedure.next_step(), NeedPairs):
        procedure = procedure.fed(pairs.take(step.stage, step.pairs, [metrics[key] for key in step.keys], step.why))
    return step


class Pairs:
    """Yields the pairs of both stages in order; pairs without a time are taken again in their own place."""

    def __init__(
        self, revisions: Revisions, like: Run, allow: Collection[str], progress: Progress, counts: Counts | None = None
    ) -> None:
        self._revisions, self._like, self._allow, self._progress = revisions, like, allow, progress
        self._taken: dict[PairStage, int] = {"pair": 0, "rerun": 0}
        self._counts = counts

    def take(self, stage: PairStage, count: int, metrics: Sequence[CellMetric], why: str) -> dict[str, list[float]]:
        """d = log(NEW / BASE) of the next ``count`` pairs, by metric key; NaN where a metric has no time in a pair.

        Raises:
            UserError: a pair was measured under other circumstances than the first.
            CountChangedError: its counts differ.
        """
        first = self._taken[stage] + 1
        self._progress.note(why)
        self._progress.start(self._revisions.missing(stage, range(first, first + count)))
        rows = [self._pair(stage, number, metrics) for number in range(first, first + count)]
        self._taken[stage] += count
        return {metric.key: [row[metric.key] for row in rows] for metric in metrics}

    def _pair(self, stage: PairStage, number: int, metrics: Sequence[CellMetric]) -> dict[str, float]:
        """d of one pair by metric key; NaN where it is absent after repeats."""
        while True:
            row = self._once(stage, number, metrics)
            missing = [f"{key}: {value}" for key, value in row.items() if isinstance(value, str)]
            if not missing or self._revisions.taken_again >= MOST_VOID_PAIRS:
                return {key: math.nan if isinstance(value, str) else value for key, value in row.items()}
            self._progress.note(f"{stage} {number} is taken again: {'; '.join(missing)}")
            self._revisions.take_again(stage, number)

    def _once(self, stage: PairStage, number: int, metrics: Sequence[CellMetric]) -> dict[str, float | str]:
        base, new = self._revisions.pair(stage, number)
        refuse_unlike(
            self._like, [base, new], self._allow, ("the first pair", f"BASE of {stage} {number}", f"NEW of {stage} {number}")
        )
        if self._counts is not None:
            self._counts.see(f"{stage} {number}", self._revisions.taken_again, base, new)
            if self._counts.changed:
                self._progress.note(f"what is counted differs in {stage} {number}: the gate has failed")
                raise CountChangedError
        of_base, of_new = processes_of(base), processes_of(new)
        found = {metric.key: log_ratios(metric, of_base, of_new) for metric in metrics}
        # the mean over processes where the scenario itself has several
        return {key: values if isinstance(values, str) else fmean(values) for key, values in found.items()}


RESAMPLES = 2_000
SEED = 20_261


@dataclass(frozen=True, slots=True, kw_only=True)
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
            metric=key,
            ratio=None,
            repeats=0,
            pairs=wish.pairs,
            method="not known",
            reason=f"{len(pairs) - len(known)} of {len(pairs)} pairs have no time of it; measure on a quieter machine",
        )
    if wish.pool is None:
        gates = [slice(start, start + wish.pairs) for start in range(0, len(known), wish.pairs)]
        return noise_floor(key, [_estimate(known[gate], signs[gate]) for gate in gates], wish.pairs)
    return _resampled(key, [sign * d for sign, d in zip(signs, known, strict=True)], signs[: wish.pairs], wish)


def _resampled(key: str, seconds: Sequence[float], signs: tuple[int, ...], wish: NoiseWish) -> NoiseFloor:
    """``seconds``: log of the second process's time by the first's, per pair.

    Which side of an A/A pair is NEW is arbitrary, so each drawn pair gets the order of the gate's own pair in its place.
    """
    rng = random.Random(f"{SEED}/{key}")
    draws = (rng.choices(seconds, k=wish.pairs) for _ in range(RESAMPLES))
    estimates = [_estimate([sign * one for sign, one in zip(signs, drawn, strict=True)], signs) for drawn in draws]
    floor = noise_floor(key, estimates, wish.pairs)
    drawn = f"{RESAMPLES} gates drawn from a pool of {len(seconds)} measured pairs, drift between gates not seen"
    return replace(floor, method=f"{floor.method}; {drawn}", repeats=len(seconds) // wish.pairs)


def _estimate(values: Sequence[float], signs: tuple[int, ...]) -> float:
    """The gate's estimate of the change over these pairs."""
    return freed_mean(values, place_terms(signs)).mean
