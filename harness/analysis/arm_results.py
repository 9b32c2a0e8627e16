"""Every value of one arm in one cell (``arm_result``): hands the samples to arm_metrics, arm_figures and accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from harness.analysis import accuracy as on_accuracy
from harness.analysis import arm_figures as on_figures
from harness.analysis import arm_metrics as on_arms
from harness.analysis.accuracy import Outputs, identical_outputs, outputs
from harness.analysis.prices import Ladder
from harness.analysis.results import ArmResult, CounterScale, Simultaneous
from harness.analysis.sample_totals import Tally
from harness.analysis.stats.quantity import CONFIDENCE, Quantity, absent, exact, simultaneous_confidence
from harness.analysis.stats.sample_size import prompts_for_width
from harness.analysis.traffic import measured_bandwidth
from harness.record.schema import CaseHeader

NOT_TIMED = "this part was not timed"
NO_TIMES = "no sample of this arm has a time: every one was void"
NOT_PER_PASS = "the forward passes were not timed one by one"
NO_NTP = "no NTP arm in this part decoded the same prompts"
NOT_GRADED = "NTP was not graded on the same prompts"
ESTIMATED = (
    "decode time is estimated: the pass that reads the prompt drafts too, so it counts as one pass, and its time beyond that "
    "of NTP on the same prompt is decode time"
)
NO_PASS = "no decode pass was made"
BY_DEFINITION = "NTP is what the other arms are compared with: 1 by definition"


@dataclass(frozen=True, kw_only=True)  # no slots: cached_property needs __dict__
class Arm:
    """The cases of one arm in one cell (one per task) with their tallies."""

    cases: tuple[CaseHeader, ...]
    tallies: tuple[Tally, ...]

    @property
    def spec(self) -> dict[str, Any]:
        """The arm's values on every axis, as the scenario resolved them."""
        return self.cases[0].arm

    @property
    def method(self) -> str:
        """``ntp`` or ``sbd``."""
        return str(self.spec.get("method"))

    @property
    def temperature(self) -> float:
        """Sampling temperature; a scenario that names none samples greedily."""
        return float(self.spec.get("temperature") or 0.0)

    @property
    def replayed(self) -> dict[str, Any] | None:
        """Source of the acceptance, for an arm whose acceptance was replayed."""
        return next((case.replayed for case in self.cases if case.replayed is not None), None)

    @cached_property
    def grades(self) -> on_accuracy.Grades:
        """The grades of its answers."""
        return on_accuracy.grades(self.tallies)

    @cached_property
    def related(self) -> on_accuracy.Clusters:
        """The clusters of its prompts."""
        return on_accuracy.clusters(self.tallies)

    @cached_property
    def outputs(self) -> Outputs:
        """Its output ids, decode by decode."""
        return outputs(self.tallies)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellContext:
    """What all arms of a cell share."""

    ladder: Ladder
    counter_scale: CounterScale
    timed: bool
    baseline_part: str | None
    baseline_grades: on_accuracy.Grades
    why_unchecked: str


def arm_result(arm: Arm, ntp: Arm | None, place: CellContext) -> ArmResult:
    """Every value of ``arm``, compared with ``ntp`` (None: the cell has no such arm)."""
    tallies, spec = arm.tallies, arm.spec
    passes = sum(t.passes for t in tallies)
    return ArmResult(
        label=arm.cases[0].label,
        method=arm.method,
        block_size=spec.get("block_size"),
        gamma=spec.get("gamma"),
        temperature=arm.temperature,
        solver=spec.get("solver"),
        replayed=arm.replayed,
        is_ntp=arm.method == "ntp",
        case_ids=tuple(case.case_id for case in arm.cases),
        samples=len(tallies),
        prompts=len({prompt for t in tallies for prompt in t.prompts}),
        decode_tokens=sum(t.decode_tokens for t in tallies),
        nfe=sum(t.row_passes for t in tallies),
        passes=passes,
        nfe_speedup=on_arms.nfe_speedup(tallies, given=arm.replayed is not None and arm.method != "ntp"),
        query_tokens_per_pass=exact(sum(t.fed_tokens for t in tallies) / passes) if passes else absent(NO_PASS),
        final_tokens_histogram=_add_histograms(tallies),
        figures=_figures(arm, ntp, place),
        draft_passes=sum(t.draft_passes for t in tallies),
        draft_query_tokens=sum(t.draft_fed_tokens for t in tallies),
        lossless=spec.get("lossless"),
        identical_to_ntp=_identity(arm, ntp),
        **_times(arm, ntp, place),
        **_accuracies(arm, ntp, place),
    )


