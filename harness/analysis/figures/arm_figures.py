"""The figures that claims name, each with an interval over prompts; those over requests are in request_figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from harness.analysis.figures import accuracy as on_accuracy
from harness.analysis.figures import arm_metrics
from harness.analysis.figures.arm_metrics import Pair, Term, pair_up
from harness.analysis.figures.arms import NO_NTP, NOT_TIMED, TOTALS, ArmBesideNtp, Figures, both, figure
from harness.analysis.figures.of_files import speedups_of_files
from harness.analysis.tally.pass_values import DURING_RUN, price_words
from harness.analysis.tally.tally import distinct_share, labels_of
from harness.scenario.metrics import PERCENTILES, PRICES
from harness.stats.quantity import absent, exact
from harness.stats.sample_size import percentile_over_processes

ENERGY_STEP_S, CPU_ENERGY_STEP_S = 0.1, 0.001
"""Seconds between two steps of the energy counter of a GPU (NVML) and of a CPU (RAPL)."""
NO_ENERGY = "no energy was read over these decodes (sbd doctor says what this machine can read)"
REPETITIVE = 0.6
"""An answer with a smaller share of distinct 4-grams repeats itself."""
NOT_SERVED = "no server decoded this arm, or nothing was greedy: only then are answers held against the weights"
BY_DEFINITION = "NTP is what the other arms are compared with: 1 by definition"


@figure("wall_speedup")
def wall_speedup(one: ArmBesideNtp, level: float) -> Figures:
    """Decode time per decode token, NTP ÷ arm; NTP, and an arm that lacks prompts of NTP, have no interval.

    Without pairs, in an imported run, an arm's files are compared with NTP's as wholes.
    """
    mean, totals = arm_metrics.wall_speedups(one.pairs, one.why_unpaired if one.place.timed else NOT_TIMED, level)
    if one.place.unpaired is not None and one.ntp is not None and one.place.timed:
        mean = totals = absent(BY_DEFINITION)
        if one.reference is not None:
            sides = one.ntp.tallies, one.arm.tallies
            mean, totals = speedups_of_files(*sides, "decode_s", "decode_tokens", one.place.widest, level)
    elif one.pairs and (one.reference is None or one.lost):
        reason = one.why_lost or BY_DEFINITION
        mean, totals = mean.without_interval(reason), totals.without_interval(reason)
    return {"wall_speedup": mean, "wall_speedup" + TOTALS: totals}


@figure("request_speedup")
def request_speedup(one: ArmBesideNtp, level: float) -> Figures:
    """Time of the whole request per output token, prompt included, NTP ÷ arm."""
    ntp = one.reference.tallies if one.reference and not one.lost else ()
    if one.place.unpaired is not None and ntp:
        mean, totals = speedups_of_files(ntp, one.arm.tallies, "latency_s", "output_tokens", one.place.widest, level)
        return {"request_speedup": mean, "request_speedup" + TOTALS: totals}
    terms = [
        Term(arm, ntp.latency_s or 0.0, arm.latency_s or 0.0, ntp.output_tokens, arm.output_tokens)
        for ntp, arm in pair_up(ntp, one.arm.tallies, "latency_s")
        if min(ntp.decode_tokens, arm.decode_tokens) > 0
    ]
    return both("request_speedup", terms, one.why_uncompared, level)


@figure("wall_over_nfe")
def wall_over_nfe(one: ArmBesideNtp, level: float) -> Figures:
    """Wall speedup ÷ NFE speedup over the same pairs, the share of the saved passes that saves time.

    Both are per decode token, so it is NTP's time per row-pass over the arm's.
    """
    terms = [
        Term(arm, ntp.decode_s or 0.0, arm.decode_s or 0.0, ntp.sums.row_passes, arm.sums.row_passes)
        for ntp, arm in one.compared
        if ntp.sums.row_passes is not None and arm.sums.row_passes is not None
    ]
    return both("wall_over_nfe", terms, one.place.lacks.get("passes", one.why_uncompared), level)


@figure("tokens_per_s")
def tokens_per_s(one: ArmBesideNtp, level: float) -> Figures:
    """Decode tokens by decode time."""
    terms = [Term(tally, tally.decode_tokens, tally.decode_s or 0.0) for tally in one.timed]
    return both("tokens_per_s", terms, one.why_untimed, level)


@figure("joules_per_token")
def joules_per_token(one: ArmBesideNtp, level: float) -> Figures:
    """Energy of prefill and decode ÷ output tokens, over all decodes together: those that a limit left out would be the short
    ones. A window misses up to a step of the counter, or holds one too many, so the interval reaches so much further.
    """
    still = sum(not tally.energy_j for tally in one.timed)
    read = [(tally, tally.energy_j or 0.0) for tally in (() if still else one.timed)]
    why = NO_ENERGY if still == len(one.timed) else f"the energy counter did not move in {still} of {len(one.timed)} decodes"
    terms = [Term(tally, joules, tally.output_tokens) for tally, joules in read]
    found = both("joules_per_token", terms, why if one.timed else one.why_untimed, level)["joules_per_token" + TOTALS]
    if found.low and found.high:
        step_s = CPU_ENERGY_STEP_S if (one.arm.cases[0].device or "").startswith("cpu") else ENERGY_STEP_S
        unknown = math.fsum(joules * min(1.0, step_s / (tally.metered_s or step_s)) for tally, joules in read)
        share = unknown / math.fsum(joules for _, joules in read)
        method = f"{found.method}, {share:.1%} wider for the counter's steps"
        found = replace(found, low=found.low * (1 - share), high=found.high * (1 + share), method=method)
    return {"joules_per_token": found}


@figure("bandwidth_share")
def bandwidth_share(one: ArmBesideNtp, level: float) -> Figures:
    """Modelled bytes of the decode's forwards ÷ (their time · read ceiling)."""
    ceiling = one.place.ladder.read_ceiling
    rate = ceiling.value or 0.0
    terms = [Term(tally, tally.sums.bytes_, (tally.sums.forward_s or 0.0) * rate) for tally in one.timed]
    return both("bandwidth_share", terms, ceiling.reason or one.why_untimed, level)


