"""At which batch size the speedup is gone, measured and predicted, by interpolation between the sizes of a part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log

from harness.analysis.results import ArmResult, Cell
from harness.analysis.stats.quantity import Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedByLoad:
    """One arm over the batch sizes of a part. ``predicted``: ex-ante, by the best price that every size has; empty without."""

    label: str
    measured: tuple[tuple[int, Quantity], ...]
    predicted: tuple[tuple[int, float], ...]

    @property
    def measured_break_even(self) -> float | None:
        """Where the measured speedup falls to 1."""
        return break_even([(size, speed.value) for size, speed in self.measured if speed.value is not None])

    @property
    def predicted_break_even(self) -> float | None:
        """Where the predicted one does."""
        return break_even(self.predicted)


def break_even(points: Sequence[tuple[float, float]]) -> float | None:
    """The first batch size at which the speedup falls through 1; axes are logarithmic between two points. None: it does not."""
    for (size, speed), (next_size, next_speed) in pairwise(sorted(points)):
        if speed > 1 >= next_speed:
            share = log(speed) / log(speed / next_speed)
            return exp(log(size) + share * log(next_size / size))
    return None


def speeds_by_load(cells: Sequence[Cell]) -> tuple[SpeedByLoad, ...]:
    """The arms besides NTP that were timed at two batch sizes or more of one part, the fastest at the smallest one first."""
    found: dict[str, dict[int, ArmResult]] = {}
    for cell in sorted(cells, key=lambda cell: cell.batch_size):
        for arm in cell.arms:
            if not arm.is_ntp and arm.wall_speedup.value is not None:
                found.setdefault(arm.label, {})[cell.batch_size] = arm
    several = [_of(label, arms) for label, arms in found.items() if len(arms) > 1]
    return tuple(sorted(several, key=lambda one: -(one.measured[0][1].value or 0.0)))


def _of(label: str, arms: dict[int, ArmResult]) -> SpeedByLoad:
    prices = [
        {one.price: one.wall_speedup.value for one in arm.predictions if one.ex_ante and one.wall_speedup.value is not None}
        for arm in arms.values()
    ]
    price = next((price for price in prices[0] if all(price in one for one in prices)), None)
    predicted = () if price is None else tuple((size, one[price]) for size, one in zip(arms, prices, strict=True))
    return SpeedByLoad(label=label, measured=tuple((size, arm.wall_speedup) for size, arm in arms.items()), predicted=predicted)
