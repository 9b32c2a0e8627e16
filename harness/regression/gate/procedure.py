"""The decision of a timed regression gate: which pairs of fresh processes it still needs, and what they show.

The input is d = log(NEW / BASE) per pair and metric (``metrics.log_ratio``); the gate starts no process.

    judge_in_pairs(metrics, lambda step: run_pairs(step.pairs), plan)     # {key: [d, ...]} for step.keys

The looks of the plan come first, with Holm over all metrics. A metric that is slower there is only suspected. It is measured
once more, alone, at alpha, and fails if the new pairs alone show it too. So a slowdown equal to the margin fails with
probability of about alpha² per metric.

By design the gate does not detect a slowdown within the margin, and rarely one just beyond it. It cannot detect one that both
revisions share, or that shows in no given metric. benchmarks/gate_power gives the share found for each size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from harness.analysis.judge.judgement import Judgement, State
from harness.regression.gate.decision import ALPHA, GateFinding, GatePlan, NeedPairs, Outcome, PairOrder, judge_look
from harness.regression.metrics import TimedMetric, check_timed
from harness.stats.one_sided import FEWEST_FOR_OUTLIERS
from harness.stats.quantity import Quantity, absent

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


Take = Callable[[NeedPairs], Mapping[str, Sequence[float]]]
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
    again: dict[TimedMetric, GateFinding] = {}
    if suspected:
        why = "found slower: a regression is reported only if a re-run agrees"
        rerun = take(NeedPairs(pairs=plan.rerun_pairs, keys=_keys(suspected), stage="rerun", why=why))
        signs = order.signs("rerun", plan.rerun_pairs) if order else ()
        again = {metric: judge_look([metric], rerun, plan.alpha, signs=signs)[metric] for metric in suspected}
    return tuple(answer(findings[metric], again.get(metric)) for metric in metrics)


def _by_looks(
    metrics: Sequence[TimedMetric], take: Take, plan: GatePlan, order: PairOrder | None
) -> dict[TimedMetric, GateFinding]:
    """What the looks find: a metric decided at one look stays decided, and takes no more pairs."""
    findings: dict[TimedMetric, GateFinding] = {}
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


def judge_pairs(metrics: Sequence[TimedMetric], pairs: Mapping[str, Sequence[float]]) -> tuple[Judgement, ...]:
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