@figure("nfe_speedup")
def nfe_speedup(one: ArmBesideNtp, level: float) -> Figures:
    """Decode tokens by row-passes, which is 1 for NTP."""
    known = [(tally, tally.sums.row_passes) for tally in one.arm.tallies]
    terms = [Term(tally, tally.decode_tokens, count) for tally, count in known if count is not None]
    return both("nfe_speedup", terms, one.why_no_passes, level, clock=False)


@figure("lossless")
def lossless(_one: ArmBesideNtp, _level: float) -> Figures:
    """Of an arm that a server decoded, what harness.analysis.tally.served counts takes its place."""
    return {"lossless": absent(NOT_SERVED)}


@figure("identical_to_ntp")
def identical_to_ntp(one: ArmBesideNtp, level: float) -> Figures:
    """Share of prompts on which the arm wrote NTP's output; absent where that is not defined."""
    arm, ntp = one.arm, one.reference
    if arm.replayed:
        found = absent(on_accuracy.REPLAYED)
    elif ntp is None:
        found = absent(NO_NTP if one.ntp is None else BY_DEFINITION)
    elif arm.temperature or ntp.temperature:
        found = absent("sampled outputs differ by chance")
    else:
        why_none = one.place.lacks.get("output_ids", one.why_unpaired)
        found = on_accuracy.identical_outputs(ntp.outputs, arm.outputs, why_none, level)
    return {"identical_to_ntp": found}


@figure("accuracy_difference", "accuracy_loss_points")
def accuracy_to_ntp(one: ArmBesideNtp, level: float) -> Figures:
    """Accuracy of the arm less that of NTP, with the lower end of its interval, and what is lost in percentage points."""
    ntp = one.reference.grades if one.reference else {}
    sides = one.arm.grades, ntp, one.arm.related, one.why_ungraded, one.place.wrong, level
    gain = absent("NTP is what the other arms are compared with") if one.ntp is one.arm else on_accuracy.difference(*sides)
    return {"accuracy_difference": gain} | on_accuracy.accuracy_figures(*sides)


