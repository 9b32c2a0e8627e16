"""Two or more runs side by side: each by itself, every other one against the first, and the arms they share.

It reports what changed without a verdict. Unlike runs are not refused, but their differences are listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from string import ascii_uppercase

from harness.analysis.answer import Derived
from harness.analysis.judge.judgement import Judgements
from harness.analysis.judge.judgement import to_json as judgements_json
from harness.analysis.results import ArmResult, Comparison
from harness.analysis.results import to_json as comparison_json
from harness.errors import UserError
from harness.frozen import frozen
from harness.record.schema import Run, RunHeader
from harness.regression.changes import RunsCompared, compare_runs
from harness.regression.comparability import Unlike, shared_prompts, unlike
from harness.stats.quantity import Quantity


@frozen
class Side:
    """One run under its letter, with its comparison and claims."""

    letter: str
    header: RunHeader
    comparison: Comparison
    judgements: Judgements


@frozen
class Against:
    """Run ``letter`` against the first one."""

    letter: str
    compared: RunsCompared
    unlike: tuple[Unlike, ...]


@frozen
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


@frozen
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


def to_json(several: SideBySide) -> dict[str, object]:
    """As plain JSON values with their ``version``."""
    about = ("run_id", "scenario_name", "question", "created_at")
    return {
        "version": several.version,
        "runs": [
            {"letter": side.letter}
            | {name: getattr(side.header, name) for name in about}
            | {"comparison": comparison_json(side.comparison), "judgements": judgements_json(side.judgements)}
            for side in several.sides
        ],
        "against": [
            {
                "letter": against.letter,
                "unlike": [asdict(difference) for difference in against.unlike],
                "compared": asdict(against.compared),
                "outcomes": [change.outcome for change in against.compared.changes],
            }
            for against in several.against
        ],
    }


def _side(letter: str, run: Run) -> Side:
    """The run with the verdict on its own claims, else the paper's; void where its own cannot be read."""
    comparison = Derived(run).comparison
    judged = comparison.judgements
    if comparison.unread is not None:
        judged = replace(judged, judgements=(), claims=())
    return Side(letter=letter, header=run.header, comparison=comparison, judgements=judged)


def _shared(sides: Sequence[Side]) -> tuple[SharedArm, ...]:
    """Arms that at least two runs have, by part, batch size and label, without NTP, which is 1 everywhere."""
    by_arm: dict[tuple[str, int, str], dict[str, ArmResult]] = {}
    for side in sides:
        for cell in side.comparison.cells:
            if cell.is_summary:
                for arm in cell.arms:
                    if not arm.is_ntp:
                        by_arm.setdefault((cell.part, cell.batch_size, arm.label), {})[side.letter] = arm
    return tuple(
        SharedArm(part=part, batch_size=size, label=label, results=tuple(arms.get(side.letter) for side in sides))
        for (part, size, label), arms in by_arm.items()
        if len(arms) > 1
    )
