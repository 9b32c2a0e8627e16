"""The arm that an answer is about: the one that was named before the first sample, else the fastest that keeps the accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.analysis.figures.accuracy import MARGIN
from harness.analysis.figures.arms import ArmBesideNtp
from harness.analysis.judge.places import asked_arm
from harness.analysis.results import ArmResult, Cell, Highlight, HighlightBasis
from harness.record.schema import RunHeader
from harness.scenario.methods import METHODS
from harness.stats.quantity import Quantity, pairs_needed, simultaneous_confidence


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
    """The arm that the scenario's claims name, else the picked one."""
    asked = asked_arm(summary, header)
    return picked if asked is None or asked.is_ntp else _about(summary, asked)


def _about(summary: Cell, asked: ArmResult) -> Highlight:
    """The answer about an arm that was named before the first sample."""
    ntp = [arm for arm in summary.arms if arm.is_ntp]
    return replace(highlight(summary.part, summary.batch_size, [*ntp, asked]), asked=True)


def contenders(arms: Sequence[ArmResult]) -> list[ArmResult]:
    """The arms that can be picked: those with an accuracy, or all where no arm has one."""
    candidates = [arm for arm in arms if not arm.is_ntp]
    return [arm for arm in candidates if arm.accuracy_difference.value is not None] or candidates


def highlight(
    part: str, batch_size: int, arms: Sequence[ArmResult], margin: float = MARGIN, bounds: Mapping[str, Quantity] | None = None
) -> Highlight:
    """The fastest arm whose accuracy is shown to stay within the margin, else the best by the next weaker basis.

    Fastest: by wall speedup, by NFE speedup where the part was not timed. ``bounds``: the accuracy difference of each arm by
    label, at the simultaneous level of all contenders (default: the arms' own).
    """
    candidates = [arm for arm in arms if not arm.is_ntp]
    picked_from = len(contenders(arms))
    pairs = max((arm.accuracy_difference.n for arm in candidates if arm.accuracy_difference.value is not None), default=0)

    def pick(basis: HighlightBasis, among: Sequence[ArmResult], reason: str | None = None) -> Highlight:
        best = max(among, key=_speed, default=None)
        return Highlight(
            part=part,
            batch_size=batch_size,
            label=best.label if best else None,
            basis=basis,
            margin=margin,
            pairs=pairs,
            pairs_needed=pairs_needed(margin, simultaneous_confidence(picked_from)),
            reason=reason,
            picked_from=picked_from,
        )

    if not candidates:
        return pick("none", [], "no arm but NTP has samples")
    compared = [arm for arm in contenders(arms) if arm.accuracy_difference.value is not None]
    if not compared:
        return pick("replayed" if all(arm.replayed for arm in candidates) else "ungraded", candidates)
    lows = {arm.label: (bounds or {}).get(arm.label, arm.accuracy_difference).low for arm in compared}
    shown = [arm for arm in compared if (low := lows[arm.label]) is not None and low > -margin]
    observed = [arm for arm in compared if (arm.accuracy_difference.value or 0.0) >= -margin]
    if shown:
        return pick("shown", shown)
    return pick("observed", observed) if observed else pick("none", compared, "no arm stays within the margin")


def _speed(arm: ArmResult) -> float:
    speed = arm.wall_speedup.value if arm.wall_speedup.value is not None else arm.nfe_speedup.value
    return speed if speed is not None else 0.0
