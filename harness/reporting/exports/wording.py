"""What every format says in words: order, names, a value with its interval, the verdict; free text made safe.

A subject or a reason may quote a path, a model's name or a user's words. Every format but JSON makes text safe by ``one_line``
and escapes its own special characters.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import chain
from itertools import count as counted

from harness.analysis.judge.judgement import GRAVEST_FIRST, WORDS, Judgement, Judgements
from harness.formatting import count, figure, one_line
from harness.stats.quantity import Quantity

DIGITS = 4
DIGITS_OF_A_COUNT = 6
"""Digits: a deterministic metric may change by one pass in ten thousand, and both figures must read differently."""
LONGEST_NAME = 500
HEADS = ("verdict", "metric", "where", "value [95 % interval]", "asked", "reason")
NOTHING_JUDGED = "nothing was judged"
_GAP = "\u00a0"


def gravest_first(judgements: Judgements) -> list[Judgement]:
    """The gravest judgements first; equal ones keep the order in which they were asked."""
    return sorted(judgements.judgements, key=lambda one: GRAVEST_FIRST.index(one.state))


def finite(judgements: Judgements) -> Judgements:
    """Replace NaN and infinity by absent values with that reason: JSON has no such numbers, and no gate compares with them."""
    known = (
        replace(one, value=_finite(one.value), base=one.base if math.isfinite(one.base or 0) else None)
        for one in judgements.judgements
    )
    return replace(judgements, judgements=tuple(known))


def _finite(value: Quantity) -> Quantity:
    if all(math.isfinite(part) for part in (value.value, value.low, value.high) if part is not None):
        return value
    return replace(value, value=None, low=None, high=None, reason=value.reason or "not a finite number")


def named(judgements: Judgements) -> dict[str, Judgement]:
    """Every judgement by a name, unique and the same in the next run, without figures, so that a program can follow it.

    A JUnit reader keeps only the first of two equal names, and a chart joins them.
    """
    by_name: dict[str, Judgement] = {}
    for one in judgements.judgements:
        plain = one_line(f"{one.metric}: {one.subject}", LONGEST_NAME)
        bounded = one_line(f"{plain}, {one.bound}", LONGEST_NAME)
        names = chain((plain, bounded), (f"{bounded} ({number})" for number in counted(2)))
        by_name[next(name for name in names if name not in by_name)] = one
    return by_name


def value_words(one: Judgement) -> str:
    """The value with interval and unit, ``2.400x [2.100, 2.700]``, a counted one with BASE's; or why it is absent."""
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


def row(one: Judgement) -> tuple[str, ...]:
    """A judgement under HEADS."""
    return one.word, one.metric, one.subject, value_words(one), one.bound, one.reason


def _number(value: float, digits: int) -> str:
    return count(value) if float(value).is_integer() else figure(value, digits)


def verdict_words(judgements: Judgements) -> str:
    """The gravest answer in its own words: ``refuted``, ``changed and regressed``; void without a judgement."""
    state = judgements.state
    found = {one.word for one in judgements.judgements if one.state == state}
    return " and ".join(sorted(found)) or WORDS["claim"]["void"]


def tally(judgements: Judgements) -> str:
    """The count of each word, gravest first: ``1 regressed, 4 passed``."""
    found = Counter(one.word for one in gravest_first(judgements))
    return ", ".join(f"{number} {word}" for word, number in found.items()) or NOTHING_JUDGED


def details(one: Judgement) -> list[str]:
    """Value and bound, basis, reason and remedy of one answer, a line each.

    Every line starts with a fixed word, because a CI runner obeys a log line that starts with ``::``.
    """
    sizes = ", ".join(f"{one_line(unit)}: {number}" for unit, number in one.sizes.items())
    lines = [
        f"{value_words(one)}; asked: {one_line(one.bound)}",
        f"{one.basis}{f'; {sizes}' if sizes else ''}",
        f"reason: {one_line(one.reason)}",
    ]
    return [*lines, *([f"to decide: {one_line(one.remedy)}"] if one.remedy else [])]
