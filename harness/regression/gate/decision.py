"""What the pairs so far show about each timed metric, in one look or several fixed in advance; and which side runs first.

The order of the two fresh processes of a pair is random, so that no periodic effect of the machine favours a side for long. It
is balanced in blocks of four pairs: one odd and one even pair start with BASE, the others with NEW. Each side then takes each
of the four places of four processes once, and effects of these places cancel in a block.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from harness.errors import UserError
from harness.frozen import frozen
from harness.regression.metrics import TimedMetric
from harness.stats.one_sided import SampleMean, freed_mean, holm

PairStage = Literal["pair", "rerun"]
Term = tuple[float, ...]
"""One number per pair: the weight of an effect of the pair's place in its d."""
BLOCK = 4
"""Pairs."""
FEWEST_FOR_ONE_TERM = 4
FEWEST_FOR_TWO_TERMS = 8
"""With fewer pairs a term takes too many of the degrees of freedom that the bounds rest on."""


@dataclass(frozen=True, slots=True)
class PairOrder:
    """The order of all pairs of one gate, by the ``seed`` that was drawn for it.

    None: BASE first in odd pairs, NEW first in even ones, as in unfinished work folders of older gates.
    """

    seed: int | None

    def base_first(self, stage: PairStage, number: int) -> bool:
        """Whether BASE runs first in this pair, from 1."""
        if self.seed is None:
            return number % 2 == 1
        block, place = divmod(number - 1, BLOCK)
        drawn = random.Random(f"{self.seed}/{stage}/{block}")
        coins = (drawn.random() < 0.5, drawn.random() < 0.5)
        return coins[place % 2] == (place < 2)

    def signs(self, stage: PairStage, count: int) -> tuple[int, ...]:
        """Of the first ``count`` pairs: +1 where BASE runs first, -1 where NEW does."""
        return tuple(1 if self.base_first(stage, number) else -1 for number in range(1, count + 1))


@lru_cache(maxsize=1024)
def place_terms(signs: tuple[int, ...]) -> tuple[Term, ...]:
    """The terms that are removed from a mean over these pairs: one column per term, one number per pair.

    A process slower for running second, and any steady drift, adds c to d where BASE ran first and subtracts it where NEW did.
    From eight pairs on odd and even pairs have a c each, which also removes an effect with a period of four processes. No term
    exists with fewer than four pairs, or where all had one order: it is then no different from a change.

    Source: Hills and Armitage, Br. J. Clin. Pharmacol. 8 (1979) 7: the period effect of a two-period crossover trial.
    """
    odd, even = (tuple(float(sign) * (place % 2 == rest) for place, sign in enumerate(signs)) for rest in (0, 1))
    both = tuple(map(float, signs))
    for terms, fewest in (((odd, even), FEWEST_FOR_TWO_TERMS), ((both,), FEWEST_FOR_ONE_TERM)):
        columns = [[1.0] * len(signs), *terms]  # of full rank: no term, and no sum of them, is the same in every pair
        if len(signs) >= fewest and np.linalg.matrix_rank(columns) == len(columns):
            return terms
    return ()


Outcome = Literal["slower", "passed", "open", "void"]
ALPHA = 0.05


@frozen
class GatePlan:
    """The numbers of pairs at which the gate looks at the data. Fixed before the first pair is seen.

    ``looks``   numbers of pairs at which the data are judged, growing; the last is the cap
    ``shares``  of alpha spent at each look, 1 in all, so that looking more than once does not raise the false alarms
    ``rerun_pairs``  pairs of the re-run that a suspected metric must fail again, alone
    ``alpha``   one-sided, over all metrics (Holm) and all looks together

    At whole blocks of four pairs each side has taken each place once. The default spends nearly all of alpha on the last look.
    By simulation (benchmarks/gate_power) a 4 % slowdown of one metric of five then fails in 94.5 % of the trials. A single look
    at 12 pairs gives 95 %. A machine of half the noise is mostly done after 8. Half of alpha on the first look saves two pairs
    in twelve and costs 4 trials in a hundred; a third look gains nothing.

    Raises:
        UserError: looks that do not grow from at least 2, shares that do not go with them, a re-run of fewer than 2 pairs.
    """

    looks: tuple[int, ...] = (8, 12)
    shares: tuple[float, ...] = (0.1, 0.9)
    rerun_pairs: int = 12
    alpha: float = ALPHA

    def __post_init__(self) -> None:
        growing = all(a < b for a, b in zip((1, *self.looks), self.looks, strict=False))
        if not (self.looks and growing and self.rerun_pairs >= 2):
            raise UserError(
                f"looks at {self.looks} pairs with a re-run of {self.rerun_pairs}: give growing numbers of at least 2 pairs, "
                "for one pair of processes has no spread to judge by"
            )
        shared = len(self.shares) == len(self.looks) and math.isclose(math.fsum(self.shares), 1) and min(self.shares) > 0
        if not (shared and 0 < self.alpha < 0.5):
            raise UserError(
                f"alpha {self.alpha} spent as {self.shares} over looks at {self.looks} pairs: give one positive share per "
                "look, 1 in all, and an alpha between 0 and 0.5"
            )


