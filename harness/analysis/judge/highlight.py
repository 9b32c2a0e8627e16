"""The cells and arms that a claim names, or why they are absent; and the arm that an answer is about.

A claim that names no arm is about the highlighted arm of every part and batch size. An answer is about the arm that was named
before the first sample, else about the fastest that keeps the accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from pydantic import ValidationError

from harness.analysis.figures.accuracy import MARGIN
from harness.analysis.figures.arms import ArmBesideNtp
from harness.analysis.results import ArmResult, Cell, Comparison, Highlight, HighlightBasis, has_contender
from harness.record.schema import RunHeader
from harness.scenario.arm_names import same_arm
from harness.scenario.claims import Claim, Where
from harness.scenario.methods import METHODS
from harness.stats.quantity import Quantity, pairs_needed, simultaneous_confidence

NAMED = {"part": "parts", "model": "models", "batch": "batch sizes", "task": "tasks", "prompt_tokens": "contexts"}
"""Keys of Where besides those of the arm, and what several values are called."""


class ClaimedCell(NamedTuple):
    """One cell and the arm there. ``picked_from``: the number of arms the best one was picked from on these same decodes, or of
    all that could have been named after the run; ``named``: these in a clause. It is judged at the simultaneous level of all of
    them, and of planned ``looks`` (Comparison). What a claim names before the run is judged at its own level.
    """

    cell: Cell
    arm: ArmResult
    picked_from: int | None = None
    named: str | None = None
    looks: float = 1.0

    @property
    def level(self) -> str | None:
        """Why it is judged at another level than its own interval's, in a clause; None: it is not."""
        among = f"picked from {self.picked_from} arms on these same decodes" if self.picked_from is not None else None
        looked = "looked at after several processes" if self.looks > 1 else None
        said = [one for one in (self.named or among, looked) if one]
        return "; ".join(said) + ("" if "judged" in said[-1] else ": judged") if said else None

    @property
    def names(self) -> dict[str, str]:
        """Part, batch size, task and arm, as text."""
        return self.cell.names | {"arm": self.arm.label}


class CellNotFound(NamedTuple):
    """A cell or arm that a claim names and the run lacks."""

    names: dict[str, str]
    reason: str


Place = ClaimedCell | CellNotFound


def in_words(names: dict[str, str]) -> str:
    """``SBD k=16 γ=0.1, part reference, batch 1``."""
    labels = {"part": "part ", "batch_size": "batch ", "task": "task "}
    said = [names["arm"]] if "arm" in names else []
    return ", ".join(said + [f"{label}{names[key]}" for key, label in labels.items() if key in names])


def places(claim: Claim, comparison: Comparison, header: RunHeader, before: bool) -> list[Place]:
    """Every cell and arm that ``claim`` is about; never empty. A claim about times skips untimed cells if others exist.

    ``before``: it was made before the run, so that what it names was not chosen by what was measured.
    """
    where = claim.where
    cells = [cell for cell in comparison.cells if _meant(cell, where, header)]
    if not cells:
        known = dict.fromkeys(f"part={cell.part}, batch={cell.batch_size}" for cell in comparison.cells)
        reason = f"the run has no cell with {_asked(where)}; it has {'; '.join(known) or 'no cell'}"
        asked = {"part": where.part, "batch_size": where.batch, "task": where.task, "arm": where.arm}
        names = {key: str(value) for key, value in asked.items() if value is not None}
        return [CellNotFound(names, reason)]
    found = [place for cell in _answering(cells, claim, header) for place in _arms(cell, where, comparison)]
    every = _answering(comparison.cells, claim, header)
    judged = [one if before or isinstance(one, CellNotFound) else _among(one, claim, every, header) for one in found]
    return [one if isinstance(one, CellNotFound) else one._replace(looks=comparison.looks) for one in judged]


def _answering(cells: Sequence[Cell], claim: Claim, header: RunHeader) -> Sequence[Cell]:
    """Those where the claim can be judged, or all."""
    if claim.where.best:
        cells = [cell for cell in cells if has_contender(cell, header)] or cells
    if any(bound.definition.clock for bound in claim.bounds):
        cells = [cell for cell in cells if cell.timed] or cells
    return cells


def _facts(cell: Cell, header: RunHeader) -> dict[str, object]:
    """The values of NAMED."""
    length = header.written(cell.part).workload.prompt_tokens  # of synthetic prompts; None of prompts with lengths of their own
    return {"part": cell.part, "model": cell.model, "batch": cell.batch_size, "task": cell.task, "prompt_tokens": length}


def _meant(cell: Cell, where: Where, header: RunHeader) -> bool:
    known = _facts(cell, header)
    return (cell.is_summary or where.task is not None) and all(getattr(where, key) in (None, known[key]) for key in NAMED)


def _among(place: ClaimedCell, claim: Claim, cells: Sequence[Cell], header: RunHeader) -> ClaimedCell:
    """The place among all that the keys named by the claim could have named in ``cells``, in every combination."""
    keys = [key for key in NAMED if getattr(claim.where, key) is not None]
    arms = len({arm.label for cell in cells for arm in cell.arms if arm.is_ntp == place.arm.is_ntp})
    if claim.where.best:
        arms = place.picked_from or 1 if keys else 1
    counts = {"arms": arms} | {NAMED[key]: len({_facts(cell, header)[key] for cell in cells} - {None}) for key in keys}
    words = " × ".join(f"{count} {kind}" for kind, count in counts.items() if count > 1)
    if not words:
        return place
    return place._replace(picked_from=math.prod(counts.values()), named=f"named after the run: judged among {words}")


