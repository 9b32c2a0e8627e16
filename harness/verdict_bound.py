"""Holds one bound against one figure: met where the whole interval meets it, missed where the whole interval misses it.

What the figure is not worth holding (a slow baseline, an input that would be its own finding, no times left) makes it void.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.claims import METRICS, Bound
from harness.compare_figures import TOTALS
from harness.compare_values import ArmResult, Comparison
from harness.judgement import Basis, State
from harness.stats import Quantity, absent
from harness.verdict_place import Place
from harness.verdict_remedy import more_prompts

REAL = "claim it of a run with real acceptance"
CONTINUE = "finish the run (the same sbd run continues it), or claim something about what it has"
SHOW_BASELINE = "show that NTP keeps up with generate(): raise baseline_check, or take more processes"
ESTIMATOR_WORDS = {"geometric_mean": "geometric mean", "ratio_of_totals": "ratio of totals"}
BASES: dict[str, Basis] = {"nfe_speedup": "counted", "accuracy_loss_points": "counted", "identical_to_ntp": "counted",
                           "bandwidth_share": "modelled", "prediction_error": "predicted"}  # fmt: skip
OF_PROMPTS = ("accuracy_loss_points", "identical_to_ntp")
"""Figures that are taken prompt by prompt at any batch size."""

Why = tuple[str, str | None]
"""A reason, and what to do about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One bound and what became of it."""

    bound: Bound
    state: State
    value: Quantity
    basis: Basis
    sizes: dict[str, int]
    reason: str
    remedy: str | None = None


def figure(arm: ArmResult, bound: Bound) -> Quantity:
    """The figure that the bound is about, by its estimator."""
    totals = bound.estimator == "ratio_of_totals"
    if bound.metric == "wall_speedup":
        return arm.wall_speedup_totals if totals else arm.wall_speedup
    if bound.metric == "identical_to_ntp":
        return arm.identical_to_ntp
    return arm.figures.get(bound.metric + (TOTALS if totals else ""), absent("this comparison holds no such figure"))


def state_of(bound: Bound, value: Quantity) -> State:
    """Whether the whole interval is within the limits, or the whole of it outside; an end that is on a limit meets it."""
    low, high = bound.limits
    if value.value is None:
        return "void"
    if value.low is None or value.high is None:
        return "inconclusive"
    if (low is not None and value.high < low) or (high is not None and value.low > high):
        return "missed"
    return "met" if (low is None or value.low >= low) and (high is None or value.high <= high) else "inconclusive"


def judge(bound: Bound, place: Place, comparison: Comparison) -> Finding:
    """The bound against the figure of ``place``."""
    cell, arm = place.cell, place.arm
    value = figure(arm, bound)
    why_void = _why_void(bound, place, value) or _why_absent(bound, place, value, comparison)
    state: State = "void" if why_void else state_of(bound, value)
    sizes = {_unit(bound, place): value.n} | ({"processes": value.processes} if value.processes else {})
    reason, remedy = why_void or (_reason(bound, place, value, state), None)
    if state == "inconclusive":
        remedy = more_prompts(bound, value, arm.figures.get("accuracy_loss_sd_points"), cell.batch_size)
    if state in ("met", "missed") and METRICS[bound.metric].to_ntp and _open_baseline(bound, place, value):
        state, remedy = "inconclusive", SHOW_BASELINE
    basis: Basis = "replayed" if arm.replayed and not arm.is_ntp else BASES.get(bound.metric, "measured")
    return Finding(bound=bound, state=state, value=value, basis=basis, sizes=sizes, reason=reason, remedy=remedy)


def _why_void(bound: Bound, place: Place, value: Quantity) -> Why | None:
    """Why the figure is not held against anything though it is there, and what to do."""
    check, arm, metric = place.cell.baseline_check, place.arm, METRICS[bound.metric]
    if arm.is_ntp and (metric.to_ntp or bound.metric in ("nfe_speedup", "prediction_error", *OF_PROMPTS)):
        return "NTP is what the other arms are compared with", "name another arm"
    if bound.metric == "nfe_speedup" and arm.replayed:
        return "the acceptance is replayed: how many passes are saved was given to this run, it is no finding of it", REAL
    if metric.to_ntp and arm.paired.one_sided:
        return arm.wall_speedup.reason or "one side lacks prompts of the other", CONTINUE
    if metric.to_ntp and check.state == "different_tokens":
        return f"{check.reason}: the baseline did other work, so no speedup is claimed", (
            "find out which of the two decodes wrongly; the record has the output_ids of both"
        )
    if metric.to_ntp and check.state == "slow" and not _below(bound, value):
        speed = check.best_speed.value if check.best_speed else None
        beside = f": NTP ran at {speed:.2f}x the speed of {check.best}" if speed is not None else ""
        return f"against a slow baseline{beside}; no speedup is claimed", (
            "make NTP keep up with generate() first (session: static, execution: auto)"
        )
    return None


def _below(bound: Bound, value: Quantity) -> bool:
    """Whether the whole interval misses the least that is claimed. A slow baseline lifts a speedup, so this stands with any."""
    return bound.min is not None and value.high is not None and value.high < bound.min


def _open_baseline(bound: Bound, place: Place, value: Quantity) -> bool:
    """Whether the figure would say something else if NTP were as much slower than generate() as was not ruled out."""
    return place.cell.baseline_check.state == "not_shown" and not _below(bound, value)


def _why_absent(bound: Bound, place: Place, value: Quantity, comparison: Comparison) -> Why | None:
    """Why there is no figure; void samples are named by the rules they broke."""
    if value.value is not None:
        return None
    health = next((one for one in comparison.health if one.part == place.cell.part), None)
    if METRICS[bound.metric].clock and health is not None and health.timed and health.void == health.timed:
        rules = "; ".join(health.reasons)
        return f"all {health.timed} timed samples of the part were void: {rules}", "run it again on a quiet machine"
    remedy = None
    if METRICS[bound.metric].clock and not place.cell.timed:
        remedy = "run it with timed: true"
    elif bound.metric in OF_PROMPTS and place.arm.replayed:
        remedy = REAL
    return value.reason or "there is no figure", remedy


def _reason(bound: Bound, place: Place, value: Quantity, state: State) -> str:
    """The interval beside the bound, what it rests on, and every weakness of it."""
    sides = {
        "met": f"all of it {bound.words}", "missed": f"none of it {bound.words}", "inconclusive": f"part of it {bound.words}",
    }  # fmt: skip
    averaged, one = METRICS[bound.metric].averaged, bound.metric == "accuracy_loss_points"
    by = f"{ESTIMATOR_WORDS[bound.estimator]}, " if averaged else ""
    ground = f"{by}{value.n:,} {_unit(bound, place)}"
    if value.low is None or value.high is None:
        found = f"{_number(value.value)}, no interval ({value.reason or 'none is known for it'}; {ground})"
    else:
        kind = "one-sided 95 % bounds" if one else "95 % interval"
        ends = f"{_number(value.low)} to {_number(value.high)}"
        found = f"{_number(value.value)}, {kind} {ends} ({ground}): {sides[state]}"
    return "; ".join([found, *_weaknesses(bound, place, value)])


def _weaknesses(bound: Bound, place: Place, value: Quantity) -> list[str]:
    check, metric = place.cell.baseline_check, METRICS[bound.metric]
    found = []
    if place.arm.replayed and not place.arm.is_ntp:
        found.append("given this acceptance (replayed)")
    if value.these_processes_only:
        found.append(value.these_processes_only)
    if metric.to_ntp and check.state == "unchecked":
        found.append(f"NTP was not held against generate(): {check.reason}")
    if metric.to_ntp and check.state == "not_shown":
        found.append("these decodes do not show that NTP keeps up with generate(), so they confirm nothing")
    if metric.to_ntp and check.state == "slow":
        found.append("against a slow baseline, which lifts the figure: it falls short all the same")
    if metric.to_ntp and check.ceiling is not None and check.ceiling.words:
        found.append(check.ceiling.words)
    if bound.metric == "prediction_error" and value.method:
        found.append(value.method.partition(";")[0])
    if metric.clock and (void := place.cell.void_words(place.arm)):
        found.append(void)
    if place.picked_from is not None:
        found.append(f"the arm was picked from {place.picked_from} on these same decodes")
    return found


def _unit(bound: Bound, place: Place) -> str:
    """What is counted as one: answers are graded and compared prompt by prompt, times are taken batch by batch."""
    return "batches" if place.cell.batch_size > 1 and bound.metric not in OF_PROMPTS else "prompts"


def _number(value: float | None) -> str:
    if value is None:
        return "none"
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
