"""Walks a plan: opens each part's model, takes the missing samples in order, keeps every one as soon as it is finished.

Knows protocols, not implementations; writes through the store only and names no vendor. A run that was killed is
continued by calling ``run`` again with the same scenario: finished samples are never taken twice.
"""

from __future__ import annotations

import os
import shlex
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

from harness.continuing import default_directory, missing_slots, refuse_other_execution
from harness.environment import snapshot
from harness.errors import CaseError, DoesNotFitError
from harness.estimates import estimate_memory
from harness.modelshape import ModelShape
from harness.pace import Pace
from harness.plan import Case, Plan, Slot, make_plan
from harness.progress import Progress, Silent
from harness.record import CaseOutcome, PassColumns, RowResult, RunHeader, Sample
from harness.scenario import Part, Scenario, load_scenario, scenario_digest
from harness.store import RunStore
from harness.trace import ForwardPass, Generation
from harness.workload import PromptItem, Tokenizer, prompt_items


class Readings(Protocol):
    """What the meters read around one batch, and why some read nothing."""

    values: dict[str, float]
    reasons: dict[str, str]


class Decoded(Protocol):
    """What an engine returns for one batch."""

    generation: Generation
    prefill_s: float
    decode_s: float
    forward_s: list[float] | None
    sampler_s: list[float] | None
    readings: Readings | None


class Engine(Protocol):
    """A part's model, ready to decode any of its arms."""

    @property
    def shape(self) -> ModelShape:
        """Of the loaded model."""

    @property
    def tokenizer(self) -> Tokenizer | None:
        """None where the model has none."""

    @property
    def meters(self) -> dict[str, Any] | None:
        """The figures that samples carry, with unit and source, and what cannot be read here; None where none are."""

    def fingerprint(self, part: Part) -> dict[str, Any]:
        """What the model really runs on here, for the shapes of ``part``, as plain data for the record."""

    def measure_passes(self, block_sizes: Sequence[int]) -> Sequence[Any]:
        """Short decodes of NTP and of these block sizes, as Decoded; what predictions of other cells start from."""

    def decode(self, case: Case, prompts: Sequence[tuple[int, ...]], seed: int) -> Any:
        """Decode one batch; returns a Decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the runner needs from the machine, handed in so that tests can fake it.

    ``calibrate`` and ``profile`` give plain data for the record, or None; ``free_bytes`` is the memory that a part's device
    has to spare before its model is loaded, None where that is not known; ``execution`` is how a part's forwards run here.
    """

    open_engine: Callable[[Part], Engine]
    calibrate: Callable[[Part, ModelShape, Progress], dict[str, Any] | None]
    free_bytes: Callable[[Part], int | None]
    profile: Callable[[Scenario], tuple[dict[str, Any] | None, str | None]]
    execution: Callable[[Part], str]


def run(
    scenario_path: Path | str, out_dir: Path | None, progress: Progress | None = None, machine: Machine | None = None
) -> Path:
    """Take every sample of a scenario that its run directory does not hold yet; returns that directory.

    Raises:
        UserError and its kind: the scenario, a model or the directory is not usable.
        StorageError: the disk refused; everything finished before is kept.
    """
    machine = machine or _this_machine()
    progress = progress or Silent()
    scenario = load_scenario(scenario_path)
    plan = make_plan(scenario)
    resolved = scenario.model_dump(mode="json")
    digest = scenario_digest(resolved)
    directory = out_dir or default_directory(scenario.name, digest, plan)
    with RunStore(directory) as store:
        if store.exists:
            held = store.resume(resolved, digest)
            progress.note(f"continuing {directory}: {len(held.samples)} samples are kept")
            refuse_other_execution(plan, held, machine.execution)
            pace = Pace(plan, held)
            missing = missing_slots(plan, held, pace)
        else:
            store.create(_header(scenario, plan, resolved, digest, scenario_path, machine, progress))
            pace = Pace(plan)
            missing = list(plan.slots())
        _take(missing, pace, store, machine, progress)
    return directory


def _take(missing: list[Slot], pace: Pace, store: RunStore, machine: Machine, progress: Progress) -> None:
    """Take the missing samples part by part; one model is in memory at a time, and parts that can share it do."""
    store.append_session(snapshot() | {"event": "start"})
    missing = _that_fit(missing, pace, store, machine)
    progress.start([slot.case.case_id for slot in missing])
    engine: Engine | None = None
    loaded: dict[str, Any] | None = None
    for _, of_part in groupby(missing, key=lambda slot: slot.case.part.name):
        slots = list(of_part)
        part = slots[0].case.part
        try:
            if engine is None or loaded != part.engine:
                progress.note(f"part {part.name}: loading the model")
                engine = None  # before the next one comes
                engine, loaded = machine.open_engine(part), part.engine
        except CaseError as error:
            for case_id in dict.fromkeys(slot.case.case_id for slot in slots):
                _give_up(case_id, error, pace, store)
            continue
        store.append_session({"event": "engine", "part": part.name} | engine.fingerprint(part))
        if engine.meters is not None:
            store.append_session({"event": "meters", "part": part.name} | engine.meters)
        _measure_passes(part, engine, store)
        _take_part(slots, pace, engine, store, progress)
        _measure_passes(part, engine, store)  # again, so that a machine that changed meanwhile shows in their spread
    store.append_session(snapshot() | {"event": "end"})


