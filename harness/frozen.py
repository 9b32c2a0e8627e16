"""The one form of a value that is handed on: a dataclass that is frozen, has slots and is made by keywords."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def frozen(of: type[T]) -> type[T]:
    """``@frozen class Point: x: float`` is made by ``Point(x=1.0)`` and never changes."""
    return dataclass(frozen=True, slots=True, kw_only=True)(of)
