"""The base of every value a user writes: frozen, and an unknown key is refused by name with the nearest known one.

Also the number types that refuse silent conversions ("3", true and 3.0 are not whole numbers).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

Count = Annotated[int, Field(strict=True, ge=1)]
CountOrZero = Annotated[int, Field(strict=True, ge=0)]
NonNegative = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]
Flag = Annotated[bool, Field(strict=True)]
Text = Annotated[str, StringConstraints(min_length=1)]
# Names end up in case ids, file names and URLs.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=64)]


class Frozen(BaseModel):
    """A frozen value without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        """Name the key and the nearest allowed one; pydantic's own message knows neither."""
        if not isinstance(data, Mapping):
            return data
        allowed = list(cls.model_fields)
        for key in data:
            if key not in allowed:
                near = difflib.get_close_matches(str(key), allowed, n=1)
                hint = f"did you mean {near[0]!r}?" if near else "remove it"
                message = "unknown key {key}; allowed here: {allowed}; {hint}"
                raise PydanticCustomError(
                    "unknown_key", message, {"key": str(key), "allowed": ", ".join(allowed), "hint": hint}
                )
        return data


def named_by_key(*kinds: str) -> Callable[[Any], str | None]:
    """A discriminator for a union whose members are told apart by the one key they have: the first of ``kinds`` present."""

    def kind_of(value: Any) -> str | None:
        keys: Collection[str] = ()
        if isinstance(value, Mapping):
            keys = value.keys()
        elif isinstance(value, Frozen):
            keys = type(value).model_fields.keys()
        return next((kind for kind in kinds if kind in keys), None)

    return kind_of
