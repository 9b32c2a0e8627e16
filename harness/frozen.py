"""The one form of a value that is handed on: a dataclass that is frozen, has slots and is made by keywords.

Few are made by position: those whose one or two fields have an order that everybody knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def frozen(of: type[T]) -> type[T]:
    """``@frozen class Point: x: float`` is made by ``Point(x=1.0)`` and never changes."""
    return dataclass(frozen=True, slots=True, kw_only=True)(of)


@dataclass_transform(frozen_default=True)
def positional(of: type[T]) -> type[T]:
    """``@positional class Point: x: float`` is made by ``Point(1.0)`` too."""
    return dataclass(frozen=True, slots=True)(of)
