"""The decision of a timed regression gate: which pairs of fresh processes it still needs, and what they show.

The input is d = log(NEW / BASE) per pair and metric (``metrics.log_ratio``); the gate starts no process.

    judge_in_pairs(metrics, lambda step: run_pairs(step.pairs), plan)     # {key: [d, ...]} for step.keys

The looks of the plan come first, with Holm over all metrics. A metric that is slower there is only suspected. It is measured
once more, alone, at alpha, and fails if the new pairs alone show it too. So a slowdown equal to the margin fails with
probability of about alpha² per metric.

By design the gate does not detect a slowdown within the margin, and rarely one just beyond it. It cannot detect one that both
revisions share, or that shows in no given metric. benchmarks/gate_power gives the share found for each size.

The order of the two fresh processes of a pair is random, so that no periodic effect of the machine favours a side for long. It
is balanced in blocks of four pairs: one odd and one even pair start with BASE, the others with NEW. Each side then takes each
of the four places of four processes once, and effects of these places cancel in a block.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from harness.analysis.judge.judgement import Judgement, State
from harness.errors import UserError
from harness.frozen import frozen
from harness.regression.metrics import TimedMetric, check_timed
from harness.stats.one_sided import FEWEST_FOR_OUTLIERS, SampleMean, freed_mean, holm
from harness.stats.quantity import Quantity, absent

PairStage = Literal["pair", "rerun"]
Term = tuple[float, ...]
"""One number per pair: the weight of an effect of the pair's place in its d."""
Signs = tuple[int, ...]
"""+1 of each pair where BASE runs first, -1 where NEW does."""
Ratios = Mapping[str, Sequence[float]]
"""By metric key, d of each pair."""
BLOCK = 4
"""Pairs."""
FEWEST_FOR_ONE_TERM = 4
FEWEST_FOR_TWO_TERMS = 8
"""With fewer pairs a term takes too many of the degrees of freedom that the bounds rest on."""


class PairOrder(NamedTuple):
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

    def signs(self, stage: PairStage, count: int) -> Signs:
        """Of the first ``count`` pairs: +1 where BASE runs first, -1 where NEW does."""
        return tuple(1 if self.base_first(stage, number) else -1 for number in range(1, count + 1))


@lru_cache(maxsize=1024)
def place_terms(signs: Signs) -> tuple[Term, ...]:
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


Findings = dict[TimedMetric, GateFinding]


def judge_look(
    metrics: Sequence[TimedMetric], pairs: Ratios, alpha: float, family: int | None = None, signs: Signs = ()
) -> Findings:
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
    p_slower = [mean.p_above(math.log1p(metric.margin)) for metric, mean in means.items()]
    tests = holm(p_slower, alpha, len(metrics) if family is None else family)
    for (metric, mean), test in zip(means.items(), tests, strict=True):
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


STATES: dict[Outcome, State] = {"slower": "missed", "passed": "met", "open": "inconclusive", "void": "void"}
WORDS: dict[Outcome, str] = {
    "slower": "it is beyond the margin",
    "passed": "it is within the margin",
    "open": "the margin lies between its bounds",
}
AFTER_SUSPICION: dict[Outcome, str] = {
    "slower": "confirmed",
    "passed": "not confirmed",
    "open": "suspected, not confirmed",
    "void": "not confirmed",
}
RUN_AGAIN = "see why those processes gave no figure, and run the gate again"


def answer(first: GateFinding, rerun: GateFinding | None = None) -> Judgement:
    """The judgement of a metric; of its re-run where it was suspected, because the first estimate is then biased upwards."""
    if rerun is None:
        return judged(first, STATES[first.outcome], described(first))
    end = AFTER_SUSPICION[rerun.outcome]
    reason = f"suspected: {described(first)}; re-run alone: {described(rerun)}: {end}"
    return judged(rerun, STATES[rerun.outcome], reason, {"pairs": first.pairs, "rerun_pairs": rerun.pairs})


def answer_without_rerun(usual: GateFinding, strict: GateFinding) -> Judgement:
    """The judgement where no re-run is possible: a suspicion at the usual level fails only at the ``strict`` one too."""
    if usual.outcome != "slower" or strict.outcome == "slower":
        return answer(strict if usual.outcome == "slower" else usual)
    reason = f"suspected, not confirmed: {described(usual)}, but not at the level that stands in for a re-run"
    return judged(strict, "inconclusive", reason)


def judged(shown: GateFinding, state: State, reason: str, sizes: dict[str, int] | None = None) -> Judgement:
    """A judgement that shows this finding."""
    metric = shown.metric
    limit = math.exp(metric.sign * math.log1p(metric.margin))
    most = "most" if metric.sign > 0 else "least"
    bound = f"at {most} {limit:.4g} × BASE (margin {metric.margin:.3%}: {metric.margin_source})"
    remedies = {"inconclusive": more_pairs(shown), "void": RUN_AGAIN}
    return metric.judgement(
        state=state,
        value=ratio(shown),
        bound=bound,
        sizes=sizes or {"pairs": shown.pairs},
        reason=reason,
        remedy=remedies.get(state),
    )


