"""Derived values as flat columns: a quantity becomes its value and, beside it, its interval, count, method and reason."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

from harness.analysis.stats.quantity import Quantity

NUMBERS = ("value", "low", "high")
"""Of a quantity: where they are not known, a number is missing."""


def flat(value: Any, leave_out: Sequence[str] = (), before: str = "") -> dict[str, Any]:
    """The fields of a frozen value (or the entries of a dict), nested ones as ``outer_inner``; a quantity's own value has no
    ``_value`` behind it. Whether a nested value is there or None, the columns are the same.
    """
    named = value if isinstance(value, Mapping) else {field.name: getattr(value, field.name) for field in fields(value)}
    inner = {} if isinstance(value, Mapping) else _optional(type(value))
    found: dict[str, Any] = {}
    for name, one in named.items():
        column = f"{before}{name}"
        if name in leave_out:
            continue
        if one is None and name in inner:
            one = Quantity(value=None) if inner[name] is Quantity else {part.name: math.nan for part in fields(inner[name])}
        if isinstance(one, Quantity):
            found |= {column if part == "value" else f"{column}_{part}": known for part, known in flat(one).items()}
        elif is_dataclass(one) or (name in inner and isinstance(one, Mapping)):
            found |= flat(one, before=f"{column}_")
        else:
            missing = one is None and isinstance(value, Quantity) and name in NUMBERS
            found[column] = math.nan if missing else one
    return found


def _optional(kind: type) -> dict[str, type]:
    """The fields of a frozen value that hold another one, or None."""
    allowed = {name: get_args(hint) for name, hint in get_type_hints(kind).items()}
    nested = {name: [one for one in kinds if isinstance(one, type) and is_dataclass(one)] for name, kinds in allowed.items()}
    return {name: found[0] for name, found in nested.items() if found and type(None) in allowed[name]}
