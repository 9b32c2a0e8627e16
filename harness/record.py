"""The schema of what a run leaves behind. The record is the product: raw samples only, everything else is derived on reading.

History of the format (RECORD_VERSION):
    1   first published format
    2   a sample may carry its meters' readings; session entries may be events of other kinds than machine states; a case
        names its model session (before: always the plain one) and its execution (before: always eager)
    3   a timed pass has the time of its sampler
    4   a sample names the fresh process that took it, and so does a session entry (before: always the first)
    5   a pass over a block of masks names the positions that it decided, and a pass may verify and draft at once;
        an event holds the texts of a few tokens
    6   a case names over how many processes its model was split (before: always one)
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from harness.modelshape import ModelShape
from harness.trace import ForwardPass, Role

RECORD_VERSION = 6
SampleKey = tuple[str, int, int, bool, int]
"""(case id, group, repeat, warm-up, process)."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PassColumns(_Frozen):
    """The passes of one sample, column by column: entry i of every column belongs to pass i; durations in seconds.

    The per-row columns hold one list per pass with one entry per batch row, named as in harness.trace.ForwardPass.
    ``forward_s`` and ``sampler_s`` (from the end of the forward to the readback of what was decided; 0 where nothing was
    read) are None where the sample was not timed pass by pass. ``decided_slots`` is None where no pass says (another decoder,
    an older record), and so is its entry for a pass over no block.
    """

    role: list[Role]
    query_tokens: list[list[int]]
    context_tokens: list[list[int]]
    logit_tokens: list[list[int]]
    kept_tokens: list[list[int]]
    decided_tokens: list[list[int]]
    final_tokens: list[list[int]]
    active: list[list[bool]]
    padded_query: list[int]
    padded_context: list[int]
    decided_slots: list[list[list[int]] | None] | None = None
    forward_s: list[float] | None = None
    sampler_s: list[float] | None = None

    def untimed(self) -> PassColumns:
        """The same passes without their durations."""
        return self.model_copy(update={"forward_s": None, "sampler_s": None})

    def passes(self) -> list[ForwardPass]:
        """The trace as the decoder described it."""
        per_row = ("query_tokens", "context_tokens", "logit_tokens", "kept_tokens", "decided_tokens", "final_tokens", "active")
        return [
            ForwardPass(
                role=role,
                padded_query=self.padded_query[i],
                padded_context=self.padded_context[i],
                decided_slots=_as_tuples(self.decided_slots[i]) if self.decided_slots else None,
                **{name: tuple(getattr(self, name)[i]) for name in per_row},
            )
            for i, role in enumerate(self.role)
        ]


def _as_tuples(rows: list[list[int]] | None) -> tuple[tuple[int, ...], ...] | None:
    return None if rows is None else tuple(map(tuple, rows))


class RowResult(_Frozen):
    """What one batch row was asked and what it wrote. Tokens: up to and including the stop; no prompt, no padding.

    ``correct`` is None with ``ungraded_reason`` where there is nothing to check (no answer, replayed acceptance).
    """

    prompt_id: str
    prompt_tokens: int
    output_tokens: int
    output_ids: list[int]
    stop_reason: Literal["stop", "length"]
    correct: bool | None
    ungraded_reason: str | None = None


class Sample(_Frozen):
    """One timed (or untimed) decode of one batch by one arm. ``decode_s`` is wall time after prefill, synchronised.

    ``process``: which fresh process took it, from 0; every process decodes the same prompts.
    ``meters`` and ``meter_reasons``: what the meters read over prefill and decode, by figure, and why the others read
    nothing; units and sources are in the session entry of the part.
    """

    case_id: str
    group: int
    repeat: int
    process: int = 0
    warmup: bool
    seed: int
    rows: list[RowResult]
    passes: PassColumns
    prefill_s: float | None
    decode_s: float | None
    started_at: str
    load_1min: float | None
    meters: dict[str, float] = {}
    meter_reasons: dict[str, str] = {}

    @property
    def key(self) -> SampleKey:
        """What tells the samples of a run apart."""
        return self.case_id, self.group, self.repeat, self.warmup, self.process


class CaseOutcome(_Frozen):
    """How a case ended that did not end with samples: it did not fit, or was refused."""

    case_id: str
    outcome: Literal["does_not_fit", "failed"]
    reason: str


def is_check(arm: dict[str, Any]) -> bool:
    """Whether these values stand for generate(), which the baseline is held against, and not for an arm."""
    return arm.get("method") == "generate"


class CaseHeader(_Frozen):
    """One cell of the plan: one part of the scenario, one arm with one value on every axis, one batch size."""

    case_id: str
    part: str
    arm: dict[str, Any]
    label: str
    batch_size: int
    task: str
    model: ModelShape
    model_source: dict[str, Any]
    dtype: str
    device: str
    attention: str
    session: str = "plain"
    execution: str = "eager"
    timed: bool
    tensor_parallel: int = 1
    replayed: dict[str, Any] | None = None

    @property
    def is_check(self) -> bool:
        """Not an arm, but generate(), which the baseline is held against."""
        return is_check(self.arm)


class RunHeader(_Frozen):
    """Everything about a run that is known before its first sample."""

    record_version: int = RECORD_VERSION
    run_id: str
    scenario_name: str
    question: str
    scenario: dict[str, Any]
    scenario_digest: str
    command: str
    created_at: str
    cases: list[CaseHeader]
    hardware: dict[str, Any] | None
    hardware_reason: str | None = None
    calibration: dict[str, Any] | None = None
    environment: dict[str, Any]


class Run(_Frozen):
    """A run as read back from its directory. ``sessions`` lists what happened besides samples, each entry under its ``event``:
    the environment at the start and end of each session, and what was found out about every part. ``process`` in an entry:
    whose samples the session took.
    """

    header: RunHeader
    samples: list[Sample]
    outcomes: list[CaseOutcome]
    sessions: list[dict[str, Any]]

    def events(self, name: str, part: str) -> list[dict[str, Any]]:
        """What the sessions recorded under this name of ``part``, in order."""
        return [one for one in self.sessions if one.get("event") == name and one.get("part") == part]
