"""The name of an arm as people type it: ``SBD k=16 g=0.003`` is ``SBD k=16 γ=0.003``; of a typo, the nearest names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable

from harness.errors import UserError

_LETTERS = {"g": "γ", "gamma": "γ", "t": "τ", "tau": "τ", "d": "δ", "delta": "δ"}
_KEY = re.compile(r"\b([a-z]+)=")
BEST = "best"
"""Stands for the arm that the report quotes first."""


def spelt(name: str) -> str:
    """``name`` so that two spellings of one arm are equal: letters of either case, one space, a key by its Greek letter."""
    lower = " ".join(name.lower().split())
    return _KEY.sub(lambda key: f"{_LETTERS.get(key[1], key[1])}=", lower)


def same_arm(given: str, label: str) -> bool:
    """Whether a person means the arm with this label."""
    return given == label or spelt(given) == spelt(label)


def refuse_unknown_arms(given: Iterable[str | None], known: Collection[str], where: str) -> None:
    """``where``: what was read, before the message.

    Raises:
        UserError: an arm that is none of the ``known``, with the nearest of them.
    """
    by_spelling = {spelt(label): label for label in known}
    for name in given:
        if name is None or name == BEST or spelt(name) in by_spelling:
            continue
        near = [by_spelling[one] for one in difflib.get_close_matches(spelt(name), by_spelling, n=3, cutoff=0.5)]
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"it has {', '.join(map(repr, known))}"
        raise UserError(f"{where}: there is no arm {name!r}; {hint}")
