"""Two or more runs beside each other: each as it stands, every other one against the first, and the arms they share.

Unlike runs are not refused: what differs is part of the answer, and is to be read first. Reads records only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from harness.analysis.comparison import compare
from harness.analysis.judgement import Judgements
from harness.analysis.judgement import to_json as judgements_json
from harness.analysis.results import ArmResult, Comparison
from harness.analysis.results import to_json as comparison_json
from harness.analysis.stats.quantity import Quantity
from harness.analysis.verdict import verdict
from harness.analysis.verdict_claims import claims_for
from harness.errors import RecordError, UserError
from harness.record.schema import Run, RunHeader
from harness.regression.changes import Outcome
from harness.regression.comparability import Unlike, shared_prompts, unlike
from harness.regression.compare_runs import RunsCompared, compare_runs

SEVERAL_VERSION = 1
"""Version of the JSON form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One run under its letter, with what is derived from it and what is claimed of it."""

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

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """Of every change, in the same order."""
        return tuple(change.outcome for change in self.compared.changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedArm:
    """One arm over all tasks of a part and batch size, in every run; None where a run does not have it."""

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
    """Everything that is said of several runs together."""

    sides: tuple[Side, ...]
    against: tuple[Against, ...]
    arms: tuple[SharedArm, ...]
    version: int = SEVERAL_VERSION


def compare_several(runs: Sequence[Run]) -> SideBySide:
    """The first run beside the others.

    Raises:
        UserError: fewer than two runs, more than there are letters, or one given twice.
    """
    ids = [run.header.run_id for run in runs]
    if not 2 <= len(runs) <= len(ascii_uppercase) or len(set(ids)) < len(ids):
        raise UserError(f"got runs {', '.join(ids) or 'none'}: give two or more, at most {len(ascii_uppercase)}, each once")
    sides = tuple(_side(letter, run) for letter, run in zip(ascii_uppercase, runs, strict=False))
    return SideBySide(
        sides=sides,
        against=tuple(
            _against(letter, runs[0], run, len(runs) - 1) for letter, run in zip(ascii_uppercase[1:], runs[1:], strict=False)
        ),
        arms=_shared(sides),
    )


def to_json(found: SideBySide) -> dict[str, Any]:
    """As plain JSON values with their ``version``."""
    return {
        "version": found.version,
        "runs": [
            {
                "letter": side.letter,
                "run_id": side.header.run_id,
                "scenario_name": side.header.scenario_name,
                "question": side.header.question,
                "created_at": side.header.created_at,
                "comparison": comparison_json(side.comparison),
                "judgements": judgements_json(side.judgements),
            }
            for side in found.sides
        ],
        "against": [
            {
                "letter": one.letter,
                "unlike": [{"key": key.key, "base": key.base, "new": key.new} for key in one.unlike],
                "compared": asdict(one.compared),
                "outcomes": list(one.outcomes),
            }
            for one in found.against
        ],
    }


def judgements_of(comparison: Comparison, header: RunHeader) -> Judgements:
    """The verdict on the run's own claims, else the paper's; void where its own cannot be read."""
    try:
        claims = claims_for(header, (), ())
    except RecordError:
        claims = ()
    return verdict(comparison, claims, header)


def _side(letter: str, run: Run) -> Side:
    comparison = compare(run)
    return Side(
        letter=letter, header=run.header, comparison=comparison, judgements=judgements_of(comparison, run.header)
    )  # fmt: skip


def _against(letter: str, base: Run, new: Run, comparisons: int) -> Against:
    compared = compare_runs(*shared_prompts(base, new), comparisons=comparisons)
    return Against(letter=letter, compared=compared, unlike=unlike(base, new))


def _shared(sides: Sequence[Side]) -> tuple[SharedArm, ...]:
    """Arms that at least two runs have, by part, batch size and label; NTP, which is 1 everywhere, left out."""
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
