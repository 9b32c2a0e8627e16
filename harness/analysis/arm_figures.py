"""The figures of one arm that claims name, besides the wall speedup; each has an interval over prompts.

At batch sizes above 1 a batch takes the place of a prompt. A ratio of sums has two entries. Its name alone is the geometric
mean over prompts; its name with ``_totals`` is the ratio of totals.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.analysis.accuracy import Clusters, Grades, gains
from harness.analysis.arm_metrics import Pair
from harness.analysis.pass_values import DURING_RUN, price_words
from harness.analysis.sample_totals import Tally
from harness.analysis.stats import quantity
from harness.analysis.stats.quantity import Quantity, absent, exact
from harness.analysis.stats.ratios import geometric_mean_ratio, ratio_of_totals
from harness.analysis.stats.sample_size import percentile_over_processes
from harness.scenario.metrics import PERCENTILES, PRICES

TOTALS = "_totals"
ENERGY_WINDOW_S = 5.0
"""Seconds; a shorter window holds too few steps of an energy counter that moves every 100 ms."""
NO_ENERGY = "no energy was read over these decodes (sbd doctor says what this machine can read)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decodes:
    """The decodes of one arm: all, those with a time, those paired with a decode of NTP, and why the latter two are absent."""

    counted: Sequence[Tally]
    timed: Sequence[Tally]
    pairs: Sequence[Pair]
    why_untimed: str
    why_unpaired: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Term:
    """What one decode, or one pair of them, adds to (Σ over ÷ Σ over_per) ÷ (Σ under ÷ Σ under_per)."""

    of: Tally
    over: float
    under: float
    over_per: float = 1.0
    under_per: float = 1.0


def arm_figures(decodes: Decodes, read_ceiling: Quantity, confidence: float = quantity.CONFIDENCE) -> dict[str, Quantity]:
    """Every figure of one arm but its accuracy, by the name that a claim uses, with intervals at ``confidence``."""
    timed, why = decodes.timed, decodes.why_untimed
    passes = [_Term(of=t, over=t.decode_tokens, under=t.row_passes) for t in decodes.counted]
    rates = [_Term(of=t, over=t.decode_tokens, under=t.decode_s or 0.0) for t in timed]
    return {
        **_both("nfe_speedup", passes, "no decode pass was made", confidence, clock=False),
        **_both("tokens_per_s", rates, why, confidence),
        **_both("joules_per_token", _energy(timed), NO_ENERGY if timed else why, confidence),
        **_bandwidth_share(timed, read_ceiling, why, confidence),
        **_latencies(timed, why, confidence),
        **_wall_over_nfe(decodes.pairs, decodes.why_unpaired, confidence),
        **_request_speedup(decodes.pairs, decodes.why_unpaired, confidence),
        **_prediction_errors(decodes.pairs, decodes.why_unpaired, confidence),
    }


def accuracy_figures(
    arm: Grades, ntp: Grades, related: Clusters, why_none: str, confidence: float = quantity.CONFIDENCE
) -> dict[str, Quantity]:
    """Accuracy lost to NTP in percentage points, prompt by prompt, and its standard deviation over prompts.

    The ends of the loss are one-sided bounds (two one-sided tests): the least and the most that is lost. ``n`` of the deviation
    counts the unrelated prompts that carry the same information.
    """
    alone = len(arm.keys() ^ ntp.keys())
    if arm and ntp and alone:
        why_none = f"{alone} prompts were graded for NTP alone or for this arm alone: what is left out of one side flatters it"
    if not arm or not ntp or alone:
        return {"accuracy_loss_points": absent(why_none), "accuracy_loss_sd_points": absent(why_none)}
    gained, belongs_to = gains(arm, ntp, related)
    gain = quantity.paired_lower_bound(gained, confidence, belongs_to)
    loss = quantity.paired_lower_bound([-one for one in gained], confidence, belongs_to)
    found = Quantity(
        value=_points(loss.value), low=_points(loss.low), high=None if gain.low is None else -100 * gain.low,
        n=gain.n, method=f"one-sided {100 * confidence:.4g} % bounds: {gain.method}", reason=gain.reason,
    )  # fmt: skip
    if len(gained) < 2:
        return {"accuracy_loss_points": found, "accuracy_loss_sd_points": absent("one prompt only")}
    sd = exact(100 * statistics.stdev(gained), n=quantity.effective_pairs(gained, belongs_to))
    return {"accuracy_loss_points": found, "accuracy_loss_sd_points": sd}


def _both(name: str, terms: Sequence[_Term], why_none: str, confidence: float, clock: bool = True) -> dict[str, Quantity]:
    """A ratio by either estimator; ``clock``: it rests on times, which differ from process to process."""
    usable = [term for term in terms if min(term.over, term.under, term.over_per, term.under_per) > 0]
    if not usable:
        return {name: absent(why_none), name + TOTALS: absent(why_none)}
    prompts = [term.of.key[:2] for term in usable]
    processes = [term.of.key[3] for term in usable] if clock else None
    ratios = [(term.over / term.over_per, term.under / term.under_per) for term in usable]
    sums, per = [(term.over, term.under) for term in usable], [(term.over_per, term.under_per) for term in usable]
    return {
        name: geometric_mean_ratio(ratios, prompts, processes, confidence),
        name + TOTALS: ratio_of_totals(sums, per, prompts, processes, confidence),
    }


def _energy(timed: Sequence[Tally]) -> list[_Term]:
    """Joules of prefill and decode ÷ new tokens, over the decodes that lasted long enough to be metered."""
    long = [tally for tally in timed if tally.energy_j and (tally.latency_s or 0.0) >= ENERGY_WINDOW_S]
    return [_Term(of=tally, over=tally.energy_j or 0.0, under=tally.output_tokens) for tally in long]


def _bandwidth_share(timed: Sequence[Tally], ceiling: Quantity, why_none: str, confidence: float) -> dict[str, Quantity]:
    """Modelled bytes of the decode's forwards ÷ (their time · read ceiling)."""
    if ceiling.value is None:
        why_none = ceiling.reason or why_none
    rate = ceiling.value or 0.0
    terms = [_Term(of=t, over=t.bytes_, under=(t.forward_s or 0.0) * rate) for t in timed]
    return _both("bandwidth_share", terms, why_none, confidence)


