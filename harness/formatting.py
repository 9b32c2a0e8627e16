"""How quantities and foreign text are written for a reader: one place, so that the same number is always written alike.

A quantity's function takes a real number and returns text with its unit; for an absent value the caller shows the reason. The
gap before a unit does not break. Foreign text comes from records, configs, file names and errors of libraries.
"""

from __future__ import annotations

import math
import re

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


# C0 and C1 controls, line and paragraph separators. XML 1.0 (fifth edition, 2.2) forbids most of C0; a terminal obeys both
# (ESC, CSI).
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
# Lone surrogates (not UTF-8), other characters that XML forbids, and marks that reorder a line on the screen (Unicode TR 36,
# 2.5, bidirectional spoofing; the byte order mark).
_NOWHERE = re.compile("[\ud800-\udfff\ufffe\uffff\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
# CI runners obey `::error` (GitHub) at a line's start, where text may be folded after a space; `##[error]`, `##vso[...]`
# (Azure) and `##teamcity[...]` anywhere.
_COMMAND = re.compile(r"(?<!\w):(?=:)|#(?=#[\w.]*\[)")
# A spreadsheet runs a cell that begins so (OWASP, "CSV Injection"; the last four are the full-width forms).
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def one_line(text: str, longest: int | None = None) -> str:
    """Foreign ``text`` fit for a terminal and a CI log: one line of at most ``longest`` characters, an ellipsis marks a cut."""
    line = _COMMAND.sub(r"\g<0> ", _CONTROL.sub(" ", _NOWHERE.sub("", text)))
    return line if longest is None or len(line) <= longest else line[: longest - 1] + "…"


def each_line(text: str) -> str:
    """``text`` with line breaks of its own, every line by ``one_line``."""
    return "\n".join(map(one_line, text.split("\n")))


def escaped_json(text: str) -> str:
    """JSON ``text`` with the same values, fit for a terminal and a CI log: what ``one_line`` changes becomes an escape."""
    escape = lambda found: "".join(f"\\u{ord(letter):04x}" for letter in found[0])  # noqa: E731 - one line, used three times
    text = re.sub("[\x7f-\x9f\u2028\u2029]", escape, _NOWHERE.sub(escape, text))
    return re.sub(r"#(?=#[\w.]*\[)", escape, text)


def csv_cell(value: object) -> object:
    """A value for a CSV file: foreign text on one line, an apostrophe before what a spreadsheet takes for a formula.

    Numbers stay, written as text too.
    """
    if not isinstance(value, str):
        return value
    line = one_line(value)
    if not line.lstrip().startswith(_FORMULA):
        return line
    try:
        float(line)
    except ValueError:
        return f"'{line}"
    return line
