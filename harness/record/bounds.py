"""The values of a record, bounded widely enough for every measurement; a value outside is damage, and is refused on reading.

Numbers, times and names have one type each. Objects whose keys are open are in harness.record.written.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from statistics import fmean
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from harness.models import DTYPE_BYTES

MOST = 1e30
"""Limit of every number, in any unit."""


def finite(value: Any) -> Any:
    """The same value. Raises ValueError where a number in it, at any depth, is not finite or beyond every measurement."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for value_inside in inner:
        finite(value_inside)
    if isinstance(value, int | float) and not -MOST <= value <= MOST:
        raise ValueError(f"a number is not finite, or beyond {MOST:g}")
    return value


OpenValues = Annotated[dict[str, object], AfterValidator(finite)]
"""An object whose keys are open."""

SHORTEST_S, LONGEST_S = 1e-12, 1e9
YEARS = range(1970, 2200)
NO_PASS_S = 0.0005
"""No server makes a pass and sends its tokens in so short a time: two pieces of a stream no further apart share an arrival."""


def arrived_together(gaps_s: Sequence[float]) -> float:
    """The share of gaps between the pieces of a stream whose two pieces share an arrival; 1 where the first two do, for then
    the time of the first one is unknown. ``gaps_s`` are not empty.
    """
    return 1.0 if gaps_s[0] <= NO_PASS_S else fmean(gap_s <= NO_PASS_S for gap_s in gaps_s)


def _duration(seconds: float) -> float:
    if not (seconds == 0 or SHORTEST_S <= seconds <= LONGEST_S):
        raise ValueError(f"got {seconds:g}; a duration is 0, or from {SHORTEST_S:g} to {LONGEST_S:g} seconds")
    return seconds


def _moment(text: str) -> str:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"got {text!r}, not a time in ISO 8601 such as 2026-11-20T10:00:00Z") from error
    if moment.year not in YEARS:
        raise ValueError(f"got {text!r}; the year of a time is from {YEARS[0]} to {YEARS[-1]}")
    return text if moment.tzinfo else moment.replace(tzinfo=UTC).isoformat()  # times with and without a zone have no order


def _known_dtype(dtype: str) -> str:
    if dtype not in DTYPE_BYTES:
        raise ValueError(f"got {dtype!r}, allowed are {', '.join(DTYPE_BYTES)}")
    return dtype


Dtype = Annotated[str, AfterValidator(_known_dtype)]
Device = Annotated[str, Field(pattern=r"^[a-z]+(:[0-9]{1,3})?$")]
Seconds = Annotated[float, AfterValidator(_duration)]
Moment = Annotated[str, AfterValidator(_moment)]
TablePlace = Annotated[int, Field(ge=0, lt=1 << 31)]
"""The number of a group, a repeat or a process."""
Tokens = Annotated[int, Field(ge=0, le=1 << 24)]
Seed = Annotated[int, Field(ge=0, lt=1 << 64)]
Reading = Annotated[float, Field(ge=-MOST, le=MOST)]
"""A meter's value, in any unit."""
