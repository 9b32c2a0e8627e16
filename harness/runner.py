"""Walks a plan: opens each part's model, takes the missing samples in order, keeps every one as soon as it is finished.

Knows protocols, not implementations; writes through the store only and names no vendor. A run that was killed is
continued by calling ``run`` again with the same scenario: finished samples are never taken twice. Where a part asks for
several processes, ``run`` sends every share of the run out as an errand and loads nothing itself.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from harness.continuing import default_directory, missing_slots, refuse_other_execution
from harness.environment import snapshot
from harness.errors import EXIT_AGAIN, CaseError, DoesNotFitError
from harness.estimates import estimate_memory
from harness.pace import Pace
from harness.plan import Share, Slot
from harness.processes import Errand, FreshInterpreter, Spawner, expect_success
from harness.progress import Progress, Silent
from harness.ranks import ranks_here, refuse_other_world
from harness.record import CaseOutcome, Run
from harness.runner_header import make_header
from harness.runner_job import Job
from harness.runner_machine import Engine, Machine
from harness.runner_sample import pass_columns, take_sample
from harness.runner_texts import TokenTexts
from harness.scenario import Part
from harness.store import RunStore
from harness.workload import PromptItem, prompt_items


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What this process is to take, at what pace: all there is, or a ``share`` of it with the rest left to ``later`` ones."""

    missing: list[Slot]
    pace: Pace
    share: Share | None = None
    later: tuple[Slot, ...] = ()

    @property
    def process(self) -> int:
        """Whose samples they are."""
        return self.share.process if self.share else 0

    def session(self, event: str) -> dict[str, Any]:
        """What an entry about the whole of this process begins with."""
        return {"event": event, "process": self.process} | ({"part": self.share.part} if self.share else {})


def run(
    scenario_path: Path | str,
    out_dir: Path | None,
    progress: Progress | None = None,
    machine: Machine | None = None,
    spawn: Spawner | None = None,
) -> Path:
    """Take every sample of a scenario that its run directory does not hold yet; returns that directory.

    ``spawn``: who starts the fresh processes of a scenario that asks for some; ``machine`` is theirs to find then. Under
    torchrun, all of it is taken by the processes that torchrun has started; this must be the first of them.

    Raises:
        UserError and its kind: the scenario, a model or the directory is not usable.
        StorageError: the disk refused; everything finished before is kept.
        ProcessEndedError: a fresh process was killed or failed; likewise.
    """
    progress = progress or Silent()
    job, ranks = Job.of(scenario_path), ranks_here()
    if ranks is not None:
        refuse_other_world(job.scenario, ranks.world)
    directory = out_dir or default_directory(job.scenario.name, job.digest, job.plan)
    with RunStore(directory) as store:
        if ranks is None and job.scenario.in_fresh_processes:
            _send_out(job, store, spawn or FreshInterpreter(), progress)
        else:
            machine = machine or _this_machine()
            _take(_begin_or_continue(job, store, machine, progress), store, machine, progress)
            machine.close()
    return directory


def run_errand(errand: Errand, progress: Progress, machine: Machine | None = None) -> None:
    """Do, in a fresh process, what another one has locked the directory for.

    Raises:
        UserError and its kind, StorageError: as ``run``.
    """
    machine = machine or _this_machine()
    job = Job.of(errand.scenario)
    with RunStore(errand.directory, errand.lent) as store:
        if errand.share is None:
            store.create(make_header(job, machine, progress))
            return
        held = store.resume(job.resolved, job.digest)
        own = [part for part in job.scenario.parts if part.name == errand.share.part]
        refuse_other_execution(own, held, machine.execution)
        pace = Pace(job.plan, held)
        by_share = _by_share(job, held, pace)
        coming = list(by_share)[list(by_share).index(errand.share) + 1 :] if errand.share in by_share else []
        later = tuple(slot for share in coming for slot in by_share[share])
        work = Work(missing=by_share.get(errand.share, []), pace=pace, share=errand.share, later=later)
        _take(work, store, machine, progress)
        machine.close()


