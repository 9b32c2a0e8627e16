"""The values of an arm in a cell, as they are shown and exported."""

from __future__ import annotations

from functools import partial
from itertools import zip_longest
from operator import attrgetter

from harness.analysis.figures import accuracy as on_accuracy
from harness.analysis.figures import arm_metrics as on_arms
from harness.analysis.figures.arms import NOT_TIMED, ArmBesideNtp
from harness.analysis.figures.predictions import predictions
from harness.analysis.figures.request_figures import request_counts
from harness.analysis.results import OWN, ArmResult
from harness.analysis.tally.traffic import measured_bandwidth
from harness.analysis.trust.health import together
from harness.stats.quantity import Quantity, absent, exact, quotient
from harness.stats.sample_size import prompts_for_width

NOT_PER_PASS = "the forward passes were not timed one by one"
ESTIMATED = (
    "decode time is estimated: the pass that reads the prompt drafts too, so it counts as one pass, and its time beyond that "
    "of NTP on the same prompt is decode time"
)


def arm_result(one: ArmBesideNtp) -> ArmResult:
    """Every value of an arm, compared with NTP; of what rests on a clock, samples without a time (void ones) are left out."""
    timed, pairs, place = one.timed, one.pairs, one.place
    why_not_per_pass = place.lacks.get("passes", NOT_PER_PASS) if place.timed else NOT_TIMED
    wall = one.figure("wall_speedup")
    decode_s = on_arms.total(timed, lambda t: t.decode_s, one.why_untimed)
    forward_s = on_arms.total(timed, lambda t: t.sums.forward_s, why_not_per_pass)
    bandwidth = quotient(exact(sum(t.sums.bytes_ for t in timed), n=len(timed)), forward_s, NOT_PER_PASS)
    counted, over_modelled = measured_bandwidth([t.counted for t in timed], place.counter_scale.disagreement, one.why_untimed)
    ceiling = place.ladder.read_ceiling
    return _without_times(one)(
        lost_times=one.lost_times,
        lost_requests=one.lost_requests,
        voids=together(place.voids[case.case_id] for case in one.arm.cases if case.case_id in place.voids),
        unpaired=len(timed) - len(pairs),
        wall_speedup=wall,
        wall_speedup_totals=one.figures()["wall_speedup_totals"],
        prompts_for_5_percent=prompts_for_width(wall, 0.05),
        paired=on_arms.paired(pairs, len(one.lost), place.unpaired or (one.why_unpaired if place.timed else NOT_TIMED)),
        factors=on_arms.factors(pairs),
        decode_s=decode_s,
        forward_s=forward_s,
        pass_parts=on_arms.pass_parts(timed, why_not_per_pass),
        tokens_per_s=quotient(exact(sum(t.decode_tokens for t in timed), n=len(timed)), decode_s, "no decode tokens"),
        latency_s=on_arms.median(one.arm.tallies, lambda t: t.latency_s, NOT_TIMED),
        first_token_s=on_arms.median(timed, lambda t: t.first_token_s, why_not_per_pass),
        decode_time_estimated=ESTIMATED if any(t.estimated for t in timed) else None,
        modelled_bandwidth_bytes_per_s=bandwidth,
        measured_bandwidth_bytes_per_s=counted,
        measured_over_modelled=over_modelled,
        ceiling_share=quotient(bandwidth, ceiling, "no ceiling", ceiling.method),
        predictions=predictions(tuple(place.ladder.ceilings), pairs, timed, wall),
    )


def _without_times(one: ArmBesideNtp) -> partial[ArmResult]:
    """The arm, what it counted and what it wrote."""
    arm, tallies = one.arm, one.arm.tallies
    nfe, passes, fed, drafts, drafts_fed = (
        on_arms.summed(tallies, attrgetter(f"sums.{name}"))
        for name in ("row_passes", "passes", "fed_tokens", "draft_passes", "draft_fed_tokens")
    )
    over, under = (absent(one.why_no_passes) if count is None else exact(count) for count in (fed, passes))
    figures = one.figures()
    return partial(
        ArmResult,
        label=arm.cases[0].label,
        method=arm.method,
        block_size=arm.spec.block_size,
        gamma=arm.spec.gamma,
        temperature=arm.temperature,
        solver=arm.spec.solver,
        lossless=arm.spec.lossless,
        replayed=arm.replayed,
        is_ntp=arm.method == "ntp",
        case_ids=tuple(case.case_id for case in arm.cases),
        samples=len(tallies),
        prompts=len({prompt for t in tallies for prompt in t.prompts}),
        decode_tokens=sum(t.decode_tokens for t in tallies),
        nfe=nfe,
        passes=passes,
        nfe_speedup=on_arms.nfe_speedup(tallies, arm.replayed is not None and arm.method != "ntp", one.why_no_passes),
        query_tokens_per_pass=quotient(over, under, on_arms.NO_PASS),
        final_tokens_histogram=tuple(map(sum, zip_longest(*(t.sums.histogram for t in tallies), fillvalue=0))),
        figures={name: found for name, found in figures.items() if name not in OWN},
        requests=request_counts(tallies),
        draft_passes=drafts,
        draft_query_tokens=drafts_fed,
        identical_to_ntp=figures["identical_to_ntp"],
        correct=sum(arm.grades.values()) if arm.grades else None,
        accuracy=arm.accuracy,
        accuracy_difference=figures["accuracy_difference"],
        baseline_difference=_baseline_difference(one),
    )


def _baseline_difference(one: ArmBesideNtp) -> Quantity | None:
    arm, place = one.arm, one.place
    if place.baseline_part is None:
        return None
    why_none = arm.accuracy.reason or f"part {place.baseline_part!r} has no graded NTP decode of the same prompts"
    return on_accuracy.difference(arm.grades, place.baseline_grades, arm.related, why_none, place.wrong)