def _arms(cell: Cell, where: Where, comparison: Comparison) -> Sequence[Place]:
    if where.best:
        return [_best(cell, comparison)]
    if found := _named(cell, where):
        return [ClaimedCell(cell, arm) for arm in found]
    known = ", ".join(arm.label for arm in cell.arms) or "none"
    reason = f"no arm there with {_asked(where)} has samples; those that have: {known}"
    return [CellNotFound(cell.names | ({"arm": where.arm} if where.arm else {}), reason)]


def _named(cell: Cell, where: Where) -> list[ArmResult]:
    """The arms that ``where`` names by their label, or by block size and gamma."""
    if where.arm is not None:
        return [arm for arm in cell.arms if same_arm(where.arm, arm.label)]
    return [
        arm
        for arm in cell.arms
        if arm.block_size is not None and where.block_size in (None, arm.block_size) and where.gamma in (None, arm.gamma)
    ]


def _best(cell: Cell, comparison: Comparison) -> Place:
    chosen = next(one for one in comparison.highlights if (one.part, one.batch_size) == (cell.part, cell.batch_size))
    arm = cell.arm(chosen.label)
    if arm is None:
        return CellNotFound(cell.names, chosen.reason or f"{chosen.label} left no sample of this task")
    return ClaimedCell(cell, arm, chosen.picked_from if chosen.picked_from > 1 else None)


def _asked(where: Where) -> str:
    said = where.model_dump(exclude_none=True)
    return ", ".join(f"{key}={value}" for key, value in said.items()) or "an arm"


def picked(summary: Cell, arms: Sequence[ArmBesideNtp]) -> Highlight:
    """The only arm that is no rival, else the picked one: each arm's accuracy is bounded at the level of all contenders."""
    own = [arm for arm in summary.arms if not (arm.is_ntp or getattr(METHODS.get(arm.method), "rival", False))]
    if len(own) == 1 < len(summary.arms) - 1:
        return _about(summary, own[0])
    confidence = simultaneous_confidence(len(contenders(summary.arms)))
    results = zip(summary.arms, arms, strict=True)
    bounds = {result.label: arm.figure("accuracy_difference", confidence) for result, arm in results if not result.is_ntp}
    return highlight(summary.part, summary.batch_size, summary.arms, bounds=bounds)


def answer(summary: Cell, picked: Highlight, header: RunHeader) -> Highlight:
    """The arm that the scenario's claims name first, else the picked one; a claim that cannot be read names none."""
    for written in header.scenario.get("claims") or []:
        with suppress(ValidationError):
            where = Claim.model_validate(written).where
            if not where.best and _meant(summary, where, header):
                asked = next(iter(_named(summary, where)), None)
                return picked if asked is None or asked.is_ntp else _about(summary, asked)
    return picked


def _about(summary: Cell, asked: ArmResult) -> Highlight:
    """The answer about an arm that was named before the first sample."""
    ntp = [arm for arm in summary.arms if arm.is_ntp]
    return replace(highlight(summary.part, summary.batch_size, [*ntp, asked]), asked=True)


def contenders(arms: Sequence[ArmResult]) -> list[ArmResult]:
    """The arms that can be picked: those with an accuracy, or all where no arm has one."""
    candidates = [arm for arm in arms if not arm.is_ntp]
    return [arm for arm in candidates if arm.accuracy_difference.value is not None] or candidates


def highlight(part: str, batch_size: int, arms: Sequence[ArmResult], bounds: Mapping[str, Quantity] | None = None) -> Highlight:
    """The fastest arm whose accuracy is shown to stay within the margin, else the best by the next weaker basis.

    Fastest: by wall speedup, by NFE speedup where the part was not timed. ``bounds``: the accuracy difference of each arm by
    label, at the simultaneous level of all contenders (default: the arms' own).
    """
    candidates = [arm for arm in arms if not arm.is_ntp]
    compared = [arm for arm in candidates if arm.accuracy_difference.value is not None]
    lows = {arm.label: (bounds or {}).get(arm.label, arm.accuracy_difference).low for arm in compared}
    choices: list[tuple[HighlightBasis, list[ArmResult], str | None]] = [
        ("shown", [arm for arm in compared if (low := lows[arm.label]) is not None and low > -MARGIN], None),
        ("observed", [arm for arm in compared if (arm.accuracy_difference.value or 0.0) >= -MARGIN], None),
        ("none", compared, "no arm stays within the margin"),
        ("replayed" if all(arm.replayed for arm in candidates) else "ungraded", candidates, None),
        ("none", [], "no arm but NTP has samples"),
    ]
    picked_from = len(compared or candidates)
    basis, among, reason = next((choice for choice in choices if choice[1]), choices[-1])
    best = max(among, key=_speed, default=None)
    return Highlight(
        part=part,
        batch_size=batch_size,
        label=best.label if best else None,
        basis=basis,
        margin=MARGIN,
        pairs=max((arm.accuracy_difference.n for arm in compared), default=0),
        pairs_needed=pairs_needed(MARGIN, simultaneous_confidence(picked_from)),
        reason=reason,
        picked_from=picked_from,
    )


def _speed(arm: ArmResult) -> float:
    speed = arm.wall_speedup.value if arm.wall_speedup.value is not None else arm.nfe_speedup.value
    return speed if speed is not None else 0.0
