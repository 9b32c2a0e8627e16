"""Judges what is counted, by equality or the tolerance of the table of metrics, over one or more pairs of runs.

A change has both values.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from harness.analysis.judge.judgement import GRAVEST_FIRST, Judgement, State
from harness.errors import UserError
from harness.record.schema import Run
from harness.regression.changes import Outcome, count_outcome
from harness.regression.comparability import Unlike
from harness.regression.counted import METERS, CountedValue, Value, counted
from harness.regression.metrics import CellMetric
from harness.stats.quantity import absent, exact

STATES: dict[Outcome, State] = {"same": "met", "better": "met", "worse": "missed", "changed": "missed"}
WORDS: dict[Outcome, str] = {
    "same": "changed within its tolerance ",
    "better": "better, ",
    "worse": "worse, ",
    "changed": "changed ",
}
RUN_AGAIN = "run both sides with the same version and the same scenario, so that each records it"


def judge_deterministic(metric: CellMetric, base: Value, new: Value, why_absent: str | None = None) -> Judgement:
    """BASE's value against NEW's: met, missed, or void where one is absent (``why_absent``), not finite, or of another type.

    A number may change by the metric's tolerance, a share of BASE's value. ``better`` says which changes beyond that count:
    ``equal`` any, ``lower`` a growth, ``higher`` a shrinking. Text admits ``equal`` only. ``value`` is NEW's and
    ``base`` BASE's, in the metric's unit; None for text (a hash), where the reason names both.

    Raises:
        UserError: text judged as lower or higher better.
    """
    definition = metric.definition
    bound = {"equal": "equal to BASE", "lower": "at most BASE", "higher": "at least BASE"}[definition.better]
    bound += f", {definition.tolerance:.3%} of it let pass" if definition.tolerance else ""
    judgement = partial(metric.judgement, bound=bound, sizes={"runs": 2})
    if fault := _fault(base, new, why_absent):
        return judgement(state="void", value=absent(fault), reason=fault, remedy=RUN_AGAIN)
    assert base is not None and new is not None
    state = STATES[count_outcome(metric.name, base, new)]
    if isinstance(base, str) or isinstance(new, str):
        if definition.better != "equal":
            raise UserError(f"{metric.name} is text ({base!r}): only better: equal can be judged, not {definition.better}")
        reason = f"the same: {base}" if base == new else f"changed from {base} to {new}"
        return judgement(state=state, value=absent("text is no number; the reason has it", n=1), reason=reason)
    return judgement(state=state, value=exact(new, n=1), reason=_words(metric, base, new), base=float(base))


def _words(metric: CellMetric, base: float, new: float) -> str:
    """What became of a finite number, with both values."""
    if base == new:
        return f"the same: {base:,} {metric.unit}"
    relative = f" ({(new - base) / abs(base):+.3%})" if base else ""
    return f"{WORDS[count_outcome(metric.name, base, new)]}from {base:,} to {new:,} {metric.unit}{relative}"


def _fault(base: Value, new: Value, why_absent: str | None) -> str | None:
    """Why the two cannot be compared, or None."""
    sides = (("BASE", base), ("NEW", new))
    if missing := [name for name, value in sides if value is None]:
        return f"{' and '.join(missing)}: no value ({why_absent or 'not recorded'})"
    if isinstance(base, str) != isinstance(new, str):
        return f"BASE has {base!r}, NEW has {new!r}: text and a number cannot be compared"
    if odd := [f"{name} has {value}" for name, value in sides if isinstance(value, float) and not math.isfinite(value)]:
        return f"{' and '.join(odd)}: not a finite number"
    return None


_Sides = tuple[str, CountedValue, CountedValue]
"""(name of the pair, BASE's count, NEW's)."""


def judge_counted(base: Run, new: Run, allowed: Sequence[Unlike] = ()) -> tuple[Judgement, ...]:
    """Every deterministic figure of the cases that both runs have; ``allowed``: other differences, named with a change.

    A figure that one side's meter did not read is left out; a case that left no samples on one side is void.
    """
    return judge_counted_pairs([CountedPair("", counted(base), counted(new))], allowed)


class CountedPair(NamedTuple):
    """The deterministic figures of one pair of fresh processes; ``name`` for people: ``pair 3``."""

    name: str
    base: Mapping[CellMetric, CountedValue]
    new: Mapping[CellMetric, CountedValue]


def judge_counted_pairs(pairs: Sequence[CountedPair], allowed: Sequence[Unlike]) -> tuple[Judgement, ...]:
    """Every deterministic figure over one or more pairs: a change in one pair alone is a change.

    A figure that differs between BASE's own processes is void. A meter reading is judged by its median over the pairs that have
    it on both sides. The permitted differences are named in the reason of a change, which may be due to them.
    """
    judgements = []
    for metric in pairs[0].base:
        sides = [
            (pair.name, pair.base[metric], pair.new[metric]) for pair in pairs if metric in pair.base and metric in pair.new
        ]
        if metric.name in METERS:
            sides = _medians(sides)
        if sides:
            judged = _unsteady_base(metric, sides) or _gravest(metric, sides)
            reason = judged.reason
            if allowed and judged.state == "missed":
                reason += f"; allowed to differ, and perhaps why: {', '.join(difference.key for difference in allowed)}"
            judgements.append(replace(judged, sizes={"runs": 2 * len(pairs)}, reason=reason))
    return tuple(judgements)


def _medians(sides: Sequence[_Sides]) -> list[_Sides]:
    known = [
        (left.value, right.value)
        for _, left, right in sides
        if isinstance(left.value, float | int) and isinstance(right.value, float | int)
    ]
    if not known:
        return []
    base, new = (statistics.median(values) for values in zip(*known, strict=True))
    return [("", CountedValue(base), CountedValue(new))]


def _unsteady_base(metric: CellMetric, sides: Sequence[_Sides]) -> Judgement | None:
    """Void where a figure of BASE differs between its own processes, because NEW then cannot be judged."""
    (first, count, _), *rest = sides
    for name, other, _ in rest:
        if None not in (count.value, other.value) and other.value != count.value:
            why = f"BASE itself is not the same in every process: {count.value} in {first}, {other.value} in {name}"
            return judge_deterministic(metric, None, None, why)
    return None


def _gravest(metric: CellMetric, sides: Sequence[_Sides]) -> Judgement:
    """The gravest answer of all pairs, of equals the first; its reason names the pair where there are several."""
    several, judgements = len(sides) > 1, []
    for name, left, right in sides:
        why = "; ".join(f"{side}: {count.reason}" for side, count in (("BASE", left), ("NEW", right)) if count.reason)
        judged = judge_deterministic(metric, left.value, right.value, why or None)
        judgements.append(replace(judged, reason=f"in {name}: {judged.reason}") if several else judged)
    gravest = min(judgements, key=lambda judged: GRAVEST_FIRST.index(judged.state))
    if several and gravest.state == "met":
        return replace(gravest, reason=f"{gravest.reason}; as good in all {len(sides)} pairs")
    return gravest