def ratio(finding: GateFinding) -> Quantity:
    """NEW / BASE with a lower and an upper one-sided bound; a bound that too few pairs give is None."""
    mean, sign = finding.slowdown, finding.metric.sign
    if mean is None:
        return absent(finding.fault)
    bounds = [mean.low(finding.low_level), mean.high(finding.high_level)][::sign]
    logs = [None if log is None else sign * log for log in (mean.mean, *bounds)]
    # no finite ratio: a bound from two pairs far apart
    value, low, high = (math.exp(log) if log is not None and log < 700 else None for log in logs)
    how, reason = f"one-sided t (slower: {finding.low_level:.4g} after Holm, passed: {finding.high_level:.4g})", None
    if mean.terms:
        estimate = "Huber's M-estimate" if mean.n >= FEWEST_FOR_OUTLIERS else "least squares"
        how = f"{estimate} with the place of a pair as a term, {how}"
    if mean.standard_error is None:
        how = "sign test"
        reason = "one pair has no spread" if mean.n == 1 else f"all {mean.n} pairs differ by the same amount: exact bounds"
        reason = f"but for their places {reason}" if mean.terms else reason
    return Quantity(value=value, low=low, high=high, n=mean.n, method=how, reason=reason)


def described(finding: GateFinding) -> str:
    """The observation and its consequence, as half a sentence."""
    if finding.slowdown is None:
        return finding.fault
    seen = ratio(finding)
    value, low, high = ("none" if figure is None else f"{figure:.4g}" for figure in (seen.value, seen.low, seen.high))
    spread = f"; {seen.reason}" if seen.reason else ""
    pairs = "1 pair" if finding.pairs == 1 else f"{finding.pairs} pairs"
    return f"NEW / BASE {value} in {pairs} (bounds {low} and {high}{spread}), so {WORDS[finding.outcome]}"


def more_pairs(finding: GateFinding) -> str:
    """How many pairs would decide it, at the observed mean and spread."""
    mean, limit = finding.slowdown, math.log1p(finding.metric.margin)
    if mean is None or mean.standard_error is None:
        return "measure 12 pairs of fresh processes"
    enough = mean.units_to_decide(limit, finding.low_level if mean.mean > limit else finding.high_level)
    if enough is None:
        return "no affordable number of pairs would decide it: the ratio is too close to the margin for this much noise"
    return f"about {enough} pairs in one look would decide it in 9 of 10 tries, if ratio and spread stay what they are"


Take = Callable[[NeedPairs], Ratios]
"""Measures pairs: d of each, by the keys that are asked for."""
ALPHA_WITHOUT_RERUN = 0.01
"""Replaces the re-run of stored pairs: the most that a slowdown equal to the margin may fail."""


def judge_in_pairs(
    metrics: Sequence[TimedMetric], take: Take, plan: GatePlan, order: PairOrder | None = None
) -> tuple[Judgement, ...]:
    """Every metric's answer, in their order: by the looks of the plan, and of what is slower there by a re-run.

    Args:
        take: measures the pairs that a look or the re-run lacks, and gives {key: [d, ...]}.
        order: which side runs first in each pair; None where that is not known, and then the place of a pair is no term.

    Raises:
        UserError: no metric, more than five, or two under one key.
    """
    check_timed(metrics)
    findings = _by_looks(metrics, take, plan, order)
    suspected = [metric for metric in metrics if findings[metric].outcome == "slower"]
    again: Findings = {}
    if suspected:
        why = "found slower: a regression is reported only if a re-run agrees"
        rerun = take(NeedPairs(pairs=plan.rerun_pairs, keys=_keys(suspected), stage="rerun", why=why))
        signs = order.signs("rerun", plan.rerun_pairs) if order else ()
        again = {metric: judge_look([metric], rerun, plan.alpha, signs=signs)[metric] for metric in suspected}
    return tuple(answer(findings[metric], again.get(metric)) for metric in metrics)


def _by_looks(metrics: Sequence[TimedMetric], take: Take, plan: GatePlan, order: PairOrder | None) -> Findings:
    """What the looks find: a metric decided at one look stays decided, and takes no more pairs."""
    findings: Findings = {}
    seen: dict[str, list[float]] = {metric.key: [] for metric in metrics}
    signs = order.signs("pair", plan.looks[-1]) if order else ()
    undecided, taken = list(metrics), 0
    for look, share in zip(plan.looks, plan.shares, strict=True):
        why = f"undecided before the look at {look} pairs"
        pairs = take(NeedPairs(pairs=look - taken, keys=_keys(undecided), stage="pair", why=why))
        for key in _keys(undecided):
            seen[key] += pairs[key]
        slower = sum(finding.outcome == "slower" for finding in findings.values())
        findings |= judge_look(undecided, seen, plan.alpha * share, len(metrics) - slower, signs)
        undecided, taken = [metric for metric in metrics if findings[metric].outcome == "open"], look
        if not undecided:
            break
    return findings


def _keys(metrics: Sequence[TimedMetric]) -> tuple[str, ...]:
    return tuple(metric.key for metric in metrics)


def judge_pairs(metrics: Sequence[TimedMetric], pairs: Ratios) -> tuple[Judgement, ...]:
    """Judge all pairs that exist (two stored runs): one look, and no re-run can confirm a suspicion.

    So a metric fails only at one-sided alpha 0.01 (Holm); suspected at 0.05 but not at 0.01 is inconclusive. Metrics may have
    different numbers of pairs; a metric without any is void.

    Raises:
        UserError: no metric, more than five, or two under one key.
    """
    check_timed(metrics)
    seen = {metric.key: pairs.get(metric.key, ()) for metric in metrics}
    usual, strict = judge_look(metrics, seen, ALPHA), judge_look(metrics, seen, ALPHA_WITHOUT_RERUN)
    return tuple(answer_without_rerun(usual[metric], strict[metric]) for metric in metrics)
