"""What changed between two runs, figure by figure: by how much, how certain that is, and what would decide it.

Counts are judged by their tolerance, times and accuracies by tests: times process by process over the same prompts, accuracies
prompt by prompt. Holm's correction covers the tests of one comparison. Thus runs of one code show a change in at most one
comparison of twenty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean, median
from typing import Literal

from harness import formatting
from harness.analysis.judge.judgement import Kind
from harness.analysis.tally.tally import one_name_each
from harness.frozen import frozen
from harness.record.schema import Run
from harness.regression.counted import METERS, Value, counted
from harness.regression.metrics import MARGIN, CellMetric, metric_of, timed_metrics
from harness.regression.timed import Process, numbers, observed, processes_of, with_times
from harness.scenario.metrics import METRICS, Better
from harness.stats.one_sided import HolmTest, holm
from harness.stats.quantity import CONFIDENCE, FEWEST_PROCESSES, Quantity, absent, exact, paired_lower_bound, quotient
from harness.stats.two_runs import ratio_of_runs, sign_test_p

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
ROUNDING = 1e-9
"""Relative slack of a tolerance, so that 1.1 - 1 is within a tenth of 1; equality has none."""
HASH_DIGITS = 12
NOTHING_BELOW = "nothing in BASE to divide by"


@frozen
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
    base: Value
    new: Value
    ratio: Quantity
    difference: Quantity | None = None
    p: float | None = None
    processes: tuple[int, int] | None = None
    outcome: Outcome = "unknown"
    reason: str | None = None
    remedy: str | None = None

    @property
    def movement(self) -> tuple[Quantity, Callable[[float], str]]:
        """The difference in points, or the ratio as percent beyond 1: the quantity, and how its values are written."""
        if self.difference is not None:
            return self.difference, formatting.points
        return self.ratio, _percent_beyond_1

    @property
    def interval(self) -> str:
        """That of the movement, as text; empty without one."""
        moved, write = self.movement
        return "" if moved.low is None or moved.high is None else f"{write(moved.low)} to {write(moved.high)}"

    def written(self, value: Value) -> str:
        """A value of the figure with its unit, a hash by its first digits."""
        if value is None:
            return "none"
        if isinstance(value, str):
            return value[:HASH_DIGITS]
        if self.unit.startswith("s"):
            return formatting.seconds(value)
        if self.unit == "x":
            return formatting.ratio(value)
        return formatting.figure(value, 4) if "/" in self.unit else formatting.count(value)


def _percent_beyond_1(ratio: float) -> str:
    return formatting.signed_percent(ratio - 1)


def judge_changes(changes: Sequence[Change], comparisons: int = 1) -> tuple[Change, ...]:
    """The changes with their outcomes: Holm over all that have a p, at ``LEVEL`` shared by the ``comparisons`` of one page."""
    p_values = [change.p for change in changes if change.p is not None]
    tests = iter(holm(p_values, LEVEL / comparisons))
    return tuple(_judged(change, next(tests) if change.p is not None else None, len(p_values)) for change in changes)


def count_outcome(name: str, base: float | str, new: float | str) -> Outcome:
    """What became of a counted figure: a number may change by its metric's tolerance, a share of BASE's value."""
    metric = METRICS[name]
    if base == new:
        return "same"
    if isinstance(base, str) or isinstance(new, str):
        return "changed"
    if abs(new - base) <= metric.tolerance * abs(base) * (1 + ROUNDING):
        return "same"
    if metric.better == "equal":
        return "changed"
    return "better" if (new > base) == (metric.better == "higher") else "worse"


def _judged(change: Change, test: HolmTest | None, together: int) -> Change:
    if change.base is None or change.new is None:
        return replace(change, outcome="unknown", reason=change.ratio.reason)
    if test is not None and test.rejected:
        moved, zero = (change.ratio, 1) if change.difference is None else (change.difference, 0)
        risen = moved.value is not None and moved.value > zero
        return replace(change, outcome="better" if risen == (change.better == "higher") else "worse")
    if change.kind == "timed":
        return _open_time(change, together)
    if change.difference is None:
        return replace(change, outcome=count_outcome(change.metric, change.base, change.new))
    if change.p is None:  # no prompt's grade differs
        return replace(change, outcome="same")
    return replace(change, outcome="unclear", reason="so few prompts lost or won may be chance", remedy=MORE_PROMPTS)


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


def _processes(count: int) -> str:
    return "1 process" if count == 1 else f"{count} processes"


_Grades = dict[tuple[str, str], list[bool]]
"""(task, prompt id) -> whether each of its repeats was correct."""


@frozen
class RunsCompared:
    """NEW beside BASE, by run id; ``unlike``: the permitted differences, ``one_sided``: the cases of one run only."""

    base: str
    new: str
    changes: tuple[Change, ...]
    unlike: tuple[str, ...]
    one_sided: tuple[str, ...]
    version: int = 1  # of the JSON form

    @property
    def times(self) -> list[Quantity]:
        """The ratios of the times that both runs have."""
        return [change.ratio for change in self.changes if change.kind == "timed" and change.base is not None]

    @property
    def remarks_on_times(self) -> list[str]:
        """Methods and reasons of their intervals, each once."""
        return list(dict.fromkeys(line for ratio in self.times for line in (ratio.method, ratio.reason) if line))


def compare_runs(base: Run, new: Run, unlike: Sequence[str] = (), comparisons: int = 1) -> RunsCompared:
    """Every figure of the cases that both runs have: counted, graded and timed, in this order.

    ``comparisons``: number of runs compared on one page, which share the level of false changes.
    """
    cases = [{case.case_id for case in run.cases if not case.is_check} for run in (base, new)]
    of_new = set(timed_metrics(new))
    both = [metric for metric in timed_metrics(base) if metric in of_new]
    timed = timed_changes(both, processes_of(base), processes_of(new))
    return RunsCompared(
        base=base.header.run_id,
        new=new.header.run_id,
        changes=judge_changes((*_counted(base, new), *_graded(base, new), *timed), comparisons),
        unlike=tuple(unlike),
        one_sided=tuple(sorted(cases[0] ^ cases[1])),
    )


def timed_changes(metrics: Sequence[CellMetric], base: Sequence[Process], new: Sequence[Process]) -> list[Change]:
    """The timed figures of all processes of both runs, not yet judged; of each those processes that have a time of it."""
    changes = []
    for metric in metrics:
        left, right = with_times(metric, base, new)
        values = numbers(metric, left, right)
        if isinstance(values, str):
            changes.append(_change(metric)(base=None, new=None, ratio=absent(values)))
            continue
        measured = ratio_of_runs(*observed(metric, left, right))
        old, now = median(values[: len(left)]), median(values[len(left) :])
        counts = len(left), len(right)
        changes.append(_change(metric)(base=old, new=now, ratio=measured.ratio, p=measured.p, processes=counts))
    return changes


def _counted(base: Run, new: Run) -> list[Change]:
    counts, changes = counted(new), []
    for metric, left in counted(base).items():
        right = counts.get(metric)
        if right is None or (metric.name in METERS and None in (left.value, right.value)):
            continue
        ratio = absent(left.reason or right.reason or "text has no ratio")
        if isinstance(left.value, int | float) and isinstance(right.value, int | float):
            ratio = quotient(exact(right.value), exact(left.value), NOTHING_BELOW)
        changes.append(_change(metric)(base=left.value, new=right.value, ratio=ratio))
    return changes


def _graded(base: Run, new: Run) -> list[Change]:
    """Accuracy of the arms that both runs graded, over the prompts graded in both."""
    grades_of_new, changes = _grades(new), []
    for metric, grades in _grades(base).items():
        others = grades_of_new.get(metric, {})
        prompts = sorted(grades.keys() & others.keys())
        if prompts:
            sides = [[fmean(side[prompt]) for prompt in prompts] for side in (grades, others)]
            differences = [right - left for left, right in zip(*sides, strict=True)]
            left, right = map(fmean, sides)
            ratio = quotient(exact(right), exact(left), NOTHING_BELOW)
            low, high = (paired_lower_bound([sign * one for one in differences]) for sign in (1, -1))
            moved = replace(low, high=None if high.low is None else -high.low)
            p = sign_test_p(differences)
            changes.append(_change(metric)(base=left, new=right, ratio=ratio, difference=moved, p=p))
    return changes


def _grades(run: Run) -> dict[CellMetric, _Grades]:
    """By arm, all tasks together; without warm-ups and replayed acceptance, whose outputs are not the model's."""
    grades: dict[CellMetric, _Grades] = {}
    for case, sample in one_name_each(run).of_arms():
        for row in sample.rows:
            if row.correct is not None and case.replayed is None:
                of_arm = grades.setdefault(metric_of("accuracy", case), {})
                of_arm.setdefault((case.task, row.prompt_id), []).append(row.correct)
    return grades


def _change(metric: CellMetric) -> partial[Change]:
    """The figure, but for what became of it."""
    return partial(
        Change,
        key=metric.key,
        metric=metric.name,
        subject=metric.subject,
        cell=metric.cell,
        kind=metric.kind,
        unit=metric.unit,
        better=metric.definition.better,
    )