@figure(*(f"latency_p{percent}_s" for percent in PERCENTILES))
def latencies(one: ArmBesideNtp, level: float) -> Figures:
    """Percentiles over prompts of the request latency, prefill and decode; repeats in a process are averaged."""
    columns = zip([tally.latency_s for tally in one.arm.tallies], *labels_of(one.arm.tallies), strict=True)
    known = [(seconds, unit, process) for seconds, unit, process in columns if seconds is not None]
    if not known:
        return {f"latency_p{percent}_s": absent(one.why_untimed) for percent in PERCENTILES}
    seconds, prompts, processes = zip(*known, strict=True)
    if one.place.load is not None:  # prompts of one number may have nothing in common
        prompts = tuple(zip(prompts, processes, strict=True))
    return {
        f"latency_p{percent}_s": percentile_over_processes(seconds, prompts, processes, percent, level)
        for percent in PERCENTILES
    }


@figure("distinct4_median")
def repetition(one: ArmBesideNtp, level: float) -> Figures:
    """The median over prompts of the share of distinct 4-grams among those of an answer.

    Beside it ``repetitive_answers``, the share of answers below REPETITIVE, and ``short_answers``, of one token at most.
    """
    written = [(answer.row.output_ids, answer.prompt, tally.key[3]) for tally in one.arm.tallies for answer in tally.answers]
    known = [(ids, prompt, process) for ids, prompt, process in written if ids is not None]
    if not known:
        nothing = absent(one.place.lacks.get("output_ids", "no answer"))
        return dict.fromkeys(("distinct4_median", "repetitive_answers", "short_answers"), nothing)
    outputs, prompts, processes = zip(*known, strict=True)
    shares = [*map(distinct_share, outputs)]
    return {
        "distinct4_median": percentile_over_processes(shares, prompts, processes, 50, level),
        "repetitive_answers": exact(sum(share < REPETITIVE for share in shares) / len(shares), n=len(shares)),
        "short_answers": exact(sum(len(ids) < 2 for ids in outputs) / len(outputs), n=len(outputs)),
    }


@figure("prediction_error", "prediction_error_during_run")
def prediction_errors(one: ArmBesideNtp, level: float) -> Figures:
    """Predicted ÷ measured wall speedup - 1, ex-ante and with passes measured during the run. Ex-ante: by the highest rung that
    priced both decodes of every pair, from facts known before the first sample.
    """
    pairs, why_none = one.compared, one.place.lacks.get("passes", one.why_uncompared)
    priced = set.intersection(*(set(tally.sums.priced_s) for pair in pairs for tally in pair)) if pairs else set()
    ex_ante = next((price for price in PRICES if price in priced and price != DURING_RUN), None)
    during = DURING_RUN if DURING_RUN in priced else None
    why_neither = "there are no ceilings to predict these decodes with" if pairs else why_none
    why_not_during = "no pass of this model was measured during the run" if ex_ante else why_neither
    found = _prediction_error("prediction_error", ex_ante, pairs, why_neither, level)
    return found | _prediction_error("prediction_error_during_run", during, pairs, why_not_during, level)


def _prediction_error(row: str, price: str | None, pairs: Sequence[Pair], why_none: str, level: float) -> Figures:
    if price is None:
        return both(row, (), why_none, level)
    terms = [
        Term(arm, ntp.sums.priced_s[price][1], ntp.decode_s or 0.0, arm.sums.priced_s[price][1], arm.decode_s or 0.0)
        for ntp, arm in pairs
    ]
    found = {}
    for key, quotient in both(row, terms, why_none, level).items():
        value, low, high = (None if end is None else end - 1 for end in (quotient.value, quotient.low, quotient.high))
        method = f"{price_words(price)} roofline; {quotient.method}"
        found[key] = replace(quotient, value=value, low=low, high=high, method=method)
    return found
