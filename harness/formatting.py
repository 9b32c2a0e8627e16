"""How a quantity is written for a reader: one place, so that the same number is always written alike.

Every function takes a real number and returns text with its unit; for an absent value the caller shows the reason. The gap
before a unit does not break.
"""

from __future__ import annotations

import math

_NO_NUMBER = "not a number"
_GAP = "\u00a0"  # a number and its unit stay on one line


def figure(value: float, digits: int) -> str:
    """A number with its unit beside it and so many significant digits, thousands grouped, no exponent: ``2.400``."""
    if not math.isfinite(value):
        return _NO_NUMBER
    if value == 0:
        return "0"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{round(value, decimals):,.{max(decimals, 0)}f}"


def ratio(value: float) -> str:
    """A speedup or cost ratio: ``2.93x``, ``0.87x``, ``12.4x``."""
    if not math.isfinite(value):
        return _NO_NUMBER
    return f"{value:.2f}x" if abs(value) < 9.995 else f"{figure(value, 3)}x"


def seconds(value: float) -> str:
    """A duration in the unit that keeps it readable: ``1.24 s``, ``31.5 ms``, ``8.20 µs``."""
    if abs(value) >= 1 or value == 0:
        return f"{figure(value, 3)}{_GAP}s"
    return f"{figure(value * 1e3, 3)}{_GAP}ms" if abs(value) >= 1e-3 else f"{figure(value * 1e6, 3)}{_GAP}µs"


def percent(share: float, decimals: int = 1) -> str:
    """A share between 0 and 1 as per cent: ``0.984`` becomes ``98.4 %``."""
    return f"{100 * share:.{decimals}f}{_GAP}%" if math.isfinite(share) else _NO_NUMBER


def points(difference: float) -> str:
    """A difference of two shares in percentage points, always signed: ``-0.7 points``."""
    return _signed(difference, "points")


def signed_percent(share: float) -> str:
    """A relative error: ``0.043`` becomes ``+4.3 %``."""
    return _signed(share, "%")


def _signed(share: float, unit: str) -> str:
    if not math.isfinite(share):
        return _NO_NUMBER
    shown = round(100 * share, 1) + 0.0  # + 0.0 turns -0.0 into 0.0
    return f"{shown:+.1f}{_GAP}{unit}" if shown else f"0.0{_GAP}{unit}"


def rate(per_s: float) -> str:
    """A rate with its unit in the column head: ``182``, ``7.31``."""
    return figure(per_s, 3)


def gigabytes(bytes_: float) -> str:
    """Bytes (or bytes per second) in decimal giga, with the unit in the column head: ``11.8``."""
    return figure(bytes_ / 1e9, 3)


def count(value: float) -> str:
    """A whole number with its thousands grouped; a mean of counts keeps one decimal."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"
