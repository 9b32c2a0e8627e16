"""Where two pieces of plain data differ, key by key."""

from __future__ import annotations

from typing import Any, Final, NamedTuple


class _Absent:
    """Stands for a key that one side does not have; unlike None it is never a value."""

    def __repr__(self) -> str:
        return "not there"


ABSENT: Final = _Absent()


class Differing(NamedTuple):
    """One dotted key with its value on either side (``ABSENT``: the key is not there)."""

    key: str
    one: Any
    other: Any


def differing(one: Any, other: Any, where: str = "") -> list[Differing]:
    """Every place at which two values made of dicts, lists and scalars differ, down to the scalars."""
    if isinstance(one, dict) and isinstance(other, dict):
        pairs = [(str(key), one.get(key, ABSENT), other.get(key, ABSENT)) for key in dict.fromkeys([*one, *other])]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = [(str(index), left, right) for index, (left, right) in enumerate(zip(one, other, strict=True))]
    else:
        return [] if one == other else [Differing(where or "everything", one, other)]
    return [found for name, left, right in pairs for found in differing(left, right, f"{where}.{name}" if where else name)]
