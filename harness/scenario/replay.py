"""Replayed acceptance: its source in a scenario, what the plan knows of it, and its name.

A recorded trace is read only when the run begins. Table 1 of the paper (arXiv 2509.04185v1) is in paper_table1.csv beside it:
published NFE speedups that a replayed arm may name.
"""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator

from harness.config_file import StrictModel, Text, Younger, folder_of, named_by_key
from harness.scenario.method import ArmSettings, ReplaySpec, number
from harness.scenario.solvers import SolverSettings

BaseModelName = Literal["llama-3.1-8b", "qwen-3-8b"]
Sampling = Literal["sbd_gamma_low", "sbd_gamma_high"]

with Path(__file__).with_name("paper_table1.csv").open(encoding="utf-8", newline="") as _lines:
    TABLE1 = {
        (row["base_model"], row["task"], row["sampling"]): float(row["nfe_speedup"])
        for row in csv.DictReader(_lines)
        if row["sampling"] != "ntp"
    }
"""Published NFE speedups (k = 16), by base model, task and sampling."""
TABLE1_TASKS = tuple(dict.fromkeys(task for _, task, _ in TABLE1))


class Table1Cell(StrictModel):
    """One cell of the paper's Table 1 (arXiv 2509.04185)."""

    base_model: BaseModelName
    """Model of the table."""
    task: str
    """Task of the table, as the paper writes it."""
    sampling: Sampling
    """Column: γ low, cautious; or γ high, fewer passes."""

    @field_validator("task")
    @classmethod
    def _known(cls, task: str) -> str:
        if task not in TABLE1_TASKS:
            raise ValueError(f"unknown task {task!r} of Table 1; allowed: {', '.join(TABLE1_TASKS)}")
        return task


class ReplayFromSpeedup(StrictModel):
    """A mean NFE speedup; its distribution is assumed."""

    nfe_speedup: Annotated[float, Field(strict=True, ge=1, allow_inf_nan=False)]
    """Times fewer forward passes than NTP, on average."""


class ReplayFromTable1(StrictModel):
    """The NFE speedup of a cell of Table 1; its distribution is assumed."""

    table1: Table1Cell
    """The cell."""

    @property
    def nfe_speedup(self) -> float:
        """As published."""
        return TABLE1[self.table1.base_model, self.table1.task, self.table1.sampling]


class ReplayFromTrace(StrictModel):
    """Drawn from the arms of the same method and block size in a recorded run.

    For checked drafts also from the served arms of a run that has none of it, or from a file of vLLM's answers with their
    ``per_step_accepted``.
    """

    trace: Text
    """Directory of a recorded run, or a file of vLLM's answers, from the scenario's folder."""
    arm: Annotated[Text | None, Younger] = None
    """One arm, by its label there. Left out: all arms of the same method and block size."""
    nfe_speedup: ClassVar[None] = None

    @field_validator("trace")
    @classmethod
    def _found(cls, path: str, info: ValidationInfo) -> str:
        base = folder_of(info)
        if base is None:
            return path
        if not (base / path).exists():
            raise ValueError(f"there is no recorded run at {base / path}; give the directory of a run that has samples")
        return str((base / path).resolve())


ReplaySource = Annotated[
    Annotated[ReplayFromSpeedup, Tag("nfe_speedup")]
    | Annotated[ReplayFromTable1, Tag("table1")]
    | Annotated[ReplayFromTrace, Tag("trace")],
    named_by_key(
        "nfe_speedup",
        "table1",
        "trace",
        "replay",
        message="what to replay is missing; write one of {nfe_speedup: 3.0}, {table1: {...}}, {trace: path}",
    ),
]


class Replay(StrictModel):
    """Real passes of the real shapes; only the sampler's decision is overridden."""

    replay: ReplaySource
    """What is replayed."""


class TraceReplay(StrictModel):
    """Real passes of the real shapes; drafts and checks are those of a recorded run."""

    replay: ReplayFromTrace
    """The recorded run."""


_REAL_OR_REPLAYED = Discriminator(lambda value: "real" if isinstance(value, str) else "replay")
AcceptanceChoice = Annotated[Annotated[Literal["real"], Tag("real")] | Annotated[Replay, Tag("replay")], _REAL_OR_REPLAYED]
RecordedAcceptance = Annotated[
    Annotated[Literal["real"], Tag("real")] | Annotated[TraceReplay, Tag("replay")], _REAL_OR_REPLAYED
]


def replay_spec(arm: Any, variant: ArmSettings) -> ReplaySpec | None:
    """The replay of a scenario's arm and one of its variants; None where the sampler decides."""
    acceptance: Literal["real"] | Replay | TraceReplay = getattr(arm, "acceptance", "real")
    if acceptance == "real":
        return None
    speedup = acceptance.replay.nfe_speedup
    return ReplaySpec(
        source=acceptance.replay.model_dump(mode="json"),
        nfe_speedup=speedup,
        mean_passes_per_block=variant.block_size / speedup if speedup and variant.block_size else None,
        assumed=not isinstance(acceptance.replay, ReplayFromTrace),
    )


def choice_id(arm: SolverSettings, replay: ReplaySpec | None) -> str:
    """Block size, who decides what is accepted, or drafted, temperature and solver, as case ids have them."""
    choice = replay_id(replay) or f"-{arm.setting_id}"
    return f"k{arm.k}{choice}-t{number(arm.temperature)}-{arm.solver}"


def replay_id(replay: ReplaySpec | None) -> str:
    """What is replayed, as case ids have it; empty where nothing is."""
    return "" if replay is None else f"-replay-{_source_id(replay)}"


def _source_id(replay: ReplaySpec) -> str:
    if cell := replay.source.get("table1"):
        return f"{cell['base_model']}-{cell['task']}-{cell['sampling'].removeprefix('sbd_')}"
    if trace := replay.source.get("trace"):
        drawn_from = trace + (f"\n{arm}" if (arm := replay.source.get("arm")) else "")
        return f"trace-{hashlib.sha256(drawn_from.encode()).hexdigest()[:8]}"
    return f"{number(replay.source['nfe_speedup'])}x"


def with_choice(name: str, arm: SolverSettings, replay: ReplaySpec | None) -> str:
    """``name`` and who decides what is accepted, or drafted; a recorded arm of the same name by its other properties."""
    if replay is None:
        return f"{name} {arm.setting_in_words}"
    if cell := replay.source.get("table1"):
        return f"{name} replayed {cell['task']} {'γ low' if cell['sampling'].endswith('low') else 'γ high'}"
    of_record = replay.source.get("arm", "trace").removeprefix(f"{name} ")
    return f"{name} replayed {f'{number(replay.nfe_speedup)}x' if replay.nfe_speedup else of_record}"
