"""How a figure differs between two runs: better, worse, the same, or unclear, with the reason and what would decide it.

Counts are judged by their tolerance, times and accuracies by tests. Holm's correction covers the tests of one comparison. Thus
runs of one code show a change in at most one comparison of twenty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from harness.analysis.judge.judgement import Kind
from harness.regression.gate_metrics import MARGIN
from harness.scenario.metrics import METRICS, Better
from harness.stats.one_sided import HolmTest, holm
from harness.stats.quantity import CONFIDENCE, FEWEST_PROCESSES, Quantity

LEVEL = 1 - CONFIDENCE
"""Largest share of comparisons of a code with itself in which any figure is called better or worse."""
Outcome = Literal["worse", "better", "changed", "unclear", "no_interval", "same", "unknown"]
OUTCOME_WORDS: dict[Outcome, str] = {
    "worse": "worse",
    "better": "better",
    "changed": "changed",
    "unclear": "unclear",
    "no_interval": "no interval",
    "same": "same",
    "unknown": "not known",
}
MORE_PROCESSES = "take each run in more processes, or let `sbd gate` measure both in turn"
THREE_PROCESSES = f"take each run in three processes (`processes: {FEWEST_PROCESSES}`), or let `sbd gate` measure both in turn"
MORE_PROMPTS = "decode more prompts in both runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One figure of both runs. ``ratio`` is NEW / BASE; ``base`` and ``new`` are None, with its reason, where one is not known.

    A timed figure is the median over processes. Its ratio is the geometric mean over prompts, with an uncorrected 95 %
    interval. ``difference`` is that of an accuracy, NEW - BASE. ``p``: of "both runs are alike", two-sided; None for counts, or
    with too few processes. ``processes``: of BASE and of NEW. ``outcome`` is the verdict on the figure, ``reason`` why it is no
    answer, ``remedy`` what would give one.
    """

    key: str
    metric: str
    subject: str
    cell: dict[str, str]
    kind: Kind
    unit: str
    better: Better
    base: float | str | None
    new: float | str | None
    ratio: Quantity
    difference: Quantity | None = None
    p: float | None = None
    processes: tuple[int, int] | None = None
    outcome: Outcome = "unknown"
    reason: str | None = None
    remedy: str | None = None


def judge_changes(changes: Sequence[Change], comparisons: int = 1) -> tuple[Change, ...]:
    """The changes with their outcomes: Holm over all that have a p, at ``LEVEL`` shared by the ``comparisons`` of one page."""
    tested = [one.p for one in changes if one.p is not None]
    tests = iter(holm(tested, LEVEL / comparisons))
    return tuple(_judged(one, next(tests) if one.p is not None else None, len(tested)) for one in changes)


def _judged(change: Change, test: HolmTest | None, together: int) -> Change:
    if change.base is None or change.new is None:
        return replace(change, outcome="unknown", reason=change.ratio.reason)
    if test is not None and test.rejected:
        return replace(change, outcome=_direction(change))
    if change.kind == "timed":
        return _open_time(change, together)
    if change.difference is not None:
        if change.p is None:  # no prompt's grade differs
            return replace(change, outcome="same")
        return replace(change, outcome="unclear", reason="so few prompts lost or won may be chance", remedy=MORE_PROMPTS)
    tolerance, ratio = METRICS[change.metric].tolerance, change.ratio.value
    if change.base == change.new or (ratio is not None and abs(ratio - 1) <= tolerance):
        return replace(change, outcome="same")
    return replace(change, outcome="changed" if change.better == "equal" or ratio is None else _direction(change))


def _open_time(change: Change, together: int) -> Change:
    """A time that is not shown to have changed."""
    ratio, counts = change.ratio, change.processes or (0, 0)
    if min(counts) < FEWEST_PROCESSES:
        why = f"{_processes(counts[0])} of BASE, {_processes(counts[1])} of NEW: another process of one code may differ as much"
        return replace(change, outcome="unclear", reason=why, remedy=THREE_PROCESSES)
    if ratio.low is None or ratio.high is None:
        return replace(change, outcome="no_interval", reason=ratio.reason)
    if ratio.low >= 1 - MARGIN and ratio.high <= 1 + MARGIN:
        return replace(change, outcome="same", reason=f"the interval stays within {MARGIN:.0%} of no change")
    if ratio.low <= 1 <= ratio.high:
        return replace(change, outcome="unclear", reason="the interval holds no change", remedy=MORE_PROCESSES)
    why = f"its interval alone leaves out no change, but one of {together} figures does so by chance too often"
    return replace(change, outcome="unclear", reason=why, remedy=MORE_PROCESSES)


def _direction(change: Change) -> Outcome:
    value = change.ratio.value if change.difference is None else change.difference.value
    risen = value is not None and value > (1 if change.difference is None else 0)
    return "better" if risen == (change.better == "higher") else "worse"


def _processes(count: int) -> str:
    return "1 process" if count == 1 else f"{count} processes"
