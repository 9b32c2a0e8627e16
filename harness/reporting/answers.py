"""The answers on top of the page: one card per part and batch size with its figure, its claims, why, and what weakens it.

A card is about the highlighted arm; where a value is absent its reason is said. Values of a comparison put into words,
nothing computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness import formatting
from harness.analysis.results import ArmResult, Cell, Comparison, Highlight
from harness.analysis.stats.quantity import Quantity
from harness.record.schema import RunHeader
from harness.reporting import sentences, wording
from harness.reporting.cells import Mark
from harness.reporting.claims_shown import ClaimShown, Held, claims_shown
from harness.reporting.pointers import Pointers
from harness.reporting.weaknesses import strengths, weaknesses


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One card: a figure in large type with its unit and what it rests on, the claims, titled paragraphs, weaknesses.

    ``key``, ``raw``, ``low``, ``high``: the value behind the figure, as in a table; empty where the figure is a word.
    """

    title: str
    about: str
    figure: str
    unit: str
    interval: str
    marks: tuple[Mark, ...]
    key: str
    raw: float | None
    low: float | None
    high: float | None
    claims: tuple[ClaimShown, ...]
    paragraphs: tuple[tuple[str, str], ...]
    weaknesses: tuple[str, ...]


def answers(comparison: Comparison, header: RunHeader, held: Sequence[Held], pointers: Pointers) -> list[Answer]:
    """One card per part and batch size that has an arm besides NTP, or should have: in the order of the scenario."""
    found = []
    for highlight in comparison.highlights:
        if has_contender(header, highlight):
            cell = comparison.summary(highlight.part, highlight.batch_size)
            own = [one for one in held if _is_about(one, highlight)]
            found.append(_answer(cell, highlight, comparison, header, claims_shown(own, pointers), pointers))
    return found


def has_contender(header: RunHeader, highlight: Highlight) -> bool:
    """Whether an arm besides NTP was planned there; NTP alone answers nothing, it is there for others to be compared with."""
    cases = [case for case in header.cases if (case.part, case.batch_size) == (highlight.part, highlight.batch_size)]
    return any(case.arm.get("method") != "ntp" and not case.is_check for case in cases)


def _is_about(one: Held, highlight: Highlight) -> bool:
    cell = one.judgement.cell
    return (cell.get("part"), cell.get("batch_size")) == (highlight.part, str(highlight.batch_size))


def _answer(
    cell: Cell, highlight: Highlight, comparison: Comparison, header: RunHeader, claims: list[ClaimShown], pointers: Pointers
) -> Answer:
    where = f"{wording.model(cell)} on {wording.machine(header, cell.device)}"
    title = f"{cell.part}, batch {cell.batch_size}"
    arm = next((arm for arm in cell.arms if arm.label == highlight.label), None)
    weak = weaknesses(cell, arm, comparison, header)
    if arm is None:
        said = (("No answer", f"Nothing can be said: {highlight.reason}."),)
        return _card(title, where, "none", "no answer", claims, said, weak)
    about = f"{wording.arm(arm)}; {where}"
    fast = strengths(cell)
    told = (*sentences.paragraphs(cell, arm, highlight), *((("Baseline", fast),) if fast else ()))
    if highlight.basis == "none":  # a speed that costs the answers is not an answer: say so in large type
        return _card(title, about, "none", "no arm keeps the accuracy of NTP", claims, told, weak, _marks(cell, arm))
    speed = arm.wall_speedup if cell.timed else arm.nfe_speedup
    if speed.value is None:
        return _card(title, about, "none", "no wall-clock figure", claims, told, weak, _marks(cell, arm))
    return Answer(
        title=title, about=about, figure=formatting.ratio(speed.value), unit=_unit(speed, cell, arm),
        interval=sentences.ground(speed, cell) if cell.timed else "", marks=_marks(cell, arm), key=pointers.of(speed),
        raw=speed.value, low=speed.low, high=speed.high, claims=tuple(claims), paragraphs=told, weaknesses=weak,
    )  # fmt: skip


def _card(
    title: str, about: str, figure: str, unit: str, claims: Sequence[ClaimShown], paragraphs: tuple[tuple[str, str], ...],
    weak: tuple[str, ...], marks: tuple[Mark, ...] = (),
) -> Answer:  # fmt: skip
    """A card whose figure is a word."""
    return Answer(
        title=title, about=about, figure=figure, unit=unit, interval="", marks=marks, key="", raw=None, low=None, high=None,
        claims=tuple(claims), paragraphs=paragraphs, weaknesses=weak,
    )  # fmt: skip


def _marks(cell: Cell, arm: ArmResult) -> tuple[Mark, ...]:
    own: Mark = "measured" if cell.timed else "counted"
    return (own, "replayed") if arm.replayed else (own,)


def _unit(speed: Quantity, cell: Cell, arm: ArmResult) -> str:
    if not cell.timed:
        return "fewer forward passes; not timed"
    if cell.baseline_check.state == "slow":
        return "the speed of a slow baseline"
    if cell.baseline_check.state == "different_tokens":
        return "the speed of a baseline that wrote other tokens than generate()"
    given = ""
    if arm.replayed and arm.nfe_speedup.value is not None:
        given = f", made to need {formatting.ratio(arm.nfe_speedup.value)} fewer passes (replayed: given, not found)"
    if speed.low is not None and speed.high is not None and speed.low <= 1 <= speed.high:
        return f"the speed of NTP{given}: no clear difference"
    return f"faster by the clock{given}" if (speed.value or 0) > 1 else f"the speed of NTP{given}: slower by the clock"
