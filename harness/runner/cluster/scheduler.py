"""A run over the nodes of a cluster: the missing samples unit by unit, each with exclusive room on a node.

A unit is what must stay on one device: all arms, tasks and repeats of one part and batch size, in one process. The cluster
decides node and time. This process asks for entries one by one and alone keeps them, so nothing is written twice. A unit that
is lost with its node or process continues where the record ends. Any ``Cluster`` of harness.runner.cluster.protocol serves;
Ray is harness.runner.cluster.ray_cluster.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.errors import ProcessEndedError, UserError
from harness.progress import Progress
from harness.record.schema import Run, RunHeader
from harness.record.store import RunStore, read_run
from harness.runner.cluster.protocol import START_S, STARTING, Cluster, LostError, NodeTask
from harness.runner.identity import source_digest
from harness.runner.job import Job
from harness.runner.recorder import Begun, Failure, Recorder
from harness.runner.subprocesses import KEPT
from harness.runner.work import work_of
from harness.scenario.plan import Share

CLOCK: Callable[[], float] = time.monotonic
LOOK_S = 0.5
"""Interval between checks of the units in flight while none answers."""
NO_NODE_S = 120.0
"""Time without a running unit after which a run gives up; an autoscaler may take minutes."""


@dataclass(slots=True, kw_only=True)
class _Flight:
    """A unit in flight. ``since_s``: when it was last asked; None before its first answer, as it may wait for its place."""

    share: Share
    unit: Any
    since_s: float | None = None
    begun: Begun | None = None
    node: str | None = None

    @property
    def starting(self) -> bool:
        """Whether it has a place and has not begun more."""
        return self.begun is not None and self.begun.what == STARTING


def spread(job: Job, out_dir: Path | None, cluster: Cluster, progress: Progress) -> Path:
    """Take all missing samples on the nodes of a cluster; returns the run directory, as harness.runner.runner.run does.

    Raises:
        UserError and its kind: the scenario cannot run there, or a node has other code or another model.
        StorageError: the disk refused; everything finished before is kept.
        ProcessEndedError: no node is left, or no node has what is needed.
    """
    order = NodeTask(
        scenario=job.resolved,
        path=str(job.path),
        digest=job.digest,
        code=source_digest(),
        share=None,
        held=None,
        options=job.options,
    )
    _refuse_what_nodes_cannot(job)
    directory = job.directory(out_dir)
    with RunStore(directory) as store:
        if not store.exists:
            store.create(_header(job, order, cluster, progress))
        else:
            progress.note(f"continuing {directory}")
        _Spread(job, store, cluster, progress, order).take_all()
        store.end()
    return directory


def _header(job: Job, order: NodeTask, cluster: Cluster, progress: Progress) -> RunHeader:
    part = job.scenario.parts[0]
    if (lacking := cluster.lacking(part)) is not None:
        progress.note(f"part {part.name}: waiting, for {lacking}")
    try:
        return cluster.header(order, part)
    except LostError as error:
        raise ProcessEndedError(f"the process that begins the run was lost ({error}); start the same command again") from error


def _refuse_what_nodes_cannot(job: Job) -> None:
    if any(case.arm.auto for case in job.plan.cases):
        raise UserError("auto chooses a width for one machine, and a cluster has several; give a number, or leave out --on ray")
    for part in job.scenario.parts:
        if part.tensor_parallel > 1:
            raise UserError(
                f"part {part.name}: tensor_parallel: a node of a cluster takes a unit with one process, and would not split "
                "the model; run this part without --on ray"
            )
        if part.device not in {"cpu", "cuda"}:
            raise UserError(f"part {part.name}: device {part.device}: a cluster numbers its GPUs itself; give device: cuda")


@dataclass
class _Spread:
    """One call of a run over a cluster."""

    _job: Job
    _store: RunStore
    _cluster: Cluster
    _progress: Progress
    _order: NodeTask

    def __post_init__(self) -> None:
        self._held = self._store.resume(self._job.resolved, self._job.digest)
        self._keeper = Recorder(self._store, self._progress, self._job, self._held)
        self._flights: dict[Any, _Flight] = {}
        self._waiting: deque[Share] = deque()
        self._idle_since_s: float | None = None
        self._unbegun: Counter[Share] = Counter()

    def take_all(self) -> None:
        """Run until nothing is missing that may still be tried."""
        work = work_of(self._job, self._held)
        missing = work.missing
        self._progress.start([slot.case.case_id for slot in missing], planned=work.planned)
        self._waiting.extend(dict.fromkeys(slot.unit for slot in missing))
        try:
            while self._waiting or self._flights:
                self._launch()
                for asked in self._cluster.ready(list(self._flights), LOOK_S):
                    self._next(asked)
                self._end_hung()
                self._expect_some_room()
        finally:
            for flight in self._flights.values():
                self._cluster.end(flight.unit)

    def _launch(self) -> None:
        while self._waiting and len(self._flights) < self._cluster.room():
            share = self._waiting.popleft()
            order = replace(self._order, share=share, held=_of_unit(self._held, share), here=self._begun_on(share))
            unit = self._cluster.start(order, self._job.part(share.part))
            self._flights[self._cluster.ask(unit)] = _Flight(share=share, unit=unit)

    def _next(self, asked: Any) -> None:
        """Keep a unit's answer and ask for the next."""
        flight = self._flights.pop(asked)
        try:
            entry = self._cluster.answer(asked)
        except LostError as error:
            self._lost(flight, str(error))
            return
        except BaseException:
            self._flights[asked] = flight  # end it with the others
            raise
        if entry is None:
            self._cluster.end(flight.unit)
            if self._keeper.again:
                self._take_up_again(flight.share)
            return
        if isinstance(entry, Begun):
            flight.begun = entry
        else:
            if isinstance(entry, dict):
                flight.begun = None  # it has started, and is at no case
                flight.node = str(entry["node"]) if entry.get("node") else flight.node
            self._keeper.keep(entry)
        flight.since_s = CLOCK()
        self._flights[self._cluster.ask(flight.unit)] = flight

    def _lost(self, flight: _Flight, reason: str) -> None:
        """Count a failure of the unit's case; the rest of the unit is taken up again.

        Raises:
            ProcessEndedError: no process for the unit could start, as often as a case may be tried.
        """
        self._cluster.end(flight.unit)
        if flight.since_s is None or flight.starting:
            self._unbegun[flight.share] += 1
            if self._unbegun[flight.share] >= self._job.scenario.attempts:
                raise ProcessEndedError(f"{flight.share}: {reason}; {KEPT}")
            self._waiting.append(flight.share)
            return
        held = read_run(self._store.directory)
        missing = [slot for slot in work_of(self._job, held).missing if flight.share.holds(slot)]
        if missing:
            begun = flight.begun
            case_id = begun.case_id if begun and begun.case_id else missing[0].case.case_id
            doing = f"{begun.what}: " if begun else ""
            self._keeper.keep(
                Failure(
                    case_id=case_id,
                    outcome="failed",
                    reason=f"{doing}{reason}",
                    part=flight.share.part,
                    process=flight.share.process,
                    node=flight.node,
                )
            )
        self._take_up_again(flight.share)

    def _take_up_again(self, share: Share) -> None:
        """Put a unit that lacks samples and may try again after the others."""
        self._held = read_run(self._store.directory)
        own = {slot.case.case_id for slot in work_of(self._job, self._held).missing if share.holds(slot)}
        self._keeper.again -= own
        if own:
            self._waiting.append(share)

    def _end_hung(self) -> None:
        limit_s, now_s = self._job.scenario.deadline_s, CLOCK()
        if limit_s is None:
            return
        for asked, flight in list(self._flights.items()):
            allowed_s = max(limit_s, START_S) if flight.starting else limit_s
            if flight.since_s is not None and now_s - flight.since_s > allowed_s:
                del self._flights[asked]
                self._lost(flight, f"nothing came for {allowed_s:g} s (deadline_s), so its process was ended")

    def _expect_some_room(self) -> None:
        """Give up where nothing runs for long; a unit may wait for a node that does not exist."""
        if not self._flights or any(flight.since_s is not None for flight in self._flights.values()):
            self._idle_since_s = None
            return
        if self._idle_since_s is None:
            self._idle_since_s = CLOCK()
            return
        flight = next(iter(self._flights.values()))
        if CLOCK() - self._idle_since_s > NO_NODE_S:
            lacking = self._cluster.lacking(self._job.part(flight.share.part)) or "a node that others have taken"
            raise ProcessEndedError(
                f"{flight.share}: waited {NO_NODE_S:g} s for {lacking}; finished samples are kept: start such a node, then the "
                "same command"
            )

    def _begun_on(self, share: Share) -> str | None:
        """The node of the unit's last sample, so that its pairs stay on one machine while that exists."""
        size = {case.case_id: case.batch_size for case in self._held.header.cases if case.part == share.part}
        nodes = (
            sample.node
            for sample in reversed(self._held.samples)
            if size.get(sample.case_id) == share.batch_size and sample.process == share.process
        )
        return next(nodes, None)


def _of_unit(held: Run, share: Share) -> Run:
    """The part of a record that a unit continues: its samples and outcomes, without sessions."""
    own = {case.case_id for case in held.header.cases if (case.part, case.batch_size) == (share.part, share.batch_size)}
    samples = [one for one in held.samples if one.case_id in own and one.process == share.process]
    outcomes = [one for one in held.outcomes if one.case_id in own]
    return held.model_copy(update={"samples": samples, "outcomes": outcomes, "sessions": []})