def _that_fit(missing: list[Slot], pace: Pace, store: RunStore, machine: Machine) -> list[Slot]:
    """Leave out, and record, the cases that cannot fit. A host may kill a process that asks for too much, so ask first."""
    refused: set[str] = set()
    for case in {slot.case.case_id: slot.case for slot in missing}.values():
        estimate, _ = estimate_memory(case)
        free = machine.free_bytes(case.part)
        if estimate is not None and free is not None and estimate.total_bytes > free:
            needed, there = estimate.total_bytes / 1e9, free / 1e9
            error = DoesNotFitError(f"needs {needed:.1f} GB at least, {there:.1f} GB are free on {case.part.device}")
            refused.add(case.case_id)
            _give_up(case.case_id, error, pace, store)
    return [slot for slot in missing if slot.case.case_id not in refused]


def _give_up(case_id: str, error: CaseError, pace: Pace, store: RunStore) -> None:
    """Record how a case ended that cannot be run; nothing waits for it."""
    store.append_outcome(CaseOutcome(case_id=case_id, outcome=error.outcome, reason=str(error)))
    pace.leave_out(case_id)


def _measure_passes(part: Part, engine: Engine, store: RunStore) -> None:
    """Record what a few passes of a timed part's model cost now, or why that is not known."""
    if not part.timed:
        return
    found: dict[str, Any] = {"event": "measured_passes", "part": part.name, "decodes": []}
    try:
        for one in engine.measure_passes(part.block_sizes):
            found["decodes"].append({"passes": _columns(one).model_dump(mode="json"), "decode_s": one.decode_s})
    except CaseError as error:
        found["reason"] = str(error)
    store.append_session(found)


def _take_part(slots: list[Slot], pace: Pace, engine: Engine, store: RunStore, progress: Progress) -> None:
    items: dict[str, tuple[PromptItem, ...]] = {}
    for slot in slots:
        case = slot.case
        if not pace.needs(slot):
            progress.skip(case.case_id)
            continue
        if case.task not in items:
            items[case.task] = prompt_items(case.workload, case.task, case.part.seed, engine.tokenizer, engine.shape.vocab)
        try:
            sample = _sample(slot, engine, [items[case.task][i] for i in case.prompt_range(slot.group)])
            store.append(sample)
            pace.note(sample)
        except CaseError as error:
            _give_up(case.case_id, error, pace, store)
        progress.advance(case.case_id)


def _sample(slot: Slot, engine: Engine, items: list[PromptItem]) -> Sample:
    """Decode one batch and grade it; grading happens after the clock has stopped."""
    case = slot.case
    seed = case.sample_seed(slot.group, slot.repeat)
    started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
    load = os.getloadavg()[0]
    decoded = engine.decode(case, [item.ids for item in items], seed)
    timed = case.part.timed
    return Sample(
        case_id=case.case_id,
        group=slot.group,
        repeat=slot.repeat,
        warmup=slot.warmup,
        seed=seed,
        rows=[_row(decoded.generation, row, item, engine.tokenizer, case) for row, item in enumerate(items)],
        passes=_columns(decoded) if timed else _columns(decoded).untimed(),
        prefill_s=decoded.prefill_s if timed else None,
        decode_s=decoded.decode_s if timed else None,
        started_at=started_at,
        load_1min=load,
        meters=decoded.readings.values if decoded.readings else {},
        meter_reasons=decoded.readings.reasons if decoded.readings else {},
    )


def _row(generation: Generation, row: int, item: PromptItem, tokenizer: Tokenizer | None, case: Case) -> RowResult:
    output = generation.output_ids[row]
    correct, reason = None, item.ungraded_reason
    if case.stops_suppressed:
        reason = "replayed acceptance: the output is not the model's own"
    elif item.grade is not None and tokenizer is not None:
        correct = item.grade(tokenizer.decode(output))
    return RowResult(
        prompt_id=item.prompt_id,
        prompt_tokens=generation.prompt_tokens[row],
        output_tokens=len(output),
        output_ids=list(output),
        stop_reason=generation.stop_reasons[row],
        correct=correct,
        ungraded_reason=reason if correct is None else None,
    )


def _columns(decoded: Decoded) -> PassColumns:
    columns: dict[str, Any] = {}
    for field in fields(ForwardPass):
        values = [getattr(one, field.name) for one in decoded.generation.passes]
        columns[field.name] = [list(v) if isinstance(v, tuple) else v for v in values]
    return PassColumns(**columns, forward_s=decoded.forward_s, sampler_s=decoded.sampler_s)


def _header(
    scenario: Scenario,
    plan: Plan,
    resolved: dict[str, Any],
    digest: str,
    path: Path | str,
    machine: Machine,
    progress: Progress,
) -> RunHeader:
    """All that is known before the first sample, calibration included; a shape only the weights know opens the model."""
    hardware, reason = machine.profile(scenario)
    if reason is not None:
        progress.note(f"no hardware profile in this record: {reason}")
    shapes = {case.part.name: case.shape for case in plan.cases}
    parts = {part.name: part for part in scenario.parts}
    known = {name: shape or machine.open_engine(parts[name]).shape for name, shape in shapes.items()}
    calibration = {
        name: found
        for name, part in parts.items()
        if part.timed and (found := machine.calibrate(part, known[name], progress)) is not None
    }
    return RunHeader(
        run_id=uuid.uuid4().hex,
        scenario_name=scenario.name,
        question=scenario.question,
        scenario=resolved,
        scenario_digest=digest,
        command=shlex.join(["sbd", "run", str(path)]),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        cases=[case.header(known[case.part.name], machine.execution(case.part)) for case in plan.cases],
        hardware=hardware,
        hardware_reason=reason,
        calibration=calibration or None,
        environment=snapshot(),
    )


def _this_machine() -> Machine:
    """The real thing; torch is loaded here and not before."""
    from harness.machine import this_machine

    return this_machine()


