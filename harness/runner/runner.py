"""Walks a plan: begins or continues the run's directory, has the missing samples taken, keeps each at once.

Samples are taken in this process, or in consecutive fresh ones where a part asks for several, or a hung one could be ended
(over a cluster: harness.runner.cluster.scheduler). The runner writes through the store only and names no vendor.
``run`` with the same scenario continues a killed run: finished samples are never taken twice.
"""

from __future__ import annotations

from pathlib import Path

from harness.errors import STATUS_AGAIN, HungError, InvariantError, ProcessEndedError, UserError
from harness.progress import Progress
from harness.record.schema import Run
from harness.record.store import RunStore, read_run
from harness.runner.job import Job, machine_here, make_header, refuse_other_execution
from harness.runner.planned_looks import Look, PlannedLooks
from harness.runner.protocols import Machine
from harness.runner.recorder import ATTEMPT, Failure, Recorder
from harness.runner.subprocesses import KEPT, ChildTask, FreshInterpreter, Spawner, expect_success, was_killed, why_ended
from harness.runner.work import work_of
from harness.runner.worker import take
from harness.scenario.plan import Share
from harness.scenario.ranks import ranks_here, refuse_other_world


def run(
    scenario: Job | Path | str,
    out_dir: Path | None,
    progress: Progress | None = None,
    machine: Machine | None = None,
    spawn: Spawner | None = None,
    look: Look | None = None,
) -> Path:
    """Take every sample of a scenario that its run directory does not hold yet; returns that directory.

    ``spawn`` starts the fresh processes of a scenario that asks for some; they find their own ``machine``. Under torchrun, its
    processes take all samples; this must be the first of them. ``look``: judges a run that ends when it is decided.

    Raises:
        UserError and its kind: the scenario, a model or the directory is not usable, or the run was begun with something else.
        StorageError: the disk refused; everything finished before is kept.
        ProcessEndedError: a fresh process failed; the same holds.
    """
    progress = progress or Progress()
    job, ranks = scenario if isinstance(scenario, Job) else Job.of(scenario), ranks_here()
    if ranks is not None:
        refuse_other_world(job.scenario, ranks.world)
    for part in job.scenario.parts:
        if part.devices:
            raise UserError(
                f"part {part.name}: devices: {', '.join(part.devices)} are nodes of a cluster; give --on ray, or remove devices"
            )
    directory = job.directory(out_dir)
    with RunStore(directory) as store:
        if ranks is None and job.scenario.in_fresh_processes:
            reason = _send_out(job, store, spawn or FreshInterpreter(), progress, look)
        else:
            machine, reason = machine or machine_here(directory), None
            _take_here(job, store, machine, progress)
            machine.close()
        store.end(reason)
    return directory


def run_errand(errand: ChildTask, progress: Progress, machine: Machine | None = None) -> None:
    """Do a fresh process's task, in a directory that its sender has locked.

    Raises:
        UserError and its kind, StorageError: as ``run``.
    """
    machine = machine or machine_here(errand.directory)
    job = Job.of(errand.scenario, errand.options)
    with RunStore(errand.directory, errand.lent) as store:
        if errand.share is None:
            store.create(make_header(job, machine, progress))
            return
        held = store.resume(job.resolved, job.digest)
        refuse_other_execution([job.part(errand.share.part)], held, machine.execution)
        Recorder(store, progress, job, held, marks=True).keep_all(take(work_of(job, held, errand.share), machine, progress))
        machine.close()


def _take_here(job: Job, store: RunStore, machine: Machine, progress: Progress) -> None:
    """Take all missing samples in this process; failed ones that are tried again come last."""
    if store.exists:
        held = store.resume(job.resolved, job.digest)
        progress.note(f"continuing {store.directory}: {len(held.samples)} samples are kept")
        refuse_other_execution(job.scenario.parts, held, machine.execution)
    else:
        store.create(make_header(job, machine, progress))
        held = read_run(store.directory)
    keeper = Recorder(store, progress, job, held)
    keeper.keep_all(take(work_of(job, held), machine, progress))
    while keeper.again:
        keeper.again.clear()
        keeper.keep_all(take(work_of(job, read_run(store.directory)), machine, progress))


