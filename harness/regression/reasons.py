"""Why a speedup changed: whether the arm's own time moved, or that of NTP, which it is a ratio to.

speedup = NTP's time per token ÷ the arm's, so ln(NEW / BASE) of the speedup is that of NTP's time less that of the arm's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness import formatting

MOSTLY = 2 / 3
"""From this share of the change on, one of the two is said to be the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """How a figure moved: its metric, its cell (part, batch size, arm) and NEW ÷ BASE; None where that is not known."""

    metric: str
    cell: Mapping[str, str]
    ratio: float | None


def why_moved(ntp: float, own: float) -> str:
    """In words, from NEW ÷ BASE of the times per token of NTP and of the arm."""
    fell, by_ntp = own > ntp, abs(math.log(ntp))
    share = by_ntp / (by_ntp + abs(math.log(own))) if own != 1 or ntp != 1 else 0.5
    faster = "faster" if fell else "slower"
    slower = "slower" if fell else "faster"
    if share >= MOSTLY and (ntp < 1) == fell:
        reason = f"because NTP became {faster}"
    elif share <= 1 - MOSTLY and (own > 1) == fell:
        reason = f"because the arm itself became {slower}"
    else:
        reason = "through both"
    times = f"time per token of NTP {formatting.signed_percent(ntp - 1)}, of the arm {formatting.signed_percent(own - 1)}"
    return f"the speedup {'fell' if fell else 'rose'} {reason} ({times})"


def speedup_reasons(moved: Sequence[Moved]) -> dict[int, str]:
    """Why each speedup among the figures moved, by its place; one without both times is left out."""
    found = {}
    for at, one in enumerate(moved):
        if one.metric == "wall_speedup" and one.ratio is not None and one.ratio != 1:
            beside = [other for other in moved if other.metric == "decode_s_per_token" and _place(other) == _place(one)]
            own = _ratio(other for other in beside if other.cell.get("arm") == one.cell.get("arm"))
            ntp = _ratio(other for other in beside if other.cell.get("arm", "").startswith("NTP"))
            if own and ntp:
                found[at] = why_moved(ntp, own)
    return found


def _place(one: Moved) -> tuple[str | None, ...]:
    return tuple(one.cell.get(key) for key in ("part", "batch_size", "task"))


def _ratio(found: Iterable[Moved]) -> float | None:
    return next((one.ratio for one in found if one.ratio is not None), None)
