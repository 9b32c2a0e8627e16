"""Why a speedup changed: whether the arm's own time moved, or that of NTP, which it is a ratio to.

speedup = NTP's time per token ÷ the arm's, so ln(NEW / BASE) of the speedup is that of NTP's time less that of the arm's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from harness import formatting
from harness.frozen import frozen

SPEEDUP, TIME = "wall_speedup", "decode_s_per_token"
MOSTLY = 2 / 3
"""From this share of the change on, one of the two is called the reason."""


@frozen
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


def reason_of(arm: str, times: Mapping[str, float | None]) -> str | None:
    """Why the speedup of ``arm`` moved, from NEW ÷ BASE of the times per token by arm; None without its own and NTP's."""
    own = times.get(arm)
    ntp = next((ratio for label, ratio in times.items() if label.startswith("NTP") and ratio), None)
    return why_moved(ntp, own) if own and ntp else None


def speedup_reasons(moved: Sequence[Moved]) -> dict[int, str]:
    """Why each speedup among the figures moved, by its place; one without both times is left out."""
    times: dict[tuple[str | None, ...], dict[str, float | None]] = {}
    for figure in moved:
        if figure.metric == TIME:
            times.setdefault(_place(figure), {})[figure.cell["arm"]] = figure.ratio
    reasons = {
        at: reason_of(figure.cell["arm"], times.get(_place(figure), {}))
        for at, figure in enumerate(moved)
        if figure.metric == SPEEDUP and figure.ratio not in (None, 1)
    }
    return {at: reason for at, reason in reasons.items() if reason is not None}


def _place(figure: Moved) -> tuple[str | None, ...]:
    return tuple(figure.cell.get(key) for key in ("part", "batch_size", "task"))
