"""The numbers and texts that a record may hold, so that everything derived from them is a number again.

Wide enough for whatever was measured: what lies outside is damage, and is refused where it is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import UnionType
from typing import Annotated, Any

from pydantic import AfterValidator, Field

SHORTEST_S, LONGEST_S = 1e-12, 1e9
YEARS = range(1970, 2200)


def _duration(seconds: float) -> float:
    if not (seconds == 0 or SHORTEST_S <= seconds <= LONGEST_S):
        raise ValueError(f"got {seconds:g}; a duration is 0, or from {SHORTEST_S:g} to {LONGEST_S:g} seconds")
    return seconds


def _moment(text: str) -> str:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"got {text!r}, not a time in ISO 8601 such as 2026-11-20T10:00:00Z") from error
    if found.year not in YEARS:
        raise ValueError(f"got {text!r}; the year of a time is from {YEARS[0]} to {YEARS[-1]}")
    return text


Kinds = Mapping[str, tuple[type | UnionType, str]]
"""What a value under a key is to be, and in words; None may stand everywhere."""
_ARM: Kinds = {
    **dict.fromkeys(("method", "solver", "lossless", "cache", "execution"), (str, "a text")),
    **dict.fromkeys(("gamma", "temperature"), (int | float, "a number")),
    "block_size": (int, "a whole number"),
}
_FACTS: Kinds = {
    **dict.fromkeys(("logical_cores", "affinity_cores"), (int, "a whole number")),
    **dict.fromkeys(("memory_total_bytes",), (int | float, "a number")),
    **dict.fromkeys(("cpu_model", "commit", "python"), (str, "a text")),
    **dict.fromkeys(("packages", "reasons"), (dict, "an object")),
    **dict.fromkeys(("gpus", "nvidia_gpus"), (list, "a list")),
}
_RANGES = {"block_size": (1, 1 << 24), "gamma": (0, 1e6), "temperature": (0, 1e6)}


def _of_their_kinds(values: dict[str, Any], kinds: Kinds) -> dict[str, Any]:
    """As they are, if those that figures are derived from are what they should be."""
    for name, (kind, words) in kinds.items():
        given = values.get(name)
        if given is not None and (isinstance(given, bool) or not isinstance(given, kind)):
            raise ValueError(f"{name}: got {given!r}, {words} is needed")
    return values


def _arm(values: dict[str, Any]) -> dict[str, Any]:
    for name, (low, high) in _RANGES.items():
        given = _of_their_kinds(values, _ARM).get(name)
        if given is not None and not low <= given <= high:
            raise ValueError(f"{name}: got {given!r}, allowed is {low:g} to {high:g}")
    return values


def _facts(values: dict[str, Any]) -> dict[str, Any]:
    listed = [one for name in ("gpus", "nvidia_gpus") for one in _of_their_kinds(values, _FACTS).get(name) or ()]
    if not all(isinstance(one, dict) for one in listed):
        raise ValueError("gpus and nvidia_gpus are lists of objects")
    return values


Seconds = Annotated[float, AfterValidator(_duration)]
Moment = Annotated[str, AfterValidator(_moment)]
ArmValues = Annotated[dict[str, Any], AfterValidator(_arm)]
Facts = Annotated[dict[str, Any], AfterValidator(_facts)]
"""Of a machine."""
Place = Annotated[int, Field(ge=0, lt=1 << 31)]
"""A group, a repeat, a process."""
Tokens = Annotated[int, Field(ge=0, le=1 << 24)]
Seed = Annotated[int, Field(ge=0, lt=1 << 64)]
Reading = Annotated[float, Field(ge=-1e30, le=1e30)]
"""Of a meter, in whatever unit."""