def _send_out(job: Job, store: RunStore, spawn: Spawner, progress: Progress, look: Look | None) -> str | None:
    """Take every unfinished share in a fresh process, one after the other, under this process's lock; returns why it ended
    before the last one, if it did.
    """
    directory = store.directory
    continues = store.exists
    looks = PlannedLooks(job.looks, look, progress)
    if not continues:
        begin = ChildTask(scenario=Path(job.path), directory=directory, share=None, lent=store.hold(), options=job.options)
        expect_success(spawn(begin), "the process that begins the run")
    held = store.resume(job.resolved, job.digest)
    if continues:
        progress.note(f"continuing {directory}: {len(held.samples)} samples are kept")
    if not _unfinished(job, held):
        progress.start([])
    while shares := _unfinished(job, held):
        if why := looks.ended(held, min(share.process for share in shares)):
            return why
        errand, who = _errand(job, store, shares[0])
        progress.note(who)
        store.mark("")
        lost, before = _why_lost(errand, spawn, who), _size(held)
        if lost:
            _charge(lost, who, shares[0], job, store, progress)
        held = read_run(directory)
        if not lost and _size(held) == before:
            raise InvariantError(f"{who}: ended well, but took nothing of what is missing")
    return None


def _charge(reason: str, who: str, share: Share, job: Job, store: RunStore, progress: Progress) -> None:
    """Count a failure of the lost process's case; at no case, as many processes may be lost as a case has tries.

    Raises:
        ProcessEndedError: that many were lost, and samples are missing.
    """
    with RunStore(store.directory, store.hold()) as mended:  # drops the line that the process was writing
        held = mended.resume(job.resolved, job.digest)
        keeper = Recorder(mended, progress, job, held)
        if case_id := store.marked():
            keeper.keep(Failure(case_id=case_id, outcome="failed", reason=reason, part=share.part, process=share.process))
            return
        another = keeper.lose(share.part, share.process, reason)
        if share not in _unfinished(job, held):
            return
        if not another:
            raise ProcessEndedError(f"{who}: {reason}; {KEPT}")
        progress.note(f"{who}: {reason}; another one takes what is missing")


def _errand(job: Job, store: RunStore, share: Share) -> tuple[ChildTask, str]:
    """The task of a fresh process for a share, and its name in words."""
    part = job.part(share.part)
    who = f"part {share.part}, fresh process {share.process + 1} of {part.processes}"
    who += f", {part.tensor_parallel} sharing the model" if part.tensor_parallel > 1 else ""
    errand = ChildTask(
        scenario=Path(job.path),
        directory=store.directory,
        share=share,
        lent=store.hold(),
        deadline_s=job.scenario.deadline_s,
        ranks=part.tensor_parallel,
        options=job.options,
    )
    return errand, who


def _why_lost(errand: ChildTask, spawn: Spawner, who: str) -> str | None:
    """Run a fresh process on its share; returns why it was killed, or that it hung, or None.

    Raises:
        ProcessEndedError and its kind: it failed in another way.
    """
    try:
        status = spawn(errand)
    except HungError as error:
        return str(error)
    if was_killed(status):
        return f"its process was killed ({why_ended(status)})"
    if status != STATUS_AGAIN:  # else it recorded which case failed and could not continue
        expect_success(status, who)
    return None


def _unfinished(job: Job, held: Run) -> list[Share]:
    """The shares that lack samples, in order."""
    return list(dict.fromkeys(slot.share for slot in work_of(job, held).missing))


def _size(held: Run) -> tuple[int, int, int]:
    return len(held.samples), len(held.outcomes), len(held.events(ATTEMPT))
