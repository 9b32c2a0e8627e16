"""Judges two stored runs: hands what was counted and timed in them to the gate, metric by metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.gate import judge_pairs
from harness.gate_deterministic import judge_deterministic
from harness.gate_metric import MARGIN, DeterministicMetric, TimedMetric, log_ratio
from harness.gate_noise import NoiseFloor, margin
from harness.judgement import Judgement
from harness.likeness import Unlike
from harness.metrics import Metric
from harness.metrics_counted import METERS, counted
from harness.metrics_timed import numbers, processes_of
from harness.record import Run
from harness.stats import FEWEST_PROCESSES, absent

REMEDY = "measure both revisions in turn: sbd gate --base-cmd ... --new-cmd ...; or take both runs again with `processes: 3`"


def judge_counted(base: Run, new: Run, allowed: Sequence[Unlike] = ()) -> tuple[Judgement, ...]:
    """Every deterministic figure of the cases that both runs have; ``allowed``: in what else they differ, said with a change.

    What a meter of one side did not read is left out; a case that left no samples on one side is void.
    """
    of_base, of_new = counted(base), counted(new)
    found = []
    for metric, left in of_base.items():
        right = of_new.get(metric)
        if right is None or (metric.name in METERS and (left.value is None or right.value is None)):
            continue
        why = "; ".join(f"{side}: {count.reason}" for side, count in (("BASE", left), ("NEW", right)) if count.reason)
        judged = judge_deterministic(_deterministic(metric), left.value, right.value, why or None)
        found.append(_with_allowed(judged, allowed))
    return tuple(found)


def judged_metric(metric: Metric, floors: Mapping[str, NoiseFloor], pairs: int, least_margin: float = MARGIN) -> TimedMetric:
    """``metric`` as the gate wants it, its margin the greater of ``least_margin`` and the machine's noise floor.

    ``floors``: by metric key; ``pairs``: of fresh processes, at most.
    """
    ratio, source = margin(floors.get(metric.key), pairs, least_margin)
    definition = metric.definition
    return TimedMetric(
        key=metric.key, metric=metric.name, subject=metric.subject, cell=metric.cell, margin=ratio, margin_source=source,
        better="higher" if definition.better == "higher" else "lower", basis=definition.basis,
    )  # fmt: skip


def judge_timed(base: Run, new: Run, metrics: Sequence[Metric], judged: Sequence[TimedMetric]) -> tuple[Judgement, ...]:
    """The timed figures of two stored runs, their processes as replicates, the first with the first and so on.

    Metrics without a time on some side are void; where a run has fewer than three processes, all are inconclusive: nobody can
    tell their luck from a change.
    """
    of_base, of_new = processes_of(base), processes_of(new)
    count = min(len(of_base), len(of_new))
    known: dict[str, list[float]] = {}
    found: dict[str, Judgement] = {}
    for metric, one in zip(metrics, judged, strict=True):
        values = numbers(metric, [*of_base[:count], *of_new[:count]])
        if isinstance(values, str):
            found[one.key] = _open(one, "void", count, values, "see `sbd compare`; take the run again on a quiet machine")
        elif count < FEWEST_PROCESSES:
            why = f"processes: {len(of_base)} of BASE, {len(of_new)} of NEW; their luck cannot be told from a code change"
            found[one.key] = _open(one, "inconclusive", count, why, REMEDY)
        else:
            known[one.key] = [log_ratio(left, right) for left, right in zip(values[:count], values[count:], strict=True)]
    if known:
        decidable = [one for one in judged if one.key in known]
        found |= {one.key: answer for one, answer in zip(decidable, judge_pairs(decidable, known), strict=True)}
    return tuple(found[one.key] for one in judged)


def _open(one: TimedMetric, state: str, processes: int, reason: str, remedy: str) -> Judgement:
    return Judgement(
        subject=one.subject, metric=one.metric, kind="timed", state="void" if state == "void" else "inconclusive",
        cell=one.cell, value=absent(reason), unit="ratio NEW / BASE", better=one.better,
        bound=f"at most {100 * one.margin:.3g} % slower", basis=one.basis, sizes={"processes": processes}, reason=reason,
        remedy=remedy,
    )  # fmt: skip


def _deterministic(metric: Metric) -> DeterministicMetric:
    one = metric.definition
    return DeterministicMetric(
        metric=metric.name, subject=metric.subject, cell=metric.cell, unit=one.unit, better=one.better, relative=one.tolerance,
        basis=one.basis,
    )  # fmt: skip


def _with_allowed(judged: Judgement, allowed: Sequence[Unlike]) -> Judgement:
    """A change may be due to what was allowed to differ; then its reason says so."""
    if judged.state != "missed" or not allowed:
        return judged
    keys = ", ".join(one.key for one in allowed)
    return replace(judged, reason=f"{judged.reason}; allowed to differ, and perhaps why: {keys}")
