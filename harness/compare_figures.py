"""What claims are made about beside the wall speedup: one arm's other figures, each with an interval over prompts.

At batch sizes above 1 a batch takes the place of a prompt. What is a ratio of sums has two entries: the geometric mean over
prompts under its name, and the ratio of totals under the name with ``_totals``. Knows no claim.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harness import stats
from harness.compare_accuracy import Grades
from harness.compare_arms import Pair
from harness.compare_tally import Tally
from harness.stats import Quantity, absent, exact
from harness.stats_percentile import percentile

TOTALS = "_totals"
PERCENTILES = (50, 90, 95, 99)
ENERGY_WINDOW_S = 5.0
"""Shorter windows hold too few steps of an energy counter that moves every 100 ms (measurement notes, section 2)."""
NO_ENERGY = "no energy was read over these decodes (sbd doctor says what this machine can read)"
NO_INTERVAL = "a ratio of totals of this figure has no interval; use the geometric mean"
Prompt = tuple[str, int]
Terms = tuple[float, float]
"""What is divided by what, of one decode or one pair of decodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decodes:
    """The decodes of one arm: all, those with a time, and those with the decode of NTP beside them; and why there is none."""

    counted: Sequence[Tally]
    timed: Sequence[Tally]
    pairs: Sequence[Pair]
    why_untimed: str
    why_unpaired: str


def arm_figures(decodes: Decodes, read_ceiling: Quantity) -> dict[str, Quantity]:
    """Every figure of one arm but its accuracy, by the name that a claim uses."""
    timed, why = decodes.timed, decodes.why_untimed
    return {
        **_both("nfe_speedup", decodes.counted, lambda t: (t.decode_tokens, t.row_passes), "no decode pass was made"),
        **_both("tokens_per_s", timed, lambda t: (t.decode_tokens, t.decode_s or 0.0), why),
        **_both("joules_per_token", [t for t in timed if t.energy_j], _energy_terms, NO_ENERGY if timed else why),
        **_bandwidth_share(timed, read_ceiling, why),
        **_latencies(timed, why),
        **_wall_over_nfe(decodes.pairs, decodes.why_unpaired),
        **_prediction_error(decodes.pairs, decodes.why_unpaired),
    }


def accuracy_figures(arm: Grades, ntp: Grades, why_none: str) -> dict[str, Quantity]:
    """Percentage points of accuracy lost to NTP, prompt by prompt, and their standard deviation over prompts.

    The ends of the loss are one-sided 95 % bounds each (two one-sided tests): what is lost at least, and what at most.
    """
    gains = [arm[prompt] - ntp[prompt] for prompt in arm if prompt in ntp]
    if not gains:
        return {"accuracy_loss_points": absent(why_none), "accuracy_loss_sd_points": absent(why_none)}
    gain, loss = stats.paired_lower_bound(gains), stats.paired_lower_bound([-one for one in gains])
    found = Quantity(
        value=_points(loss.value), low=_points(loss.low), high=None if gain.low is None else -100 * gain.low,
        n=gain.n, method=f"one-sided 95 % bounds: {gain.method}", reason=gain.reason,
    )  # fmt: skip
    sd = exact(100 * statistics.stdev(gains), n=len(gains)) if len(gains) > 1 else absent("one prompt only")
    return {"accuracy_loss_points": found, "accuracy_loss_sd_points": sd}


def _both(name: str, tallies: Sequence[Tally], terms: Callable[[Tally], Terms], why_none: str) -> dict[str, Quantity]:
    """A ratio of two sums of one arm, by either estimator."""
    usable = [(tally, pair) for tally in tallies if min(pair := terms(tally)) > 0]
    mean = _geometric_mean([pair for _, pair in usable], [tally for tally, _ in usable], why_none)
    totals = stats.ratio_of_totals([pair for _, pair in usable]) if usable else absent(why_none)
    return {name: mean, name + TOTALS: totals}