def accuracy_difference(arm: Arm, ntp: Arm | None, confidence: float = CONFIDENCE) -> Quantity:
    """Accuracy of ``arm`` less that of ``ntp``, with its one-sided lower bound at ``confidence``."""
    graded = {} if arm.replayed else arm.grades
    own = on_accuracy.accuracy(graded, arm.tallies, arm.replayed is not None)
    return on_accuracy.difference(graded, ntp.grades if ntp else {}, arm.related, own.reason or NOT_GRADED, confidence)


def simultaneous(arm: Arm, ntp: Arm | None, place: CellContext, picked_from: int) -> Simultaneous:
    """The claimed figures of an arm picked from ``picked_from`` arms on these decodes, at the simultaneous level."""
    confidence = simultaneous_confidence(picked_from)
    tallies = [tally for tally in arm.tallies if tally.decode_s is not None]
    pairs = on_arms.pair_up(ntp.tallies, tallies) if ntp and place.timed else []
    wall, wall_totals = _wall_speedups(arm, ntp, place, pairs, confidence)
    figures = {
        "wall_speedup": wall,
        "wall_speedup_totals": wall_totals,
        "accuracy_difference": accuracy_difference(arm, ntp, confidence),
        "identical_to_ntp": _identity(arm, ntp, confidence),
        **_figures(arm, ntp, place, confidence),
    }
    return Simultaneous(picked_from=picked_from, confidence=confidence, figures=figures)


def _wall_speedups(
    arm: Arm, ntp: Arm | None, place: CellContext, pairs: Sequence[on_arms.Pair], confidence: float = CONFIDENCE
) -> tuple[Quantity, Quantity]:
    """By both estimators; NTP, and an arm that lacks prompts of NTP, have no interval."""
    lost = on_arms.one_sided(ntp.tallies, arm.tallies) if ntp and place.timed else []
    wall, wall_totals = on_arms.wall_speedups(pairs, NO_NTP if place.timed else NOT_TIMED, confidence)
    if pairs and (ntp is arm or lost):
        reason = _refused(lost) if lost else BY_DEFINITION
        return _without_interval(wall, reason), _without_interval(wall_totals, reason)
    return wall, wall_totals


def _times(arm: Arm, ntp: Arm | None, place: CellContext) -> dict[str, Any]:
    """Everything that rests on a clock, by field of ArmResult; samples without a time (void ones) are left out."""
    tallies = [tally for tally in arm.tallies if tally.decode_s is not None]
    pairs = on_arms.pair_up(ntp.tallies, tallies) if ntp and place.timed else []
    lost = on_arms.one_sided(ntp.tallies, arm.tallies) if ntp and place.timed else []
    no_pair = NO_NTP if place.timed else NOT_TIMED
    wall, wall_totals = _wall_speedups(arm, ntp, place, pairs)
    decode_s = on_arms.total(tallies, lambda t: t.decode_s, NO_TIMES) if place.timed else absent(NOT_TIMED)
    forward_s = on_arms.total(tallies, lambda t: t.forward_s, NOT_PER_PASS) if place.timed else absent(NOT_TIMED)
    bandwidth = on_arms.quotient(sum(t.bytes_ for t in tallies), forward_s, NOT_PER_PASS)
    doubt, untimed = place.counter_scale.disagreement, NO_TIMES if place.timed else NOT_TIMED
    measured, over_modelled = measured_bandwidth([t.counted for t in tallies], doubt, untimed)
    return {
        "unpaired": len(tallies) - len(pairs) if place.timed else 0,
        "wall_speedup": wall,
        "prompts_for_5_percent": prompts_for_width(wall, 0.05),
        "wall_speedup_totals": wall_totals,
        "paired": on_arms.paired(pairs, len(lost), no_pair),
        "factors": on_arms.factors(pairs),
        "decode_s": decode_s,
        "forward_s": forward_s,
        "pass_parts": on_arms.pass_parts(tallies if place.timed else (), NOT_PER_PASS if place.timed else NOT_TIMED),
        "tokens_per_s": on_arms.quotient(sum(t.decode_tokens for t in tallies), decode_s, "no decode tokens"),
        "latency_s": on_arms.median(tallies if place.timed else (), lambda t: t.latency_s, NOT_TIMED),
        "first_token_s": on_arms.median(
            tallies if place.timed else (), lambda t: t.first_token_s, NOT_PER_PASS if place.timed else NOT_TIMED
        ),
        "decode_time_estimated": ESTIMATED if place.timed and any(t.estimated for t in tallies) else None,
        "modelled_bandwidth_bytes_per_s": bandwidth,
        "measured_bandwidth_bytes_per_s": measured,
        "measured_over_modelled": over_modelled,
        "ceiling_share": on_arms.ceiling_share(bandwidth, place.ladder.read_ceiling),
        "predictions": on_arms.predictions(place.ladder.drifts, pairs, tallies, wall_totals) if place.timed else (),
    }


