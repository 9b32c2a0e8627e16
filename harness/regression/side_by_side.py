"""Two or more runs side by side: each by itself, every other one against the first, and the arms they share.

It reports what changed, by how much and how certain that is, without a verdict. Unlike runs are not refused, but their
differences are listed. Times are compared process by process over the same prompts, accuracies prompt by prompt. Counts have no
interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, median
from string import ascii_uppercase
from typing import Any

from harness.analysis.comparison import compare
from harness.analysis.judgement import Judgements
from harness.analysis.judgement import to_json as judgements_json
from harness.analysis.results import ArmResult, Comparison
from harness.analysis.results import to_json as comparison_json
from harness.analysis.sample_totals import one_name_each
from harness.analysis.stats.quantity import CONFIDENCE, Quantity, absent, exact, paired_lower_bound
from harness.analysis.stats.two_runs import ratio_of_runs, sign_test_p
from harness.analysis.verdict import claims_for, verdict
from harness.errors import RecordError, UserError
from harness.record.schema import Run, RunHeader
from harness.regression.changes import Change, judge_changes
from harness.regression.comparability import Unlike, shared_prompts, unlike
from harness.regression.counted import METERS, counted
from harness.regression.metrics import CellMetric, metric_of, timed_metrics
from harness.regression.timed import Process, numbers, observed, processes_of, with_times

_Grades = dict[tuple[str, str], list[bool]]
"""(task, prompt id) -> whether each of its repeats was correct."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsCompared:
    """NEW beside BASE, by run id; ``unlike``: the permitted differences, ``one_sided``: the cases of one run only."""

    base: str
    new: str
    changes: tuple[Change, ...]
    unlike: tuple[str, ...] = ()
    one_sided: tuple[str, ...] = ()
    version: int = 1  # of the JSON form


def compare_runs(base: Run, new: Run, unlike: Sequence[str] = (), comparisons: int = 1) -> RunsCompared:
    """Every figure of the cases that both runs have: counted, graded and timed, in this order.

    ``comparisons``: number of runs compared on one page, which share the level of false changes.
    """
    cases = [{case.case_id for case in run.header.cases if not case.is_check} for run in (base, new)]
    there = set(timed_metrics(new))
    timed = timed_changes([one for one in timed_metrics(base) if one in there], processes_of(base), processes_of(new))
    return RunsCompared(
        base=base.header.run_id,
        new=new.header.run_id,
        changes=judge_changes((*_counted(base, new), *_graded(base, new), *timed), comparisons),
        unlike=tuple(unlike),
        one_sided=tuple(sorted(cases[0] ^ cases[1])),
    )


def timed_changes(metrics: Sequence[CellMetric], base: Sequence[Process], new: Sequence[Process]) -> list[Change]:
    """The timed figures of all processes of both runs, not yet judged; of each those processes that have a time of it."""
    found = []
    for metric in metrics:
        left, right = with_times(metric, base), with_times(metric, new)
        values = numbers(metric, [*left, *right] if left and right else [*base, *new])
        if isinstance(values, str):
            found.append(_change(metric, None, None, absent(values)))
            continue
        known = ratio_of_runs(*observed(metric, left, right))
        medians = median(values[: len(left)]), median(values[len(left) :])
        found.append(_change(metric, *medians, known.ratio, p=known.p, processes=(len(left), len(right))))
    return found


def _counted(base: Run, new: Run) -> list[Change]:
    of_base, of_new = counted(base), counted(new)
    found = []
    for metric in of_base:
        left, right = of_base[metric], of_new.get(metric)
        if right is None or (metric.name in METERS and None in (left.value, right.value)):
            continue
        ratio = absent(left.reason or right.reason or "text has no ratio")
        if isinstance(left.value, int | float) and isinstance(right.value, int | float):
            ratio = exact(right.value / left.value) if left.value else absent("nothing in BASE to divide by")
        found.append(_change(metric, left.value, right.value, ratio))
    return found


def _graded(base: Run, new: Run) -> list[Change]:
    """Accuracy of the arms that both runs graded, over the prompts graded in both."""
    of_base, of_new = _grades(base), _grades(new)
    found = []
    for metric, grades in of_base.items():
        prompts = sorted(grades.keys() & of_new.get(metric, {}).keys())
        if not prompts:
            continue
        sides = [[fmean(side[prompt]) for prompt in prompts] for side in (grades, of_new[metric])]
        differences = [right - left for left, right in zip(*sides, strict=True)]
        left, right = map(fmean, sides)
        ratio = exact(right / left) if left else absent("nothing in BASE to divide by")
        found.append(_change(metric, left, right, ratio, difference=_difference(differences), p=sign_test_p(differences)))
    return found


