"""The arms of a part: next-token prediction, Set Block Decoding with real or replayed acceptance, and what decodes without
loss: SBD whose blocks are verified, self-speculation, and the rivals (harness.scenario.speculative_arms).

A list on block_size, solver, a knob of it, temperature or batching is an axis; ``variants`` is the product. Knows no model and
no task.
"""

from __future__ import annotations

from itertools import product
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from harness.config_file import Frozen, Text, named_by_key
from harness.scenario.arms_public import BlockDiffusionArm
from harness.scenario.axes import Counts, Numbers, Shares, as_list, distinct
from harness.scenario.masked_arms import ApdArm, FreeDaveArm
from harness.scenario.paper_table1 import BaseModelName, Sampling, nfe_speedup, tasks_of
from harness.scenario.solvers import SolverChoice, Younger
from harness.scenario.speculative_arms import DraftModelArm, EarlyExitArm, HierarchicalArm, PromptLookupArm, lossless_against

Batching = Literal["lockstep", "ragged"]
Form = Literal["linear", "quadratic"]
GREEDY = 0.0
"""Temperature at which the likeliest token is taken."""
GENERATE_MODES = {
    "cpu": (("dynamic", "eager"), ("static", "eager"), ("dynamic", "compiled")),
    "cuda": (("dynamic", "eager"), ("static", "compiled")),
}
"""Cache and execution of transformers' generate() that are held beside the NTP arm, by kind of device. On a CPU we compile
its forwards, and only where the arm's are compiled; on a GPU transformers compiles those with a static cache by itself.
"""


# One value or a list of distinct values; a list is an axis of the plan.
Batchings = Annotated[
    tuple[Batching, ...], Field(min_length=1), BeforeValidator(as_list, json_schema_input_type=Batching | list[Batching]),
    AfterValidator(distinct),
]  # fmt: skip


Forms = Annotated[
    tuple[Form, ...], Field(min_length=1), BeforeValidator(as_list, json_schema_input_type=Form | list[Form]),
    AfterValidator(distinct),
]  # fmt: skip


class Table1Cell(Frozen):
    """One cell of the paper's Table 1 (arXiv 2509.04185)."""

    base_model: BaseModelName
    task: str
    sampling: Sampling

    @field_validator("task")
    @classmethod
    def _known(cls, task: str) -> str:
        if task not in tasks_of():
            raise ValueError(f"unknown task {task!r} of Table 1; allowed: {', '.join(tasks_of())}")
        return task


class ReplayFromSpeedup(Frozen):
    """A mean NFE speedup, of which the distribution is assumed."""

    nfe_speedup: Annotated[float, Field(strict=True, ge=1, allow_inf_nan=False)]


class ReplayFromTable1(Frozen):
    """The NFE speedup of a cell of Table 1, of which the distribution is assumed."""

    table1: Table1Cell


class ReplayFromTrace(Frozen):
    """Drawn from what arms of the same method and block size did in a recorded run (its directory): ``arm`` by its label there,
    all of them without it.
    """

    trace: Text
    arm: Annotated[Text | None, Younger] = None

    @field_validator("trace")
    @classmethod
    def _found(cls, path: str, info: ValidationInfo) -> str:
        base = (info.context or {}).get("base")
        if base is None:
            return path
        if not (base / path).exists():
            raise ValueError(f"there is no recorded run at {base / path}; give the directory of a run that has samples")
        return str((base / path).resolve())


ReplaySource = Annotated[
    Annotated[ReplayFromSpeedup, Tag("nfe_speedup")]
    | Annotated[ReplayFromTable1, Tag("table1")]
    | Annotated[ReplayFromTrace, Tag("trace")],
    Discriminator(
        named_by_key("nfe_speedup", "table1", "trace", "replay"),
        custom_error_type="unknown_key",
        custom_error_message="what to replay is missing; write one of {nfe_speedup: 3.0}, {table1: {...}}, {trace: path}",
    ),
]


class Replay(Frozen):
    """Real passes of the real shapes; only the sampler's decision is overridden."""

    replay: ReplaySource


class TraceReplay(Frozen):
    """Real passes of the real shapes; drafts and checks go as those of a recorded run did."""

    replay: ReplayFromTrace


_REAL_OR_REPLAYED = Discriminator(lambda value: "real" if isinstance(value, str) else "replay")
Acceptance = Annotated[
    Annotated[Literal["real"], Tag("real")] | Annotated[Replay, Tag("replay")],
    _REAL_OR_REPLAYED,
]
RecordedAcceptance = Annotated[
    Annotated[Literal["real"], Tag("real")] | Annotated[TraceReplay, Tag("replay")],
    _REAL_OR_REPLAYED,
]


class NtpArm(Frozen):
    """Next-token prediction: the baseline."""

    method: Literal["ntp"]
    temperature: Numbers = (GREEDY,)

    def variants(self) -> list[dict[str, Any]]:
        """One mapping per value of the axis, every key with a single value."""
        return [{"method": "ntp", "temperature": temperature} for temperature in self.temperature]


