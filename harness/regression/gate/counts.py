"""Judges two stored runs: passes their counted and timed figures to the gate, metric by metric."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from harness.analysis.judgement import GRAVEST_FIRST, Judgement, State
from harness.analysis.stats.quantity import FEWEST_PROCESSES, absent
from harness.record.schema import Run
from harness.regression.comparability import Unlike
from harness.regression.counted import METERS, Count, counted
from harness.regression.gate.procedure import judge_pairs
from harness.regression.gate_metrics import MARGIN, TimedMetric, judge_deterministic
from harness.regression.metrics import CellMetric
from harness.regression.gate.noise import NoiseFloor, margin
from harness.regression.timed import log_ratios, processes_of

_Sides = tuple[str, Count, Count]
"""(name of the pair, BASE's count, NEW's)."""
REMEDY = "measure both revisions in turn: sbd gate --base-cmd ... --new-cmd ...; or take both runs again with `processes: 3`"


def judge_counted(base: Run, new: Run, allowed: Sequence[Unlike] = ()) -> tuple[Judgement, ...]:
    """Every deterministic figure of the cases that both runs have; ``allowed``: other differences, named with a change.

    A figure that one side's meter did not read is left out; a case that left no samples on one side is void.
    """
    return judge_counted_pairs([CountedPair(name="", base=counted(base), new=counted(new))], allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedPair:
    """The deterministic figures of one pair of fresh processes; ``name`` for people: ``pair 3``."""

    name: str
    base: Mapping[CellMetric, Count]
    new: Mapping[CellMetric, Count]


def judge_counted_pairs(pairs: Sequence[CountedPair], allowed: Sequence[Unlike]) -> tuple[Judgement, ...]:
    """Every deterministic figure over one or more pairs: a change in one pair alone is a change.

    A figure that differs between BASE's own processes is void. A meter reading is judged by its median over the pairs that have
    it on both sides.
    """
    found = []
    for metric in pairs[0].base:
        sides = [(one.name, one.base[metric], one.new[metric]) for one in pairs if metric in one.base and metric in one.new]
        if metric.name in METERS:
            sides = _medians(sides)
        if sides:
            judged = _unsteady_base(metric, sides) or _gravest(metric, sides)
            found.append(_with_allowed(replace(judged, sizes={"runs": 2 * len(pairs)}), allowed))
    return tuple(found)


def _medians(sides: Sequence[_Sides]) -> list[_Sides]:
    known = [
        (left.value, right.value)
        for _, left, right in sides
        if isinstance(left.value, float | int) and isinstance(right.value, float | int)
    ]
    if not known:
        return []
    base, new = (statistics.median(values) for values in zip(*known, strict=True))
    return [("", Count(value=base), Count(value=new))]


def _unsteady_base(metric: CellMetric, sides: Sequence[_Sides]) -> Judgement | None:
    """Void where a figure of BASE differs between its own processes, because NEW then cannot be judged."""
    (first, one, _), *rest = sides
    for name, other, _ in rest:
        if None not in (one.value, other.value) and other.value != one.value:
            why = f"BASE itself is not the same in every process: {one.value} in {first}, {other.value} in {name}"
            return judge_deterministic(metric, None, None, why)
    return None


def _gravest(metric: CellMetric, sides: Sequence[_Sides]) -> Judgement:
    """The gravest answer of all pairs, of equals the first; its reason names the pair where there are several."""
    found = []
    for name, left, right in sides:
        why = "; ".join(f"{side}: {count.reason}" for side, count in (("BASE", left), ("NEW", right)) if count.reason)
        judged = judge_deterministic(metric, left.value, right.value, why or None)
        found.append(replace(judged, reason=f"in {name}: {judged.reason}") if len(sides) > 1 else judged)
    gravest = min(found, key=lambda one: GRAVEST_FIRST.index(one.state))
    if gravest.state == "met" and len(sides) > 1:
        return replace(gravest, reason=f"{gravest.reason}; as good in all {len(sides)} pairs")
    return gravest


def judged_metric(
    metric: CellMetric, floors: Mapping[str, NoiseFloor], pairs: int, least_margin: float = MARGIN
) -> TimedMetric:
    """``metric`` for the gate, with the greater of ``least_margin`` and the machine's noise floor as its margin.

    ``floors``: by metric key; ``pairs``: of fresh processes, at most.
    """
    ratio, source = margin(floors.get(metric.key), pairs, least_margin)
    return TimedMetric(**asdict(metric), margin=ratio, margin_source=source)


def judge_timed(base: Run, new: Run, metrics: Sequence[TimedMetric]) -> tuple[Judgement, ...]:
    """The timed figures of two stored runs, their processes as replicates, the first with the first and so on.

    Metrics without a time on some side are void. Where a run has fewer than three processes all are inconclusive, because
    chance and change look alike.
    """
    of_base, of_new = processes_of(base), processes_of(new)
    count = min(len(of_base), len(of_new))
    known: dict[str, list[float]] = {}
    found: dict[str, Judgement] = {}
    for one in metrics:
        values = log_ratios(one, of_base, of_new)
        if isinstance(values, str):
            found[one.key] = _open(one, "void", count, values, "see `sbd compare`; take the run again on a quiet machine")
        elif count < FEWEST_PROCESSES:
            why = f"processes: {len(of_base)} of BASE, {len(of_new)} of NEW; their luck cannot be told from a code change"
            found[one.key] = _open(one, "inconclusive", count, why, REMEDY)
        else:
            known[one.key] = values
    if known:
        decidable = [one for one in metrics if one.key in known]
        found |= {one.key: answer for one, answer in zip(decidable, judge_pairs(decidable, known), strict=True)}
    return tuple(found[one.key] for one in metrics)


def _open(one: TimedMetric, state: State, processes: int, reason: str, remedy: str) -> Judgement:
    return Judgement(
        **one.described,
        kind="timed",
        state=state,
        value=absent(reason),
        unit="ratio NEW / BASE",
        bound=f"at most {100 * one.margin:.3g} % slower",
        sizes={"processes": processes},
        reason=reason,
        remedy=remedy,
    )


def _with_allowed(judged: Judgement, allowed: Sequence[Unlike]) -> Judgement:
    """Names the permitted differences in the reason of a change, which may be due to them."""
    if judged.state != "missed" or not allowed:
        return judged
    keys = ", ".join(one.key for one in allowed)
    return replace(judged, reason=f"{judged.reason}; allowed to differ, and perhaps why: {keys}")