def _send_out(job: Job, store: RunStore, spawn: Spawner, progress: Progress) -> None:
    """Have every unfinished share taken by a fresh process, one after the other, under the lock of this one."""
    scenario, directory, begun = Path(job.path), store.directory, store.exists
    if not begun:
        begin = Errand(scenario=scenario, directory=directory, share=None, lent=store.hold())
        expect_success(spawn(begin), "the process that begins the run")
    held = store.resume(job.resolved, job.digest)
    if begun:
        progress.note(f"continuing {directory}: {len(held.samples)} samples are kept")
    unfinished = _by_share(job, held, Pace(job.plan, held))
    if not unfinished:
        progress.start([])
    parts = {part.name: part for part in job.scenario.parts}
    for share in unfinished:
        part = parts[share.part]
        who = f"part {share.part}, fresh process {share.process + 1} of {part.processes}"
        who += f", {part.tensor_parallel} sharing the model" if part.tensor_parallel > 1 else ""
        progress.note(who)
        errand = Errand(
            scenario=scenario, directory=directory, share=share, lent=store.hold(), ranks=part.tensor_parallel
        )  # fmt: skip
        while (status := spawn(errand)) == EXIT_AGAIN:  # each time with one case less
            progress.note(f"{who}: again, without the case that failed")
        expect_success(status, who)


def _by_share(job: Job, held: Run, pace: Pace) -> dict[Share, list[Slot]]:
    """What is missing, by the fresh process that is to take it, in order."""
    found: dict[Share, list[Slot]] = {}
    for slot in missing_slots(job.plan, held, pace):
        found.setdefault(slot.share, []).append(slot)
    return found


def _begin_or_continue(job: Job, store: RunStore, machine: Machine, progress: Progress) -> Work:
    """All that is missing of the run in this process's directory."""
    if not store.exists:
        store.create(make_header(job, machine, progress))
        return Work(missing=list(job.plan.slots()), pace=Pace(job.plan))
    held = store.resume(job.resolved, job.digest)
    progress.note(f"continuing {store.directory}: {len(held.samples)} samples are kept")
    refuse_other_execution(job.scenario.parts, held, machine.execution)
    pace = Pace(job.plan, held)
    return Work(missing=missing_slots(job.plan, held, pace), pace=pace)


def _take(work: Work, store: RunStore, machine: Machine, progress: Progress) -> None:
    """Take the missing samples part by part; one model is in memory at a time, and parts that can share it do."""
    store.append_session(snapshot() | work.session("start") | {"pid": os.getpid()})
    pace = work.pace
    missing = _that_fit(work.missing, pace, store, machine)
    progress.start([slot.case.case_id for slot in missing], [slot.case.case_id for slot in work.later])
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
        entry = {"part": part.name, "process": work.process}
        store.append_session({"event": "engine"} | entry | engine.fingerprint(part))
        if engine.meters is not None:
            store.append_session({"event": "meters"} | entry | engine.meters)
        _measure_passes(part, engine, store, entry)
        _take_part(slots, pace, engine, store, progress, entry)
        _measure_passes(part, engine, store, entry)  # again, so that a machine that changed meanwhile shows in their spread
    store.append_session(snapshot() | work.session("end"))


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


def _measure_passes(part: Part, engine: Engine, store: RunStore, entry: dict[str, Any]) -> None:
    """Record what a few passes of a timed part's model cost now, or why that is not known."""
    if not part.timed:
        return
    found: dict[str, Any] = {"event": "measured_passes", **entry, "decodes": []}
    try:
        for one in engine.measure_passes(part.block_sizes):
            found["decodes"].append({"passes": pass_columns(one).model_dump(mode="json"), "decode_s": one.decode_s})
    except CaseError as error:
        found["reason"] = str(error)
    store.append_session(found)


def _take_part(
    slots: list[Slot], pace: Pace, engine: Engine, store: RunStore, progress: Progress, entry: dict[str, Any]
) -> None:
    items: dict[str, tuple[PromptItem, ...]] = {}
    token_texts = TokenTexts(engine.tokenizer)
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
            if texts := token_texts.new_in(sample):
                store.append_session({"event": "token_texts", **entry, "texts": texts})
            pace.note(sample)
        except CaseError as error:
            _give_up(case.case_id, error, pace, store)
        progress.advance(case.case_id)


def _this_machine() -> Machine:
    """The real thing; torch is loaded here and not before."""
    from harness.machine import this_machine

    return this_machine()