def plan_of(pairs: int) -> GatePlan:
    """The default plan, scaled to a cap of ``pairs``: from 7 on a first look at the whole blocks nearest to two thirds of them.

    Raises:
        UserError: fewer than 2 pairs.
    """
    first = BLOCK * round(pairs / 6)
    if pairs < 7:
        return GatePlan(looks=(pairs,), shares=(1.0,), rerun_pairs=pairs)
    return GatePlan(looks=(first, pairs), rerun_pairs=pairs)


@frozen
class NeedPairs:
    """Measure ``pairs`` more pairs of fresh processes and hand in d for each of ``keys``; ``stage`` and ``why`` for people."""

    pairs: int
    keys: tuple[str, ...]
    stage: PairStage
    why: str


@frozen
class GateFinding:
    """What one metric's pairs show. ``slowdown`` is the mean of d, with its sign reversed where a higher figure is better.

    ``low_level`` and ``high_level`` are the error probabilities of its lower and upper bound. A void finding has a ``fault``
    and no slowdown.
    """

    metric: TimedMetric
    outcome: Outcome
    pairs: int
    slowdown: SampleMean | None = None
    low_level: float = ALPHA
    high_level: float = ALPHA
    fault: str = ""


def judge_look(
    metrics: Sequence[TimedMetric],
    pairs: Mapping[str, Sequence[float]],
    alpha: float,
    family: int | None = None,
    signs: tuple[int, ...] = (),
) -> dict[TimedMetric, GateFinding]:
    """Each metric's finding from all of its ``pairs``: {key: [d, ...]}; ``signs``: which side ran first in each (PairOrder).

    Where the order is known, the place of a pair is a term of the estimate (``place_terms``), and outliers count for less.

    slower: the lower bound is above log(1 + margin), Holm over ``family`` hypotheses (default: these metrics) at ``alpha``.
    passed: the upper bound is below it, at ``alpha`` for each metric alone. A gate passes only where every metric does. So it
    is wrong with probability alpha at most (intersection-union test), without Holm.
    """
    findings, means = {}, dict[TimedMetric, SampleMean]()
    for metric in metrics:
        values = pairs[metric.key]
        if fault := fault_of(values):
            findings[metric] = GateFinding(metric=metric, outcome="void", pairs=len(values), fault=fault)
        else:
            terms = place_terms(signs[: len(values)]) if signs else ()
            means[metric] = freed_mean([metric.sign * d for d in values], terms)
    judged = [metric for metric in metrics if metric in means]
    p_slower = [means[metric].p_above(math.log1p(metric.margin)) for metric in judged]
    for metric, test in zip(judged, holm(p_slower, alpha, len(metrics) if family is None else family), strict=True):
        mean = means[metric]
        passed = mean.p_below(math.log1p(metric.margin)) <= alpha
        findings[metric] = GateFinding(
            metric=metric,
            outcome="slower" if test.rejected else "passed" if passed else "open",
            pairs=mean.n,
            slowdown=mean,
            low_level=test.level,
            high_level=alpha,
        )
    return findings


def fault_of(values: Sequence[float]) -> str | None:
    """Why the pairs have no mean, or None."""
    if not values:
        return "no pair of processes"
    absent = [str(index) for index, d in enumerate(values, start=1) if not math.isfinite(d)]
    return f"no finite ratio in pair {', '.join(absent)} of {len(values)}" if absent else None