def _grades(run: Run) -> dict[CellMetric, _Grades]:
    """By arm, all tasks together; without warm-ups and replayed acceptance, whose outputs are not the model's."""
    found: dict[CellMetric, _Grades] = {}
    for case, sample in one_name_each(run).of_arms():
        for row in sample.rows:
            if row.correct is not None and case.replayed is None:
                of_arm = found.setdefault(metric_of("accuracy", case), {})
                of_arm.setdefault((case.task, row.prompt_id), []).append(row.correct)
    return found


def _difference(differences: Sequence[float]) -> Quantity:
    """Mean paired difference with a two-sided interval: one-sided bounds from either side, each with half the error."""
    half = 0.5 + CONFIDENCE / 2
    low, high = paired_lower_bound(differences, half), paired_lower_bound([-one for one in differences], half)
    return replace(low, high=None if high.low is None else -high.low)


def _change(
    metric: CellMetric,
    base: float | str | None,
    new: float | str | None,
    ratio: Quantity,
    difference: Quantity | None = None,
    p: float | None = None,
    processes: tuple[int, int] | None = None,
) -> Change:
    one = metric.definition
    return Change(
        key=metric.key,
        metric=metric.name,
        subject=metric.subject,
        cell=metric.cell,
        kind=one.gated or "claim",
        unit=metric.unit,
        better=one.better,
        base=base,
        new=new,
        ratio=ratio,
        difference=difference,
        p=p,
        processes=processes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One run under its letter, with its comparison and claims."""

    letter: str
    header: RunHeader
    comparison: Comparison
    judgements: Judgements


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """Run ``letter`` against the first one."""

    letter: str
    compared: RunsCompared
    unlike: tuple[Unlike, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedArm:
    """One arm over all tasks of a part and batch size, in every run; None where a run lacks it."""

    part: str
    batch_size: int
    label: str
    results: tuple[ArmResult | None, ...]

    @property
    def wall_speedups(self) -> tuple[Quantity | None, ...]:
        """As each run measured it."""
        return tuple(None if arm is None else arm.wall_speedup for arm in self.results)


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide:
    """Everything about several runs together."""

    sides: tuple[Side, ...]
    against: tuple[Against, ...]
    arms: tuple[SharedArm, ...]
    version: int = 1  # of the JSON form


def compare_several(runs: Sequence[Run]) -> SideBySide:
    """The first run beside the others.

    Raises:
        UserError: fewer than two runs, more than there are letters, or one given twice.
    """
    ids = [run.header.run_id for run in runs]
    if not 2 <= len(runs) <= len(ascii_uppercase) or len(set(ids)) < len(ids):
        raise UserError(f"got runs {', '.join(ids) or 'none'}: give two or more, at most {len(ascii_uppercase)}, each once")
    sides = tuple(_side(letter, run) for letter, run in zip(ascii_uppercase, runs, strict=False))
    against = tuple(
        Against(
            letter=side.letter,
            unlike=unlike(runs[0], run),
            compared=compare_runs(*shared_prompts(runs[0], run), comparisons=len(runs) - 1),
        )
        for side, run in zip(sides[1:], runs[1:], strict=True)
    )
    return SideBySide(sides=sides, against=against, arms=_shared(sides))


def to_json(found: SideBySide) -> dict[str, Any]:
    """As plain JSON values with their ``version``."""
    about = ("run_id", "scenario_name", "question", "created_at")
    return {
        "version": found.version,
        "runs": [
            {"letter": side.letter}
            | {name: getattr(side.header, name) for name in about}
            | {"comparison": comparison_json(side.comparison), "judgements": judgements_json(side.judgements)}
            for side in found.sides
        ],
        "against": [
            {
                "letter": one.letter,
                "unlike": [asdict(key) for key in one.unlike],
                "compared": asdict(one.compared),
                "outcomes": [change.outcome for change in one.compared.changes],
            }
            for one in found.against
        ],
    }


def _side(letter: str, run: Run) -> Side:
    """The run with the verdict on its own claims, else the paper's; void where its own cannot be read."""
    found, header = compare(run), run.header
    try:
        claims = claims_for(header, (), ())
    except RecordError:
        claims = ()
    return Side(letter=letter, header=header, comparison=found, judgements=verdict(found, claims, header))


def _shared(sides: Sequence[Side]) -> tuple[SharedArm, ...]:
    """Arms that at least two runs have, by part, batch size and label, without NTP, which is 1 everywhere."""
    found: dict[tuple[str, int, str], dict[str, ArmResult]] = {}
    for side in sides:
        for cell in side.comparison.cells:
            if cell.is_summary:
                for arm in cell.arms:
                    if not arm.is_ntp:
                        found.setdefault((cell.part, cell.batch_size, arm.label), {})[side.letter] = arm
    return tuple(
        SharedArm(part=part, batch_size=size, label=label, results=tuple(arms.get(side.letter) for side in sides))
        for (part, size, label), arms in found.items()
        if len(arms) > 1
    )