class SbdArm(SolverChoice):
    """Set Block Decoding. The solver's knobs decide real acceptance (``gamma``, in nats, is that of the default solver);
    replayed acceptance has none. ``batching`` says whether the rows of a batch open their blocks together or each when it can.
    """

    method: Literal["sbd"]
    block_size: Counts = (16,)
    temperature: Numbers = (GREEDY,)
    batching: Batchings = ("lockstep",)
    acceptance: Acceptance = "real"

    @model_validator(mode="after")
    def _solver_decides_real_acceptance(self) -> SbdArm:
        if self.acceptance == "real":
            self.check_knobs()
        else:
            self.check_replayed()
            self._check_speedup()
        return self

    def _check_speedup(self) -> None:
        speedup = replayed_speedup(self)
        if speedup is not None and speedup > min(self.block_size):
            raise ValueError(
                f"an NFE speedup of {speedup:g} cannot be had with block size {min(self.block_size)}: a block takes at least "
                "one pass; use a larger block_size or a smaller nfe_speedup"
            )

    def variants(self) -> list[dict[str, Any]]:
        """One mapping per point of the product of the axes, every key with a single value."""
        acceptance = self.acceptance if self.acceptance == "real" else self.acceptance.model_dump(mode="json")
        axes = product(self.block_size, self.settings(), self.temperature, self.solver, self.batching)
        return [
            {"method": "sbd", "acceptance": acceptance, "block_size": size, **setting, "temperature": temperature,
             "solver": solver, "batching": batching}
            for size, setting, temperature, solver, batching in axes
        ]  # fmt: skip


class VerifiedSbdArm(SolverChoice):
    """Set Block Decoding whose blocks the next-token head checks in the pass that commits them; the solver only drafts. In a
    batch every row goes on by itself. ``least_confidence``: a block is checked, and the next one opened, before its first draft
    of that confidence or less; without it, whole. Replayed, a recorded run says in how many passes a block is drafted and with
    how many of its drafts the next-token head agrees.
    """

    method: Literal["sbd_verified"]
    block_size: Counts = (16,)
    temperature: Numbers = (GREEDY,)
    least_confidence: Annotated[Shares | None, Younger] = None
    acceptance: Annotated[RecordedAcceptance, Field(exclude_if=lambda value: value == "real")] = "real"

    @model_validator(mode="after")
    def _solver_has_its_knobs(self) -> VerifiedSbdArm:
        if self.acceptance == "real":
            self.check_knobs(otherwise="")
            return self
        self.check_replayed()
        if self.least_confidence is not None:
            raise ValueError("least_confidence decides nothing where acceptance is replayed; remove least_confidence")
        return self

    def variants(self) -> list[dict[str, Any]]:
        """One mapping per point of the product of the axes, every key with a single value."""
        ends = [{} if one is None else {"least_confidence": one} for one in self.least_confidence or (None,)]
        axes = product(self.block_size, self.settings(), self.temperature, self.solver, ends)
        replayed = {} if self.acceptance == "real" else {"acceptance": self.acceptance.model_dump(mode="json")}
        return [
            {"method": "sbd_verified", **replayed, "block_size": size, **setting, "temperature": temperature, "solver": solver,
             **end, **({} if replayed else {"lossless": lossless_against(temperature)})}
            for size, setting, temperature, solver, end in axes
        ]  # fmt: skip


class SelfSpeculationArm(Frozen):
    """One-step drafts of the masked head, checked by the next-token head. ``form``: linear takes two passes an iteration,
    quadratic one of block_size x (block_size + 1) query tokens.
    """

    method: Literal["self_speculation"]
    form: Forms
    block_size: Counts = (16,)
    temperature: Numbers = (GREEDY,)

    def variants(self) -> list[dict[str, Any]]:
        """One mapping per point of the product of the axes, every key with a single value."""
        axes = product(self.form, self.block_size, self.temperature)
        return [
            {"method": "self_speculation", "form": form, "block_size": size, "temperature": temperature,
             "lossless": lossless_against(temperature)}
            for form, size, temperature in axes
        ]  # fmt: skip


Arm = Annotated[
    NtpArm | SbdArm | VerifiedSbdArm | SelfSpeculationArm | FreeDaveArm | ApdArm | BlockDiffusionArm
    | PromptLookupArm | DraftModelArm | EarlyExitArm | HierarchicalArm,
    Field(discriminator="method"),
]  # fmt: skip


def replayed_speedup(arm: SbdArm | VerifiedSbdArm) -> float | None:
    """The mean NFE speedup that the arm replays; None where acceptance is real or comes from a trace."""
    if arm.acceptance == "real":
        return None
    source = arm.acceptance.replay
    if isinstance(source, ReplayFromSpeedup):
        return source.nfe_speedup
    if isinstance(source, ReplayFromTable1):
        return nfe_speedup(source.table1.base_model, source.table1.task, source.table1.sampling)
    return None
