"""Every value of one arm in one cell (``arm_result``): hands the samples to arm_metrics, arm_figures and accuracy."""

from __future__ import annotations

from itertools import zip_longest
from operator import attrgetter
from typing import Any

from harness.analysis.figures import accuracy as on_accuracy
from harness.analysis.figures import arm_metrics as on_arms
from harness.analysis.figures import unpaired
from harness.analysis.figures.arm_figures import NO_NTP, NOT_TIMED, ArmBesideNtp, claimed_figures
from harness.analysis.figures.request_figures import request_counts
from harness.analysis.results import ArmResult, Simultaneous
from harness.stats.quantity import CONFIDENCE, Quantity, absent, exact, quotient, simultaneous_confidence
from harness.stats.sample_size import prompts_for_width
from harness.analysis.tally.traffic import measured_bandwidth

NOT_PER_PASS = "the forward passes were not timed one by one"
ESTIMATED = (
    "decode time is estimated: the pass that reads the prompt drafts too, so it counts as one pass, and its time beyond that "
    "of NTP on the same prompt is decode time"
)
BY_DEFINITION = "NTP is what the other arms are compared with: 1 by definition"


def arm_result(one: ArmBesideNtp) -> ArmResult:
    """Every value of an arm, compared with NTP."""
    arm, tallies = one.arm, one.arm.tallies
    why_no_passes = one.place.lacks.get("passes", on_arms.NO_PASS)
    nfe, passes, fed, drafts, drafts_fed = (
        on_arms.summed(tallies, attrgetter(name))
        for name in ("row_passes", "passes", "fed_tokens", "draft_passes", "draft_fed_tokens")
    )
    over, under = (absent(why_no_passes) if one is None else exact(one) for one in (fed, passes))
    return ArmResult(
        label=arm.cases[0].label,
        method=arm.method,
        block_size=arm.spec.get("block_size"),
        gamma=arm.spec.get("gamma"),
        temperature=arm.temperature,
        solver=arm.spec.get("solver"),
        lossless=arm.spec.get("lossless"),
        replayed=arm.replayed,
        is_ntp=arm.method == "ntp",
        case_ids=tuple(case.case_id for case in arm.cases),
        samples=len(tallies),
        prompts=len({prompt for t in tallies for prompt in t.prompts}),
        decode_tokens=sum(t.decode_tokens for t in tallies),
        nfe=nfe,
        passes=passes,
        nfe_speedup=on_arms.nfe_speedup(tallies, arm.replayed is not None and arm.method != "ntp", why_no_passes),
        query_tokens_per_pass=quotient(over, under, on_arms.NO_PASS),
        final_tokens_histogram=tuple(map(sum, zip_longest(*(t.histogram for t in tallies), fillvalue=0))),
        figures=claimed_figures(one),
        requests=request_counts(tallies),
        draft_passes=drafts,
        draft_query_tokens=drafts_fed,
        identical_to_ntp=_identity(one),
        correct=sum(arm.grades.values()) if arm.grades else None,
        accuracy=arm.accuracy,
        accuracy_difference=absent("NTP is what the other arms are compared with")
        if arm is one.ntp
        else accuracy_difference(one),
        baseline_difference=_baseline_difference(one),
        **_times(one),
    )


def accuracy_difference(one: ArmBesideNtp, confidence: float = CONFIDENCE) -> Quantity:
    """Accuracy of the arm less that of NTP, with its one-sided lower bound at ``confidence``."""
    of_ntp = one.ntp.grades if one.ntp else {}
    return on_accuracy.difference(one.arm.grades, of_ntp, one.arm.related, one.why_ungraded, one.place.wrong, confidence)


def simultaneous(one: ArmBesideNtp, picked_from: int) -> Simultaneous:
    """The claimed figures of an arm picked from ``picked_from`` arms on these decodes, at the simultaneous level."""
    confidence = simultaneous_confidence(picked_from)
    wall, wall_totals = _wall_speedups(one, confidence)
    figures = {
        "wall_speedup": wall,
        "wall_speedup_totals": wall_totals,
        "accuracy_difference": accuracy_difference(one, confidence),
        "identical_to_ntp": _identity(one, confidence),
        **claimed_figures(one, confidence),
    }
    return Simultaneous(picked_from=picked_from, confidence=confidence, figures=figures)


