"""An axis of the plan: one value or a list of distinct values, as the keys of a scenario's arms and parts take them."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field

from harness.config_file import Count, NonNegative, Share

T = TypeVar("T")


def as_list(value: Any) -> Any:
    """One value as a list of one."""
    return value if isinstance(value, list | tuple) else (value,)


def distinct(values: tuple[T, ...]) -> tuple[T, ...]:
    """The values, none of them twice.

    Raises:
        ValueError: a value is given twice.
    """
    repeated = sorted({str(value) for value in values if values.count(value) > 1})
    if repeated:
        raise ValueError(f"{', '.join(repeated)} given twice; name each value once")
    return values


Counts = Annotated[
    tuple[Count, ...], Field(min_length=1), BeforeValidator(as_list, json_schema_input_type=Count | list[Count]),
    AfterValidator(distinct),
]  # fmt: skip
Numbers = Annotated[
    tuple[NonNegative, ...], Field(min_length=1),
    BeforeValidator(as_list, json_schema_input_type=NonNegative | list[NonNegative]), AfterValidator(distinct),
]  # fmt: skip
Shares = Annotated[
    tuple[Share, ...], Field(min_length=1), BeforeValidator(as_list, json_schema_input_type=Share | list[Share]),
    AfterValidator(distinct),
]  # fmt: skip
