"""A timed metric's findings as the judgement that is shown: state, ratio with its bounds, and the reason in words."""

from __future__ import annotations

import math

from harness.analysis.judgement import Judgement, State
from harness.analysis.stats.one_sided import FEWEST_FOR_OUTLIERS
from harness.analysis.stats.quantity import Quantity, absent
from harness.regression.gate_decision import Finding, Outcome
from harness.regression.gate_metrics import TimedMetric

STATES: dict[Outcome, State] = {"slower": "missed", "passed": "met", "open": "inconclusive", "void": "void"}
WORDS: dict[Outcome, str] = {
    "slower": "it is beyond the margin", "passed": "it is within the margin", "open": "the margin lies between its bounds",
}  # fmt: skip
AFTER_SUSPICION: dict[Outcome, str] = {
    "slower": "confirmed", "passed": "not confirmed", "open": "suspected, not confirmed", "void": "not confirmed",
}  # fmt: skip
RUN_AGAIN = "see why those processes gave no figure, and run the gate again"


def answer(metric: TimedMetric, first: Finding, rerun: Finding | None = None) -> Judgement:
    """The judgement of a metric; of its re-run where it was suspected, for the figure that raised suspicion leans upwards."""
    if rerun is None:
        return judged(metric, first, STATES[first.outcome], described(metric, first))
    end = AFTER_SUSPICION[rerun.outcome]
    reason = f"suspected: {described(metric, first)}; re-run alone: {described(metric, rerun)}: {end}"
    sizes = {"pairs": first.pairs, "rerun_pairs": rerun.pairs}
    return judged(metric, rerun, STATES[rerun.outcome], reason, sizes)


def answer_without_rerun(metric: TimedMetric, usual: Finding, strict: Finding) -> Judgement:
    """The judgement where no re-run can be had: what the usual level suspects fails only where the ``strict`` one agrees."""
    if usual.outcome != "slower" or strict.outcome == "slower":
        return answer(metric, strict if usual.outcome == "slower" else usual)
    reason = f"suspected, not confirmed: {described(metric, usual)}, but not at the level that stands in for a re-run"
    return judged(metric, strict, "inconclusive", reason)


def judged(metric: TimedMetric, shown: Finding, state: State, reason: str, sizes: dict[str, int] | None = None) -> Judgement:
    """A judgement that shows this finding."""
    limit = math.exp(metric.sign * math.log1p(metric.margin))
    most = "most" if metric.sign > 0 else "least"
    bound = f"at {most} {limit:.4g} × BASE (margin {metric.margin:.3%}: {metric.margin_source})"
    remedies: dict[State, str | None] = {"inconclusive": more_pairs(metric, shown), "void": RUN_AGAIN}
    return Judgement(
        subject=metric.subject, metric=metric.metric, kind="timed", state=state, cell=metric.cell, value=ratio(metric, shown),
        unit="x", better=metric.better, bound=bound, basis=metric.basis, sizes=sizes or {"pairs": shown.pairs}, reason=reason,
        remedy=remedies.get(state),
    )  # fmt: skip


def ratio(metric: TimedMetric, finding: Finding) -> Quantity:
    """NEW / BASE with a lower and an upper one-sided bound; a bound that so few pairs cannot give is None."""
    mean = finding.slowdown
    if mean is None:
        return absent(finding.fault or "nothing was measured")
    bounds = [mean.low(finding.low_level), mean.high(finding.high_level)][:: metric.sign]
    value, low, high = (None if one is None else exponential(metric.sign * one) for one in (mean.mean, *bounds))
    how, reason = f"one-sided t (slower: {finding.low_level:.4g} after Holm, passed: {finding.high_level:.4g})", None
    if mean.terms:
        estimate = "Huber's M-estimate" if mean.n >= FEWEST_FOR_OUTLIERS else "least squares"
        how = f"{estimate} with the place of a pair as a term, {how}"
    if mean.standard_error is None:
        how = "sign test"
        reason = "one pair has no spread" if mean.n == 1 else f"all {mean.n} pairs differ by the same amount: exact bounds"
        reason = f"but for their places {reason}" if mean.terms else reason
    return Quantity(value=value, low=low, high=high, n=mean.n, method=how, reason=reason)


def exponential(log: float) -> float | None:
    """exp, or None where there is no such finite number: a bound from two pairs far apart."""
    return math.exp(log) if log < 700 else None


def described(metric: TimedMetric, finding: Finding) -> str:
    """What was seen and what follows, as half a sentence."""
    if finding.slowdown is None:
        return finding.fault or "nothing was measured"
    seen = ratio(metric, finding)
    value, low, high = ("none" if one is None else f"{one:.4g}" for one in (seen.value, seen.low, seen.high))
    spread = f"; {seen.reason}" if seen.reason else ""
    pairs = "1 pair" if finding.pairs == 1 else f"{finding.pairs} pairs"
    return f"NEW / BASE {value} in {pairs} (bounds {low} and {high}{spread}), so {WORDS[finding.outcome]}"


def more_pairs(metric: TimedMetric, finding: Finding) -> str:
    """How many pairs would decide it, at the mean and the spread seen."""
    mean, limit = finding.slowdown, math.log1p(metric.margin)
    if mean is None or mean.standard_error is None:
        return "measure 12 pairs of fresh processes"
    level = finding.low_level if mean.mean > limit else finding.high_level
    enough = mean.units_to_decide(limit, level)
    if enough is None:
        return "no affordable number of pairs would decide it: the ratio is too close to the margin for this much noise"
    return f"about {enough} pairs in one look would decide it in 9 of 10 tries, if ratio and spread stay what they are"
