"""The cells and arms of a comparison that a claim names, or why they are absent.

A claim that names no arm is about the highlighted arm of every part and batch size.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from harness.analysis.results import ArmResult, Cell, Comparison, has_contender
from harness.frozen import frozen
from harness.record.schema import RunHeader
from harness.scenario.arm_names import same_arm
from harness.scenario.claims import Claim, Where
from harness.scenario.metrics import METRICS


@frozen
class ClaimedCell:
    """One cell and the arm there. ``picked_from``: the number of arms the best one was picked from on these same decodes. A
    picked arm is judged at the simultaneous level of all of them, an arm that the claim names at its own.
    """

    cell: Cell
    arm: ArmResult
    picked_from: int | None = None

    @property
    def names(self) -> dict[str, str]:
        """Part, batch size, task and arm, as text."""
        return self.cell.names | {"arm": self.arm.label}


@frozen
class CellNotFound:
    """A cell or arm that a claim names and the run lacks."""

    names: dict[str, str]
    reason: str


def in_words(names: dict[str, str]) -> str:
    """``SBD k=16 γ=0.1, part reference, batch 1``."""
    labels = {"part": "part ", "batch_size": "batch ", "task": "task "}
    said = [names["arm"]] if "arm" in names else []
    return ", ".join(said + [f"{label}{names[key]}" for key, label in labels.items() if key in names])


def places(claim: Claim, comparison: Comparison, header: RunHeader) -> list[ClaimedCell | CellNotFound]:
    """Every cell and arm that ``claim`` is about; never empty. A claim about times skips untimed cells if others exist."""
    where = claim.where
    cells = [cell for cell in comparison.cells if _meant(cell, where, header)]
    if not cells:
        known = dict.fromkeys(f"part={cell.part}, batch={cell.batch_size}" for cell in comparison.cells)
        reason = f"the run has no cell with {_asked(where)}; it has {'; '.join(known) or 'no cell'}"
        asked = {"part": where.part, "batch_size": where.batch, "task": where.task, "arm": where.arm}
        names = {key: str(value) for key, value in asked.items() if value is not None}
        return [CellNotFound(names=names, reason=reason)]
    if where.best:
        cells = [cell for cell in cells if has_contender(cell, header)] or cells
    if any(METRICS[bound.metric].clock for bound in claim.bounds):
        cells = [cell for cell in cells if cell.timed] or cells
    return [place for cell in cells for place in _arms(cell, where, comparison)]


def _meant(cell: Cell, where: Where, header: RunHeader) -> bool:
    asked = {"part": cell.part, "model": cell.model, "batch": cell.batch_size, "prompt_tokens": _prompt_tokens(cell, header)}
    if any(getattr(where, key) not in (None, found) for key, found in asked.items()):
        return False
    return cell.is_summary if where.task is None else cell.task == where.task


def _prompt_tokens(cell: Cell, header: RunHeader) -> Any:
    """Length of the part's synthetic prompts; None for prompts with lengths of their own."""
    return header.written(cell.part).workload.prompt_tokens


def _arms(cell: Cell, where: Where, comparison: Comparison) -> Sequence[ClaimedCell | CellNotFound]:
    if where.best:
        return [_best(cell, comparison)]
    if found := _named(cell, where):
        return [ClaimedCell(cell=cell, arm=arm) for arm in found]
    known = ", ".join(arm.label for arm in cell.arms) or "none"
    reason = f"no arm there with {_asked(where)} has samples; those that have: {known}"
    return [CellNotFound(names=cell.names | ({"arm": where.arm} if where.arm else {}), reason=reason)]


def _named(cell: Cell, where: Where) -> list[ArmResult]:
    """The arms that ``where`` names by their label, or by block size and gamma."""
    if where.arm is not None:
        return [arm for arm in cell.arms if same_arm(where.arm, arm.label)]
    return [
        arm
        for arm in cell.arms
        if arm.block_size is not None and where.block_size in (None, arm.block_size) and where.gamma in (None, arm.gamma)
    ]


def asked_arm(cell: Cell, header: RunHeader) -> ArmResult | None:
    """The arm of ``cell`` that the claims of the run's scenario name first; None where they name none, or cannot be read."""
    for written in header.scenario.get("claims") or []:
        with suppress(ValidationError):
            where = Claim.model_validate(written).where
            if not where.best and _meant(cell, where, header):
                return next(iter(_named(cell, where)), None)
    return None


def _best(cell: Cell, comparison: Comparison) -> ClaimedCell | CellNotFound:
    highlight = next(one for one in comparison.highlights if (one.part, one.batch_size) == (cell.part, cell.batch_size))
    arm = next((arm for arm in cell.arms if arm.label == highlight.label), None)
    if arm is None:
        return CellNotFound(names=cell.names, reason=highlight.reason or f"{highlight.label} left no sample of this task")
    return ClaimedCell(cell=cell, arm=arm, picked_from=highlight.picked_from if highlight.picked_from > 1 else None)


def _asked(where: Where) -> str:
    said = where.model_dump(exclude_none=True)
    return ", ".join(f"{key}={value}" for key, value in said.items()) or "an arm"