def _wall_speedups(one: ArmBesideNtp, confidence: float = CONFIDENCE) -> tuple[Quantity, Quantity]:
    """By both estimators; NTP, and an arm that lacks prompts of NTP, have no interval.

    Without pairs, in an imported run, an arm's files are compared with NTP's as wholes.
    """
    if one.place.unpaired is not None and one.ntp is not None and one.place.timed:
        if one.ntp is one.arm:
            return absent(BY_DEFINITION), absent(BY_DEFINITION)
        return unpaired.wall_speedups(one.ntp_timed, one.timed, confidence)
    wall, wall_totals = on_arms.wall_speedups(one.pairs, one.why_unpaired if one.place.timed else NOT_TIMED, confidence)
    if one.pairs and (one.ntp is one.arm or one.lost):
        reason = one.why_lost or BY_DEFINITION
        return wall.without_interval(reason), wall_totals.without_interval(reason)
    return wall, wall_totals


def _times(one: ArmBesideNtp) -> dict[str, Any]:
    """Everything that rests on a clock, by field of ArmResult; samples without a time (void ones) are left out."""
    timed, pairs, place = one.timed, one.pairs, one.place
    why_not_per_pass = place.lacks.get("passes", NOT_PER_PASS) if place.timed else NOT_TIMED
    wall, wall_totals = _wall_speedups(one)
    decode_s = on_arms.total(timed, lambda t: t.decode_s, one.why_untimed)
    forward_s = on_arms.total(timed, lambda t: t.forward_s, why_not_per_pass)
    bandwidth = quotient(exact(sum(t.bytes_ for t in timed), n=len(timed)), forward_s, NOT_PER_PASS)
    counted = measured_bandwidth([t.counted for t in timed], place.counter_scale.disagreement, one.why_untimed)
    ceiling = place.ladder.read_ceiling
    return {
        "unpaired": len(timed) - len(pairs),
        "wall_speedup": wall,
        "prompts_for_5_percent": prompts_for_width(wall, 0.05),
        "wall_speedup_totals": wall_totals,
        "paired": on_arms.paired(pairs, len(one.lost), place.unpaired or (one.why_unpaired if place.timed else NOT_TIMED)),
        "factors": on_arms.factors(pairs),
        "decode_s": decode_s,
        "forward_s": forward_s,
        "pass_parts": on_arms.pass_parts(timed, why_not_per_pass),
        "tokens_per_s": quotient(exact(sum(t.decode_tokens for t in timed), n=len(timed)), decode_s, "no decode tokens"),
        "latency_s": on_arms.median(one.arm.tallies, lambda t: t.latency_s, NOT_TIMED),
        "first_token_s": on_arms.median(timed, lambda t: t.first_token_s, why_not_per_pass),
        "decode_time_estimated": ESTIMATED if any(t.estimated for t in timed) else None,
        "modelled_bandwidth_bytes_per_s": bandwidth,
        "measured_bandwidth_bytes_per_s": counted[0],
        "measured_over_modelled": counted[1],
        "ceiling_share": quotient(bandwidth, ceiling, "no ceiling", ceiling.method),
        "predictions": on_arms.predictions(place.ladder.drifts, pairs, timed, wall),
    }


def _identity(one: ArmBesideNtp, confidence: float = CONFIDENCE) -> Quantity:
    """Share of prompts on which the arm wrote NTP's output; absent where that is not defined."""
    arm, ntp = one.arm, one.ntp
    if arm.replayed:
        return absent(on_accuracy.REPLAYED)
    if ntp is None or ntp is arm:
        return absent(NO_NTP if ntp is None else BY_DEFINITION)
    if arm.temperature or ntp.temperature:
        return absent("sampled outputs differ by chance")
    why_none = one.place.lacks.get("output_ids", one.why_unpaired)
    return on_accuracy.identical_outputs(ntp.outputs, arm.tallies, why_none, confidence)


def _baseline_difference(one: ArmBesideNtp) -> Quantity | None:
    arm, place = one.arm, one.place
    if place.baseline_part is None:
        return None
    why_none = arm.accuracy.reason or f"part {place.baseline_part!r} has no graded NTP decode of the same prompts"
    return on_accuracy.difference(arm.grades, place.baseline_grades, arm.related, why_none, place.wrong)
