"""What a record holds as it was written: typed where figures are derived from it, every other key kept as it is.

The state of a machine, an event and a scenario are plain objects, whose known keys are checked when a record is read: a key may
be absent, or hold None, and every number is finite and bounded as a meter's reading is. Arms and parts are values.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, Self, TypedDict, cast, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, GetPydanticSchema, model_serializer, model_validator

from harness.record.bounds import OpenValues, finite

OPEN = GetPydanticSchema(lambda source, handler: handler(dict[str, object]))
"""Beside an object of these types in a model: pydantic reads any object, and keeps the order of its keys."""
_WORDS = {str: "a text", int: "a whole number", float: "a number", dict: "an object", list: "a list"}
_OF_A_PART = {"ceilings", "engine", "meters", "measured_passes", "token_texts"}


class Threads(TypedDict, total=False):
    """Numbers of threads by who counts them, and the variables that set them."""

    torch: int | None


class Checkout(TypedDict, total=False):
    """A commit, whether files were changed since, and when it was made (ISO 8601)."""

    commit: str
    commit_has_changes: bool
    committed_at: str


class Environment(TypedDict, total=False):
    """A machine and its state, as harness.meters.environment reads it."""

    logical_cores: int
    affinity_cores: int
    cgroup_cpus: float
    memory_total_bytes: float
    cpu_model: str
    cpu_id: str
    isa_flags: list[str]
    machine: str
    """What whoever imported a run calls it."""
    gpus: list[dict[str, object]]
    nvidia_gpus: list[dict[str, object]]
    threads: Threads
    python: str
    harness: str
    packages: dict[str, str]
    commit: str
    repository: dict[str, object]
    reasons: dict[str, str]
    """Why a value is None, by its key."""


class Happened(TypedDict, total=False):
    """An event: what happened besides samples. One at the start or end of a session has the keys of an Environment too."""

    event: str
    part: str
    node: str
    process: int
    pid: int
    taken_at: str
    ended_at: str
    case_id: str
    tokenizer_sha256: str
    model_revision: str
    reason: str
    hardware_reason: str
    remark: str
    calibration: dict[str, object]
    hardware: dict[str, object]
    items: dict[str, object]
    figures: dict[str, object]
    texts: dict[str, str]
    """Of tokens, by their numbers."""
    decodes: list[Any]
    servers: dict[str, dict[str, object]]
    absent: list[Any]
    bandwidth_scale_reason: str
    found: list[Any]
    rounding: float


class WrittenWorkKeys(TypedDict, total=False):
    """What of a part's workload figures are derived from (``WrittenWork``)."""

    synthetic: dict[str, object]
    prompts: int
    max_new_tokens: int
    cluster: str
    generalise_over: str


class WrittenPartKeys(TypedDict, total=False):
    """What of a part figures are derived from (``WrittenPart``)."""

    name: str
    baseline: str
    dtype: str
    threads: int
    seed: int
    processes: int
    own_prompts: bool
    devices: list[str]
    workload: dict[str, object]
    servers: dict[str, object]
    health: dict[str, object]


class WrittenScenario(TypedDict, total=False):
    """A scenario with all that was filled in; of a part, ``RunHeader.written`` gives what a reader needs."""

    version: int
    name: str
    question: str
    parts: list[WrittenPartKeys]
    claims: list[object]


@cache
def _kinds(known: type) -> dict[str, type]:
    """The type of each key, ``list`` of ``list[str]``."""
    kinds = {name: get_origin(hint) or hint for name, hint in get_type_hints(known).items()}
    return {name: kind for name, kind in kinds.items() if kind in _WORDS}


def _of_their_kinds(values: Any, known: type) -> None:
    """Raises ValueError where a value that figures are derived from has another type, or a number is damaged."""
    for name, kind in _kinds(known).items():
        given = values.get(name)
        allowed = (int, float) if kind is float else kind
        if given is not None and (isinstance(given, bool) or not isinstance(given, allowed)):
            raise ValueError(f"{name}: got {given!r}, {_WORDS[kind]} is needed")
    finite(values)


