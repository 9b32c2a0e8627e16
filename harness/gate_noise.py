"""The noise floor of a machine: how far the gate's own estimate strays when both sides are the same program (A/A)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

NOISE_FLOOR_VERSION = 1
"""Version of the JSON form."""
PERCENTILE = 0.99
FEWEST_REPEATS = 20
"""Repeats from which the observed percentile is taken; with fewer, a bound from their spread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseFloor:
    """What a timed metric strays by under A/A, as a ratio (0.012: 1.2 %).

    ``ratio`` is None where it is not known, with its ``reason``. ``repeats`` counts full A/A gates, ``pairs`` the pairs of
    processes in each; ``method`` names the formula.
    """

    metric: str
    ratio: float | None
    repeats: int
    pairs: int
    method: str
    reason: str | None = None


def noise_floor(metric: str, estimates: Sequence[float], pairs: int) -> NoiseFloor:
    """Floor of ``metric`` from the gate's estimates (mean d over ``pairs`` pairs), one per A/A repeat."""
    raise NotImplementedError


def margin(floor: NoiseFloor | None, pairs: int) -> tuple[float, str]:
    """(margin as a ratio, where it is from): max(2 %, floor), for a gate of up to ``pairs`` pairs."""
    raise NotImplementedError


def to_json(floor: NoiseFloor) -> dict[str, Any]:
    """As plain JSON values with their version."""
    raise NotImplementedError


def from_json(data: dict[str, Any]) -> NoiseFloor:
    """A floor from its JSON form."""
    raise NotImplementedError
