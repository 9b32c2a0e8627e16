"""The metrics of a regression gate, timed and deterministic, each with its direction and tolerance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.errors import UserError
from harness.scenario.metrics import Basis, Better

MARGIN = 0.02
"""Least margin of a timed metric: a slowdown of up to 2 % is permitted."""
MOST_TIMED_METRICS = 5
"""Most primary metrics of one gate: each one reduces the power of the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedMetric:
    """One primary metric of a timed gate.

    ``key``     identifies it among those of one gate; the pairs are handed in under it
    ``metric``  the name of the figure, ``subject`` what it is of, in words, ``cell`` where it was looked up: as in Judgement
    ``better``  which direction is good: ``lower`` (a time), ``higher`` (tokens/s)
    ``margin``  permitted slowdown, as a ratio: 0.02 is 2 %; max(MARGIN, noise floor), see ``noise_floor.margin``
    ``margin_source``  where the margin is from, in words

    Raises:
        UserError: a margin below 0 or not finite.
    """

    key: str
    metric: str
    subject: str
    cell: dict[str, str]
    better: Literal["lower", "higher"]
    margin: float = MARGIN
    margin_source: str = "least margin of a timed metric"
    basis: Basis = "measured"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.margin) and self.margin >= 0):
            raise UserError(f"margin {self.margin} of {self.key}: give a ratio of at least 0, such as 0.02 for 2 %")

    @property
    def sign(self) -> int:
        """+1 where a growing figure is a slowdown, -1 where a shrinking one is."""
        return 1 if self.better == "lower" else -1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeterministicMetric:
    """A metric that two runs of one program agree on: passes, an output hash, modelled bytes, peak allocation.

    A number may change by ``absolute`` (in ``unit``) or by ``relative`` (of BASE's value), whichever allows more. ``better``
    says which changes beyond that count: ``equal`` any, ``lower`` a growth, ``higher`` a shrinking. Text admits ``equal`` only.

    Raises:
        UserError: a tolerance below 0 or not finite.
    """

    metric: str
    subject: str
    cell: dict[str, str]
    unit: str
    better: Better = "equal"
    absolute: float = 0.0
    relative: float = 0.0
    basis: Basis = "counted"

    def __post_init__(self) -> None:
        for name, given in (("absolute", self.absolute), ("relative", self.relative)):
            if not (math.isfinite(given) and given >= 0):
                raise UserError(f"{name} tolerance {given} of {self.metric}: give a number of at least 0")


def check_timed(metrics: Sequence[TimedMetric]) -> None:
    """Refuse a set of timed metrics that no gate can judge.

    Raises:
        UserError: none, more than five, or two under one key.
    """
    keys = [one.key for one in metrics]
    if not 1 <= len(keys) <= MOST_TIMED_METRICS:
        raise UserError(
            f"{len(keys)} timed metrics ({', '.join(keys) or 'none'}); a gate takes 1 to {MOST_TIMED_METRICS}, for each more "
            "makes all the others less likely to be found slower: choose the primary ones, or run a second gate"
        )
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        raise UserError(f"the timed metrics {', '.join(twice)} are given twice; give each once")


def log_ratio(base: float, new: float) -> float:
    """d = log(NEW / BASE) of one pair of fresh processes, from their medians; NaN where a figure is no positive number.

    The gate answers NaN with a void judgement that names the pair, so a failed process is always reported.
    """
    positive = all(math.isfinite(one) and one > 0 for one in (base, new))
    return math.log(new / base) if positive else math.nan
