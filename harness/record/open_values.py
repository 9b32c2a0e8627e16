"""Objects of a record whose keys are open: the scenario, the environment, an event.

What figures are derived from has its type, and every number in them is finite and bounded as a meter's reading is. Other keys
are kept as they are. A value outside is damage, and is refused on reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any

from pydantic import AfterValidator

MOST = 1e30
"""Limit of every number, in any unit."""
Kinds = Mapping[str, tuple[type | UnionType, str]]
"""The type of the value under each key, and its words; None is allowed everywhere."""
_TEXT, _WHOLE, _NUMBER = (str, "a text"), (int, "a whole number"), (int | float, "a number")
_OBJECT, _LIST = (dict, "an object"), (list, "a list")
_FACTS: Kinds = {
    "logical_cores": _WHOLE,
    "affinity_cores": _WHOLE,
    "memory_total_bytes": _NUMBER,
    "cpu_model": _TEXT,
    "commit": _TEXT,
    "python": _TEXT,
    "machine": _TEXT,
    "packages": _OBJECT,
    "repository": _OBJECT,
    "reasons": _OBJECT,
    "gpus": _LIST,
    "nvidia_gpus": _LIST,
    "isa_flags": _LIST,
}
_PART: Kinds = {
    "name": _TEXT,
    "baseline": _TEXT,
    "dtype": _TEXT,
    "threads": _WHOLE,
    "seed": _WHOLE,
    "devices": _LIST,
    "workload": _OBJECT,
    "servers": _OBJECT,
    "health": _OBJECT,
}
_WORKLOAD: Kinds = {"synthetic": _OBJECT, "prompts": _WHOLE, "max_new_tokens": _WHOLE}
_EVENT: Kinds = {
    "event": _TEXT,
    "part": _TEXT,
    "node": _TEXT,
    "case_id": _TEXT,
    "process": _WHOLE,
    "pid": _WHOLE,
    "taken_at": _TEXT,
    "ended_at": _TEXT,
    "tokenizer_sha256": _TEXT,
    "model_revision": _TEXT,
    "reason": _TEXT,
    "hardware_reason": _TEXT,
    "remark": _TEXT,
    "calibration": _OBJECT,
    "hardware": _OBJECT,
    "items": _OBJECT,
    "figures": _OBJECT,
    "texts": _OBJECT,
    "decodes": _LIST,
}
_OF_A_PART = {"ceilings", "engine", "meters", "measured_passes", "token_texts"}


def finite(value: Any) -> Any:
    """The same value. Raises ValueError where a number in it, at any depth, is not finite or beyond every measurement."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for one in inner:
        finite(one)
    if isinstance(value, int | float) and not -MOST <= value <= MOST:
        raise ValueError(f"a number is not finite, or beyond {MOST:g}")
    return value


def _of_their_kinds(values: dict[str, Any], kinds: Kinds) -> dict[str, Any]:
    """The same values, if those that figures are derived from have the right type."""
    for name, (kind, words) in kinds.items():
        given = values.get(name)
        if given is not None and (isinstance(given, bool) or not isinstance(given, kind)):
            raise ValueError(f"{name}: got {given!r}, {words} is needed")
    finite(values)
    return values


def _facts(values: dict[str, Any]) -> dict[str, Any]:
    listed = [one for name in ("gpus", "nvidia_gpus") for one in _of_their_kinds(values, _FACTS).get(name) or ()]
    if not all(isinstance(one, dict) for one in listed):
        raise ValueError("gpus and nvidia_gpus are lists of objects")
    return values


def _named_parts(scenario: dict[str, Any]) -> dict[str, Any]:
    parts = finite(scenario).get("parts", [])
    if not isinstance(parts, list) or not all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in parts):
        raise ValueError("the parts of the scenario are a list of objects with a name each")
    for part in parts:
        _of_their_kinds(_of_their_kinds(part, _PART).get("workload") or {}, _WORKLOAD)
    return scenario


def _happened(values: dict[str, Any]) -> dict[str, Any]:
    """An event; those at the start and end of a session describe a machine."""
    name = _of_their_kinds(values, _EVENT).get("event")
    if name in ("start", "end"):
        _facts(values)
    if name in _OF_A_PART and values.get("part") is None:
        raise ValueError(f"part: an event {name!r} says whose it is")
    if not all(token.isdecimal() and isinstance(text, str) for token, text in (values.get("texts") or {}).items()):
        raise ValueError("texts: the texts of tokens stand under their numbers")
    return values


OpenValues = Annotated[dict[str, Any], AfterValidator(finite)]
Environment = Annotated[dict[str, Any], AfterValidator(_facts)]
WrittenScenario = Annotated[dict[str, Any], AfterValidator(_named_parts)]
Happened = Annotated[dict[str, Any], AfterValidator(_happened)]