def facts(environment: Environment) -> Environment:
    """The same. Raises ValueError where it is damaged."""
    _of_their_kinds(environment, Environment)
    listed = [*(environment.get("gpus") or ()), *(environment.get("nvidia_gpus") or ())]
    if not all(isinstance(gpu, dict) for gpu in listed):
        raise ValueError("gpus and nvidia_gpus are lists of objects")
    return environment


def named_parts(scenario: WrittenScenario) -> WrittenScenario:
    """The same. Raises ValueError where it is damaged."""
    finite(scenario)
    parts: object = scenario.get("parts", [])
    if not isinstance(parts, list) or not all(isinstance(part, dict) and isinstance(part.get("name"), str) for part in parts):
        raise ValueError("the parts of the scenario are a list of objects with a name each")
    for part in parts:
        _of_their_kinds(part, WrittenPartKeys)
        _of_their_kinds(part.get("workload") or {}, WrittenWorkKeys)
    return scenario


def happened(event: Happened) -> Happened:
    """The same. Raises ValueError where it is damaged."""
    _of_their_kinds(event, Happened)
    name = event.get("event")
    if name in ("start", "end"):
        facts(cast(Environment, event))
    if name in _OF_A_PART and event.get("part") is None:
        raise ValueError(f"part: an event {name!r} says whose it is")
    if not all(token.isdecimal() and isinstance(text, str) for token, text in (event.get("texts") or {}).items()):
        raise ValueError("texts: the texts of tokens stand under their numbers")
    return event


class _Written(BaseModel):
    """An object of a record. A key that it lacks, or that holds None, has its default here."""

    model_config = ConfigDict(frozen=True, strict=True)

    values: dict[str, object]
    """Every key as it is written, those that no program here knows too."""

    @model_validator(mode="before")
    @classmethod
    def _kept(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return {name: value for name, value in given.items() if value is not None} | {"values": given}

    @model_serializer
    def _as_written(self) -> dict[str, object]:
        return self.values


class WrittenArm(_Written):
    """An arm with one value on every axis, as a record has it: what figures are derived from has its type, None where the arm
    lacks it. A method that is not installed reads like any other.

    >>> WrittenArm.model_validate({"method": "sbd", "block_size": 16, "mine": 3}).block_size
    16
    """

    values: OpenValues
    method: str = ""
    """``ntp``, ``sbd``, ...; ``generate`` is what checks the baseline."""
    temperature: Annotated[float, Field(ge=0, le=1e6)] | None = None
    block_size: Annotated[int, Field(ge=1, le=1 << 24)] | None = None
    gamma: Annotated[float, Field(ge=0, le=1e6)] | None = None
    solver: str | None = None
    lossless: str | None = None
    """What its output is identical to, in words."""
    form: str | None = None
    copies: bool | None = None
    least_confidence: float | None = None
    server: str | None = None
    """The server, or the engine beside ours, that decodes it."""
    cache: Literal["dynamic", "static"] | None = None
    """Of generate()."""
    execution: str | None = None
    """Of generate(), or ``served``."""

    @property
    def is_check(self) -> bool:
        """Whether it is no arm but generate(), or an engine of others, which checks the baseline."""
        return self.method == "generate"

    def __or__(self, changes: Mapping[str, object]) -> Self:
        """The arm with these values."""
        known = {name: value for name, value in changes.items() if name in type(self).model_fields}
        return self.model_copy(update=known | {"values": {**self.values, **changes}})


class WrittenWork(_Written):
    """The workload of a part."""

    prompts: int = 1
    synthetic: dict[str, int] = {}
    chat_template: Any = None
    """None: in a run of before there was the key."""
    max_new_tokens: int = 0
    cluster: str | None = None
    generalise_over: str | None = None

    @property
    def prompt_tokens(self) -> int | None:
        """Length of synthetic prompts; None for prompts with lengths of their own."""
        return self.synthetic.get("prompt_tokens")


class WrittenPart(_Written):
    """A part of a recorded scenario, as far as a reader needs it; an imported run, or an older one, lacks much."""

    workload: WrittenWork = WrittenWork.model_validate({})
    baseline: str | None = None
    own_prompts: bool = False
    """Every process has prompts of its own."""
    devices: list[str] = []
    threads: int | None = None
    dtype: str | None = None
    seed: int | None = None
    processes: int = 1
    servers: dict[str, object] = {}
    health: dict[str, object] = {}