def _latencies(timed: Sequence[Tally], why_none: str, confidence: float) -> dict[str, Quantity]:
    """Percentiles over prompts of the request latency, prefill and decode; repeats in a process are averaged."""
    known = [tally for tally in timed if tally.latency_s is not None]
    if not known:
        return {f"latency_p{p}_s": absent(why_none) for p in PERCENTILES}
    latencies = [tally.latency_s or 0.0 for tally in known]
    labels = [tally.key[:2] for tally in known], [tally.key[3] for tally in known]
    return {f"latency_p{p}_s": percentile_over_processes(latencies, *labels, p, confidence) for p in PERCENTILES}


def _request_speedup(pairs: Sequence[Pair], why_none: str, confidence: float) -> dict[str, Quantity]:
    """Time of the whole request per output token, prompt included, NTP ÷ arm."""
    terms = [
        _Term(
            of=arm, over=ntp.latency_s or 0.0, over_per=ntp.output_tokens, under=arm.latency_s or 0.0,
            under_per=arm.output_tokens,
        )
        for ntp, arm in pairs
    ]  # fmt: skip
    return _both("request_speedup", terms, why_none, confidence)


def _wall_over_nfe(pairs: Sequence[Pair], why_none: str, confidence: float) -> dict[str, Quantity]:
    """Wall speedup ÷ NFE speedup over the same pairs: the share of the saved passes that saves time.

    Both speedups are per decode token, so this is NTP's time per row-pass over the arm's.
    """
    terms = [
        _Term(of=arm, over=ntp.decode_s or 0.0, over_per=ntp.row_passes, under=arm.decode_s or 0.0, under_per=arm.row_passes)
        for ntp, arm in pairs
    ]
    return _both("wall_over_nfe", terms, why_none, confidence)


def _prediction_errors(pairs: Sequence[Pair], why_none: str, confidence: float) -> dict[str, Quantity]:
    """Predicted ÷ measured wall speedup - 1, ex-ante and with passes measured during the run. Ex-ante: by the highest rung that
    priced both decodes of every pair, from facts known before the first sample.
    """
    priced = set.intersection(*(set(t.priced_s) for pair in pairs for t in pair)) if pairs else set()
    ex_ante = next((price for price in PRICES if price in priced and price != DURING_RUN), None)
    during = DURING_RUN if DURING_RUN in priced else None
    why_neither = "there are no ceilings to predict these decodes with" if pairs else why_none
    why_not_during = "no pass of this model was measured during the run" if ex_ante else why_neither
    return {
        **_prediction_error("prediction_error", ex_ante, pairs, why_neither, confidence),
        **_prediction_error("prediction_error_during_run", during, pairs, why_not_during, confidence),
    }


def _prediction_error(
    name: str, price: str | None, pairs: Sequence[Pair], why_none: str, confidence: float
) -> dict[str, Quantity]:
    if price is None:
        return _both(name, (), why_none, confidence)
    terms = [
        _Term(
            of=arm, over=ntp.priced_s[price][1], over_per=arm.priced_s[price][1], under=ntp.decode_s or 0.0,
            under_per=arm.decode_s or 0.0,
        )
        for ntp, arm in pairs
    ]  # fmt: skip
    return {key: _less_one(found, price) for key, found in _both(name, terms, why_none, confidence).items()}


def _less_one(ratio: Quantity, price: str) -> Quantity:
    value, low, high = (None if end is None else end - 1 for end in (ratio.value, ratio.low, ratio.high))
    return replace(ratio, value=value, low=low, high=high, method=f"{price_words(price)} roofline; {ratio.method}")


def _points(share: float | None) -> float | None:
    return None if share is None else 100 * share
