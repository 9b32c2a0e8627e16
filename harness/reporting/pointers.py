"""Where in the JSON form of a comparison each of its values stands, so that a number on the page can be looked up in it."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from harness.analysis.results import Comparison


class Pointers:
    """JSON Pointers (RFC 6901) into ``to_json(comparison)``, found by identity: ``/cells/0/arms/2/wall_speedup``."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison  # kept alive: the ids below are those of its values
        self._of: dict[int, str] = {}
        self._walk(comparison, "")

    def of(self, holder: object, field: str = "") -> str:
        """The pointer of ``holder``, a value of the comparison, or of its field; empty where it is none of its values."""
        found = self._of.get(id(holder))
        if found is None:
            return ""
        return f"{found}/{_escaped(field)}" if field else found

    def _walk(self, value: Any, at: str) -> None:
        names = _field_names(type(value))  # type: ignore[arg-type]  # a type can be hashed, mypy does not see it
        if names:
            self._of.setdefault(id(value), at)
            for name in names:
                inner = getattr(value, name)
                if type(inner) not in _LEAVES:
                    self._walk(inner, f"{at}/{name}")
        elif isinstance(value, dict):
            for key, inner in value.items():
                self._walk(inner, f"{at}/{_escaped(str(key))}")
        elif isinstance(value, (tuple, list)) and value and not isinstance(value[0], (int, float, str)):
            for number, inner in enumerate(value):
                self._walk(inner, f"{at}/{number}")


_LEAVES = frozenset((float, int, str, bool, type(None)))


@cache
def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind)) if is_dataclass(kind) and isinstance(kind, type) else ()


def _escaped(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")
