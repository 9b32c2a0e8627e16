"""Loads: how the requests of a sample reach a server, instead of all at once.

A part has one cell for each load, and its batch size is how many requests are in flight at most. For a closed loop that is its
concurrency; for arrivals at times of their own it is all requests of the sample.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError, ValidationInfo, field_validator, model_validator

from harness.config_file import Count, Counts, StrictModel, Text, Younger, YoungerMany, as_list, folder_of, read_text
from harness.errors import ScenarioError
from harness.record.written import WrittenPart
from harness.workloads.arrivals import TracedRequest, of_lengths, read_trace
from harness.workloads.loader import PromptItem

KINDS = ("concurrency", "requests_per_s", "trace")
WARMING = 4
"""Requests of a warm-up of arrivals; that of a closed loop is one for each in flight."""
Above0 = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Load(StrictModel):
    """How the requests of a sample reach a server: a closed loop, Poisson arrivals, or those of a trace."""

    concurrency: Counts | None = None
    """Closed loop: requests in flight at any time; the next one is sent when one is answered. Each of a list is measured."""
    requests_per_s: Above0 | None = None
    """Poisson arrivals: requests per second, on average, drawn anew in each process, the same for every arm."""
    trace: Text | None = None
    """A file of arrivals and lengths: Mooncake's JSONL or Azure's CSV. Prompts are cut to its lengths."""
    trace_sha256: Annotated[str | None, Field(validate_default=True), Younger] = None
    """SHA-256 of the trace. Filled in."""
    requests: Annotated[Count | None, Field(validate_default=True)] = None
    """Requests of one sample. Left out: all prompts of a task, or all lines of the trace."""
    first_token_s: Above0 | None = None
    """Seconds to the first token that a good request takes at most; their rate is the goodput. Left out: no limit."""
    time_per_token_s: Above0 | None = None
    """Seconds per token that a good request takes at most. Left out: no limit."""

    @field_validator("trace")
    @classmethod
    def _readable(cls, name: str | None, info: ValidationInfo) -> str | None:
        base = folder_of(info)
        return name if name is None or base is None else str((base / name).resolve())

    @field_validator("trace_sha256")
    @classmethod
    def _pinned(cls, wanted: str | None, info: ValidationInfo) -> str | None:
        """The digest of the trace, which pins it for a run; a given one must agree."""
        file = info.data.get("trace")
        if file is None or folder_of(info) is None:
            return wanted
        found = hashlib.sha256(read_text(Path(file), "trace").encode()).hexdigest()
        if wanted not in {None, found}:
            raise ValueError(f"got {wanted}, but {file} has {found}; this is another trace than meant, or remove the key")
        return found

    @field_validator("requests")
    @classmethod
    def _counted(cls, wanted: int | None, info: ValidationInfo) -> int | None:
        """Count the lines of the trace, which is read here for the first time."""
        file = info.data.get("trace")
        if file is None or info.data.get("trace_sha256") is None or folder_of(info) is None:
            return wanted
        try:
            return len(read_trace(Path(file), wanted))
        except ScenarioError as error:
            raise ValueError(str(error)) from error

    @model_validator(mode="after")
    def _one_kind(self) -> Load:
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            raise ValueError(
                f"got {' and '.join(given) or 'no kind of load'}; give concurrency (a closed loop), requests_per_s (Poisson "
                "arrivals) or trace (a file), one of the three; several loads are a list"
            )
        return self

    @property
    def closed(self) -> bool:
        """Whether a request is sent when another one is answered."""
        return self.concurrency is not None

    @property
    def traced(self) -> tuple[TracedRequest, ...] | None:
        """The requests of the trace; None for another kind. Raises ScenarioError as read_trace does."""
        return None if self.trace is None else _read(self.trace, self.trace_sha256, self.requests)

    def sizes(self, prompts: int) -> tuple[int, ...]:
        """Most requests in flight, cell by cell. ``prompts``: of a task."""
        return self.concurrency or (self.per_sample(prompts),)

    def per_sample(self, prompts: int) -> int:
        """Requests of one sample."""
        return self.requests or prompts

    def items(self, prompts: Sequence[PromptItem]) -> Sequence[PromptItem]:
        """The prompts themselves, or prompts made of them in the lengths of the trace."""
        return prompts if self.traced is None else of_lengths(prompts, self.traced)

    def words(self, in_flight: int) -> str:
        """``4 in flight``, ``0.5 requests/s``, ``trace conv.jsonl``."""
        if self.requests_per_s is not None:
            return f"{self.requests_per_s:g} requests/s"
        return f"{in_flight} in flight" if self.trace is None else f"trace {Path(self.trace).name}"


@cache
def _read(file: str, digest: str | None, most: int | None) -> tuple[TracedRequest, ...]:
    """Once in a process; another ``digest`` is another trace."""
    return read_trace(Path(file), most)


Loads = Annotated[tuple[Load, ...], BeforeValidator(as_list, json_schema_input_type=Load | list[Load]), YoungerMany]


def by_size(loads: Sequence[Load], prompts: int) -> dict[int, Load]:
    """The load of every batch size.

    Raises:
        ValueError: two loads have the same one, or a closed loop has too few requests to be steady.
    """
    found: dict[int, Load] = {}
    for load in loads:
        for size in load.sizes(prompts):
            if size in found:
                raise ValueError(
                    f"two loads have up to {size} requests in flight, {found[size].words(size)} and {load.words(size)}, and "
                    "would be one cell; change the requests of one, or give it a part of its own"
                )
            if load.closed and load.per_sample(prompts) < 2 * size:
                raise ValueError(
                    f"{load.per_sample(prompts)} requests are too few for {size} in flight: the first and the last ones are "
                    f"left out; give more than {2 * size}, better 8 times as many as are in flight"
                )
            found[size] = load
    return found


_LOADS: TypeAdapter[tuple[Load, ...]] = TypeAdapter(Loads)


def recorded_load(part: WrittenPart, in_flight: int) -> Load | None:
    """The load of a cell of a recorded part; None where all requests go at once."""
    with suppress(ValidationError, ValueError):
        loads = _LOADS.validate_python(part.values.get("load") or ())
        return by_size(loads, part.workload.prompts).get(in_flight)
    return None
