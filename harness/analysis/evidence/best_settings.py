"""The decoding methods of one cell, each at its best setting, for cells of many arms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness import formatting
from harness.analysis.figures.accuracy import MARGIN
from harness.analysis.results import ArmResult, Cell
from harness.frozen import frozen
from harness.stats.quantity import Quantity


@frozen
class Way:
    """One decoding method at one setting, chosen from ``settings`` of them. ``keeps``: whether its observed loss of NTP's
    accuracy on the same prompts is at most MARGIN; None without graded answers.
    """

    name: str
    arm: ArmResult
    speed: Quantity
    keeps: bool | None
    settings: int = 1

    @property
    def lossless(self) -> bool:
        """Whether its output is NTP's by construction (at a temperature, in distribution), unlike FreeDave's masked chain."""
        return "NTP" in (self.arm.lossless or "")


def ways(cell: Cell) -> list[Way]:
    """Every method at its best setting, fastest first: by the clock, or by passes where the part was not timed.

    The best setting is the fastest that keeps NTP's accuracy, or whose accuracy is unknown; else the most accurate one.
    """
    by_name: dict[str, list[Way]] = {}
    for arm in cell.arms:
        speed = arm.wall_speedup if cell.timed else arm.passes_saved
        if not arm.is_ntp and speed.value is not None:
            lost = arm.accuracy_difference.value
            way = Way(name=name_of(arm.label), arm=arm, speed=speed, keeps=None if lost is None else lost >= -MARGIN)
            by_name.setdefault(way.name, []).append(way)
    return sorted(map(_best, by_name.values()), key=_speed, reverse=True)


def faster(cell: Cell, asked: ArmResult) -> str:
    """``SBD k=16 γ=0.1 is faster, 2.12x``: the fastest other method that keeps the accuracy; empty where none is faster."""
    speed = (asked.wall_speedup if cell.timed else asked.passes_saved).value or 0
    better = [way for way in ways(cell) if way.keeps is not False and _speed(way) > speed]
    if not better:
        return ""
    return f"{better[0].arm.label} is faster, {formatting.ratio(_speed(better[0]))}{'' if cell.timed else ' fewer passes'}"


def telling_arms(cell: Cell, most: int) -> tuple[ArmResult, ...]:
    """All arms of ``cell``; of more than ``most`` only NTP and the fastest methods at their best settings, ``most`` in all."""
    if len(cell.arms) <= most:
        return cell.arms
    return (*(arm for arm in cell.arms if arm.is_ntp), *(way.arm for way in ways(cell)))[:most]


def name_of(label: str) -> str:
    """An arm's label without its settings, which are the words with = or > in them; its temperature stays."""
    return " ".join(word for word in label.split() if word.startswith("T=") or not {"=", ">"} & set(word))


def _best(settings: Sequence[Way]) -> Way:
    eligible = [way for way in settings if way.keeps is not False]
    best = max(eligible, key=_speed) if eligible else max(settings, key=lambda way: way.arm.accuracy.value or 0.0)
    return replace(best, settings=len(settings))


def _speed(way: Way) -> float:
    return way.speed.value or 0.0
