"""Walks a plan: opens each part's model, takes the missing samples in order, keeps every one as soon as it is finished.

Knows protocols, not implementations; writes through the store only and names no vendor. A run that was killed is
continued by calling ``run`` again with the same scenario: finished samples are never taken twice.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

from harness.continuing import default_directory, missing_slots, refuse_other_execution
from harness.environment import snapshot
from harness.errors import CaseError, DoesNotFitError
from harness.estimates import estimate_memory
from harness.pace import Pace
from harness.plan import Slot, make_plan
from harness.progress import Progress, Silent
from harness.record import CaseOutcome
from harness.runner_header import make_header
from harness.runner_machine import Engine, Machine
from harness.runner_sample import pass_columns, take_sample
from harness.scenario import Part, load_scenario, scenario_digest
from harness.store import RunStore
from harness.workload import PromptItem, prompt_items


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
            store.create(make_header(scenario, plan, resolved, digest, scenario_path, machine, progress))
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
            found["decodes"].append({"passes": pass_columns(one).model_dump(mode="json"), "decode_s": one.decode_s})
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
            sample = take_sample(slot, engine, [items[case.task][i] for i in case.prompt_range(slot.group)])
            store.append(sample)
            pace.note(sample)
        except CaseError as error:
            _give_up(case.case_id, error, pace, store)
        progress.advance(case.case_id)


def _this_machine() -> Machine:
    """The real thing; torch is loaded here and not before."""
    from harness.machine import this_machine

    return this_machine()


