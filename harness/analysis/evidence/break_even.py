"""At which load the speedup is gone, measured and predicted, by interpolation between the loads of a part.

A load is a batch size, or under a load (harness.scenario.load) the number of requests in flight.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import exp, log

from harness.analysis.results import ArmResult, Cell
from harness.frozen import frozen
from harness.stats.quantity import Quantity

Points = Sequence[tuple[float, float]]


@frozen
class Arrived:
    """One arm under arrivals at times of their own: ``in_flight`` on average, which is measured, and its speedup there.

    ``words``: ``0.5 requests/s``. ``predicted``: by the price of SpeedByLoad; None without.
    """

    words: str
    in_flight: float
    speed: Quantity
    predicted: float | None


@frozen
class SpeedByLoad:
    """One arm over the batch sizes of a part. ``predicted``: ex-ante, by the best price that every size has; empty without.

    ``in_flight``: the sizes are requests in flight in a closed loop, not at once. ``arrived``: under arrivals of the same part.
    """

    label: str
    measured: tuple[tuple[int, Quantity], ...]
    predicted: tuple[tuple[int, float], ...]
    in_flight: bool
    arrived: tuple[Arrived, ...]

    @property
    def measured_points(self) -> Points:
        """Those with a value."""
        return [(size, speed.value) for size, speed in self.measured if speed.value is not None]

    @property
    def measured_break_even(self) -> float | None:
        """Where the measured speedup falls to 1."""
        return break_even(self.measured_points)

    @property
    def break_even_ends(self) -> tuple[float, float] | None:
        """Where the lower and the upper ends of the intervals fall to 1; None unless both do."""
        low = break_even([(size, speed.low) for size, speed in self.measured if speed.low is not None])
        high = break_even([(size, speed.high) for size, speed in self.measured if speed.high is not None])
        return None if low is None or high is None else (low, high)

    @property
    def predicted_break_even(self) -> float | None:
        """Where the predicted one does."""
        return break_even(self.predicted)


def break_even(points: Points) -> float | None:
    """The first batch size at which the speedup falls through 1; axes are logarithmic between two points. None: it does not."""
    for (size, speed), (next_size, next_speed) in pairwise(sorted(points)):
        if speed > 1 >= next_speed:
            share = log(speed) / log(speed / next_speed)
            return exp(log(size) + share * log(next_size / size))
    return None


def speeds_by_load(cells: Sequence[Cell]) -> tuple[SpeedByLoad, ...]:
    """The arms besides NTP that were timed at two batch sizes or more of one part, the fastest at the smallest one first."""
    found: dict[str, dict[int, ArmResult]] = {}
    arrived: dict[str, list[tuple[str, ArmResult]]] = {}
    for cell in sorted(cells, key=lambda cell: cell.batch_size):
        for arm in cell.arms:
            if arm.is_ntp or arm.wall_speedup.value is None:
                continue
            if cell.load is None or cell.closed_loop:
                found.setdefault(arm.label, {})[cell.batch_size] = arm
            else:
                arrived.setdefault(arm.label, []).append((cell.load, arm))
    in_flight = any(cell.closed_loop for cell in cells)
    several = [_of(label, arms, arrived.get(label, []), in_flight) for label, arms in found.items() if len(arms) > 1]
    return tuple(sorted(several, key=lambda one: -(one.measured[0][1].value or 0.0)))


def _of(label: str, arms: dict[int, ArmResult], arrived: Sequence[tuple[str, ArmResult]], in_flight: bool) -> SpeedByLoad:
    prices = [_prices(arm) for arm in arms.values()]
    price = next((price for price in prices[0] if all(price in one for one in prices)), None)
    predicted = () if price is None else tuple((size, one[price]) for size, one in zip(arms, prices, strict=True))
    others = (
        Arrived(words=words, in_flight=found, speed=arm.wall_speedup, predicted=_prices(arm).get(price or ""))
        for words, arm in arrived
        if "in_flight" in arm.figures and (found := arm.figures["in_flight"].value) is not None
    )
    measured = tuple((size, arm.wall_speedup) for size, arm in arms.items())
    return SpeedByLoad(label=label, measured=measured, predicted=predicted, in_flight=in_flight, arrived=tuple(others))


def _prices(arm: ArmResult) -> dict[str, float]:
    """Ex-ante predictions of its wall speedup, by price."""
    return {one.price: one.wall_speedup.value for one in arm.predictions if one.ex_ante and one.wall_speedup.value is not None}
