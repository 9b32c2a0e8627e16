"""What every format says in words: the order, the names, a value with its interval, and the verdict in one line.

Free text made safe to pass on: one line, no character that a terminal obeys or that XML 1.0 forbids.

A subject or a reason may quote a path, a model's name or a user's own words. Every format but JSON takes its text from here and
then escapes what is special to itself.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import count as counted

from harness.analysis.judgement import GRAVEST_FIRST, WORDS, Judgement, Judgements
from harness.analysis.stats.quantity import Quantity
from harness.formatting import count, figure

# C0 and C1 controls, line and paragraph separators: anything that moves a cursor becomes a space. XML 1.0 (fifth edition, 2.2)
# forbids most of C0; a terminal obeys both (ESC, CSI).
_CONTROL = re.compile("[\\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")
# What can be written in no UTF-8 file (lone surrogates), what XML forbids besides, and the marks that reorder a line on the
# screen (Unicode TR 36, 2.5, bidirectional spoofing; the byte order mark).
_NOWHERE = re.compile("[\ud800-\udfff\ufffe\uffff\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_ELLIPSIS = "…"


def one_line(text: str, longest: int | None = None) -> str:
    """``text`` on one line, at most ``longest`` characters long; what is cut off is shown by an ellipsis."""
    line = _CONTROL.sub(" ", _NOWHERE.sub("", text)).strip()
    return line if longest is None or len(line) <= longest else line[: longest - 1] + _ELLIPSIS


DIGITS = 4
DIGITS_OF_A_COUNT = 6
"""A deterministic metric changes by one pass in ten thousand, and the two figures must not read the same."""
LONGEST_NAME = 500
NOTHING_JUDGED = "nothing was judged"
_NOT_FINITE = "not a finite number"
_GAP = "\u00a0"


def gravest_first(judgements: Judgements) -> list[Judgement]:
    """What is to be read first stands first; among equals the order in which they were asked."""
    return sorted(judgements.judgements, key=lambda one: GRAVEST_FIRST.index(one.state))


def finite(judgements: Judgements) -> Judgements:
    """Without NaN and infinity, which JSON has no number for and a gate must not compare with: absent, with that reason."""
    known = (replace(one, value=_finite(one.value), base=_finite_or_none(one.base)) for one in judgements.judgements)
    return replace(judgements, judgements=tuple(known))


def _finite_or_none(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def _finite(value: Quantity) -> Quantity:
    if all(math.isfinite(part) for part in (value.value, value.low, value.high) if part is not None):
        return value
    return replace(value, value=None, low=None, high=None, reason=value.reason or _NOT_FINITE)


def names(judgements: Judgements) -> list[str]:
    """One name per judgement, unique and the same in the next run, so that a program can follow it: no figure is in it.

    A reader of JUnit keeps only the first of two equal names, and a chart would join them.
    """
    found: dict[str, None] = {}
    for one in judgements.judgements:
        found[next(name for name in _candidates(one) if name not in found)] = None
    return list(found)


def _candidates(one: Judgement) -> Iterator[str]:
    plain = one_line(f"{one.metric}: {one.subject}", LONGEST_NAME)
    bounded = one_line(f"{plain}, {one.bound}", LONGEST_NAME)
    yield from (plain, bounded)
    yield from (f"{bounded} ({number})" for number in counted(2))


def value_words(one: Judgement) -> str:
    """The value with its interval and unit, ``2.400x [2.100, 2.700]``, a counted one with BASE's; or why it is not known."""
    if one.value.value is None:
        return f"not known: {one_line(one.value.reason or 'no reason was given')}"
    digits = DIGITS_OF_A_COUNT if one.kind == "deterministic" else DIGITS
    unit = one_line(one.unit)
    words = _number(one.value.value, digits) + (unit if unit == "x" else f"{_GAP}{unit}" if unit else "")
    low, high = ("" if end is None else _number(end, digits) for end in (one.value.low, one.value.high))
    if low and high:
        words, low, high = f"{words} [{low}, {high}]", "", ""
    before = f", BASE {_number(one.base, digits)}" if one.base is not None else ""
    return words + (f", at least {low}" if low else f", at most {high}" if high else "") + before


def _number(value: float, digits: int) -> str:
    return count(value) if float(value).is_integer() else figure(value, digits)


def verdict_words(judgements: Judgements) -> str:
    """The gravest answer in the words of its kinds: ``refuted``, ``changed and regressed``; void where nothing was judged."""
    state = judgements.state
    found = {one.word for one in judgements.judgements if one.state == state}
    return " and ".join(sorted(found)) or WORDS["claim"]["void"]


def tally(judgements: Judgements) -> str:
    """How many of each word, gravest first: ``1 regressed, 4 passed``."""
    found = Counter(one.word for one in gravest_first(judgements))
    return ", ".join(f"{number} {word}" for word, number in found.items()) or NOTHING_JUDGED


def details(one: Judgement) -> list[str]:
    """Value and bound, what it rests on, the reason, the remedy: a line each, for a reader who opens one answer.

    Every line starts with a word of ours: a CI runner obeys a line of its log that starts with ``::``.
    """
    sizes = ", ".join(f"{one_line(unit)}: {number}" for unit, number in one.sizes.items())
    lines = [
        f"{value_words(one)}; asked: {one_line(one.bound)}",
        f"{one.basis}{f'; {sizes}' if sizes else ''}",
        f"reason: {one_line(one.reason)}",
    ]
    return [*lines, *([f"to decide: {one_line(one.remedy)}"] if one.remedy else [])]