def _figures(arm: Arm, ntp: Arm | None, place: CellContext, confidence: float = CONFIDENCE) -> dict[str, Quantity]:
    """The other figures that claims name; NTP is not compared with itself."""
    timed = [tally for tally in arm.tallies if place.timed and tally.decode_s is not None]
    other = ntp if ntp is not arm else None
    lost = on_arms.one_sided(other.tallies, arm.tallies) if other and place.timed else []
    pairs = on_arms.pair_up(other.tallies, timed) if other and not lost else []
    why_untimed = NO_TIMES if place.timed else NOT_TIMED
    why_unpaired = why_untimed if not timed else _refused(lost) if lost else NO_NTP
    graded = {} if arm.replayed else arm.grades
    of_ntp = other.grades if other else {}
    why_ungraded = on_accuracy.accuracy(graded, arm.tallies, arm.replayed is not None).reason
    decodes = on_figures.Decodes(
        counted=arm.tallies, timed=timed, pairs=pairs, why_untimed=why_untimed, why_unpaired=why_unpaired
    )
    return on_figures.arm_figures(decodes, place.ladder.read_ceiling, confidence) | on_figures.accuracy_figures(
        graded, of_ntp, arm.related, why_ungraded or NOT_GRADED, confidence
    )


def _identity(arm: Arm, ntp: Arm | None, confidence: float = CONFIDENCE) -> Quantity:
    """Share of prompts on which the arm wrote NTP's output; absent where that is not defined."""
    if arm.replayed:
        return absent(on_accuracy.REPLAYED)
    if ntp is None or ntp is arm:
        return absent(NO_NTP if ntp is None else BY_DEFINITION)
    if arm.temperature or ntp.temperature:
        return absent("sampled outputs differ by chance")
    return identical_outputs(ntp.outputs, arm.tallies, NO_NTP, confidence)


def _refused(lost: Sequence[tuple[str, int]]) -> str:
    task, group = lost[0]
    return (
        f"{len(lost)} prompts were decoded by NTP alone or by this arm alone (first: {task}, number {group}): no interval "
        "over the others, for what is left out of one side flatters it; the same command continues an unfinished run"
    )


def _without_interval(quantity: Quantity, reason: str) -> Quantity:
    return replace(quantity, low=None, high=None, method=None, spread=None, reason=quantity.reason or reason)


def _accuracies(arm: Arm, ntp: Arm | None, place: CellContext) -> dict[str, Any]:
    """Everything that rests on a checked answer, by field of ArmResult."""
    graded = {} if arm.replayed else arm.grades
    own = on_accuracy.accuracy(graded, arm.tallies, arm.replayed is not None)
    difference = accuracy_difference(arm, ntp)
    return {
        "correct": sum(graded.values()) if graded else None,
        "accuracy": own,
        "accuracy_difference": absent("NTP is what the other arms are compared with") if arm is ntp else difference,
        "baseline_difference": _baseline_difference(graded, arm.related, place, own),
    }


def _baseline_difference(
    graded: on_accuracy.Grades, related: on_accuracy.Clusters, place: CellContext, own: Quantity
) -> Quantity | None:
    if place.baseline_part is None:
        return None
    why_none = own.reason or f"part {place.baseline_part!r} has no graded NTP decode of the same prompts"
    return on_accuracy.difference(graded, place.baseline_grades, related, why_none)


def _add_histograms(tallies: Sequence[Tally]) -> tuple[int, ...]:
    """Active row-passes by the number of tokens they made final, over all samples."""
    total = np.zeros(max((len(t.histogram) for t in tallies), default=0), dtype=np.int64)
    for one in tallies:
        total[: len(one.histogram)] += np.asarray(one.histogram, dtype=np.int64)
    return tuple(total.tolist())