def _geometric_mean(terms: Sequence[Terms], of: Sequence[Tally], why_none: str) -> Quantity:
    return stats.geometric_mean_ratio(terms, clusters=[tally.key[:2] for tally in of]) if terms else absent(why_none)


def _energy_terms(tally: Tally) -> Terms:
    long = (tally.latency_s or 0.0) >= ENERGY_WINDOW_S
    return (tally.energy_j or 0.0, tally.output_tokens) if long else (0.0, 0.0)


def _bandwidth_share(timed: Sequence[Tally], ceiling: Quantity, why_none: str) -> dict[str, Quantity]:
    """Modelled bytes of the decode's forwards over their time and the read ceiling."""
    name, rate = "bandwidth_share", ceiling.value
    if rate is None:
        return {key: absent(ceiling.reason or why_none) for key in (name, name + TOTALS)}
    return _both(name, timed, lambda t: (t.bytes_, (t.forward_s or 0.0) * rate), why_none)


def _latencies(timed: Sequence[Tally], why_none: str) -> dict[str, Quantity]:
    """Percentiles over prompts of the request latency, prefill and decode; repeats of a prompt are one value, their mean."""
    known = [tally for tally in timed if tally.latency_s is not None]
    means = stats.cluster_means([tally.latency_s or 0.0 for tally in known], [tally.key[:2] for tally in known])
    return {f"latency_p{p}_s": percentile(means, p) if means else absent(why_none) for p in PERCENTILES}


def _wall_over_nfe(pairs: Sequence[Pair], why_none: str) -> dict[str, Quantity]:
    """Wall speedup ÷ NFE speedup over the same pairs: what became of the passes that were saved.

    Per pair this is NTP's time per row-pass over the arm's, for speedups are both per decode token.
    """
    usable = [(ntp, arm) for ntp, arm in pairs if ntp.row_passes and arm.row_passes]
    terms = [(_per_row_pass(ntp), _per_row_pass(arm)) for ntp, arm in usable]
    mean = _geometric_mean(terms, [arm for _, arm in usable], why_none)
    if not usable:
        return {"wall_over_nfe": mean, "wall_over_nfe" + TOTALS: mean}
    sums = [
        (math.fsum(tally.decode_s or 0.0 for tally in side), sum(tally.row_passes for tally in side))
        for side in zip(*usable, strict=True)
    ]
    (ntp_s, ntp_passes), (arm_s, arm_passes) = sums
    totals = Quantity(value=(ntp_s / ntp_passes) / (arm_s / arm_passes), n=mean.n, reason=NO_INTERVAL)
    return {"wall_over_nfe": mean, "wall_over_nfe" + TOTALS: totals}


def _per_row_pass(tally: Tally) -> float:
    return (tally.decode_s or 0.0) / tally.row_passes


def _prediction_error(pairs: Sequence[Pair], why_none: str) -> dict[str, Quantity]:
    """Predicted ÷ measured wall speedup - 1, on the highest rung that priced both decodes of every pair."""
    if not pairs:
        return {"prediction_error": absent(why_none)}
    shared = [rung for rung in pairs[0][0].priced_s if all(rung in tally.priced_s for pair in pairs for tally in pair)]
    if not shared:
        return {"prediction_error": absent("there are no ceilings to predict these decodes with")}
    rung = shared[0]
    terms = [
        (ntp.priced_s[rung][1] / arm.priced_s[rung][1], (ntp.decode_s or 0.0) / (arm.decode_s or 0.0)) for ntp, arm in pairs
    ]
    found = _geometric_mean(terms, [arm for _, arm in pairs], why_none)
    value, low, high = (None if end is None else end - 1 for end in (found.value, found.low, found.high))
    return {"prediction_error": replace(found, value=value, low=low, high=high, method=f"{rung} roofline; {found.method}")}


def _points(share: float | None) -> float | None:
    return None if share is None else 100 * share
