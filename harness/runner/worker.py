"""Takes the missing samples of a unit of a run: opens each part's model, decodes in order, yields all entries for the record.

``take`` is the whole walk: a ModelInMemory holds the model, harness.runner.sampling decodes a part's samples with it. It
serves the process of `sbd run`, a fresh process and a cluster node. It writes nothing: the caller records an entry before it
asks for the next, so at most one decode is lost.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from harness.errors import CaseError, DoesNotFitError
from harness.meters.environment import snapshot
from harness.progress import Progress
from harness.record.by_machine import CEILINGS
from harness.record.identity import IDENTITY
from harness.record.kept_engines import kept
from harness.record.schema import REMARK, Sample
from harness.runner.divergence import DIVERGENCES
from harness.runner.estimates import estimate_memory
from harness.runner.protocols import Engine, Machine
from harness.runner.recorder import Begun, Entry, Failure, Skipped
from harness.runner.sampling import Sampling
from harness.runner.work import Work
from harness.scenario.part import Part
from harness.scenario.plan import Case, Slot


def take(work: Work, machine: Machine, progress: Progress) -> Iterator[Entry]:
    """Take the missing samples part by part.

    Raises:
        UserError and its kind: a model or a device is not usable.
    """
    machine.date(work.begun_at)
    environment = snapshot()
    yield {**environment, **work.event("start"), "pid": os.getpid()}

    # 1. Leave out what cannot fit: a host may kill a process that asks for too much memory.
    failures = list(_that_cannot_fit(work, machine))
    yield from failures
    left_out = {failure.case_id for failure in failures}
    missing = [slot for slot in work.missing if slot.case.case_id not in left_out]
    _announce(work, missing, progress)

    # 2. Say what every part is measured with before anything is loaded, so that whoever keeps the record can refuse it.
    parts = {slot.case.part.name: slot.case.part for slot in missing}
    identities = {name: machine.identity(part, environment) for name, part in parts.items()}
    yield from (work.event(IDENTITY, name) | identity for name, identity in identities.items())

    # 3. Load each part's model and take its samples.
    loader = ModelInMemory(work, machine, progress)
    for name, of_part in groupby(missing, key=lambda slot: slot.case.part.name):
        part, slots = parts[name], list(of_part)
        try:
            yield from loader.load(slots[0].case)
        except CaseError as error:
            yield from _failures(slots, error, work)
            continue
        identity = machine.identity(part, environment)
        if identity != identities[name]:  # of a model that loading brought to this machine
            yield work.event(IDENTITY, name) | identity
        yield from _known_of_engines(part, identity, work)
        samples: list[Sample] = []
        for entry in Sampling(slots, loader.loaded, work, machine).entries():
            if part.servers and isinstance(entry, Sample) and not entry.warmup:
                samples.append(entry)
            yield entry
        if part.servers and not part.replayed:  # given drafts are written whether they are right or not
            loader.free()  # the servers make room for the weights
            yield work.event(DIVERGENCES, name) | machine.divergences(part, [slot.case for slot in slots], samples)

    yield {**snapshot(), **work.event("end")}


def _announce(work: Work, missing: Sequence[Slot], progress: Progress) -> None:
    """Tell how many samples there are, by the names of their arms, and how many models are to be opened for them."""
    cases = {slot.case.case_id: slot.case for slot in (*missing, *work.later)}
    parts, processes = {slot.case.part.name for slot in missing}, {slot.share for slot in work.later}
    progress.start(
        [slot.case.case_id for slot in missing],
        [slot.case.case_id for slot in work.later],
        planned=work.planned,
        starts=len(parts) + len(processes),
        names={name: f"{case.label}, {case.task}, batch {case.batch_size}" for name, case in cases.items()},
        known_s=work.known_s,
    )


def _known_of_engines(part: Part, identity: Mapping[str, object], work: Work) -> Iterator[Entry]:
    """What an earlier run found of NTP beside the engines of others, where this one asks none."""
    asks = part.timed and part.has_ntp and part.takes_engines and not part.engines_beside and not work.process
    if asks and (known := kept(identity, part.dtype, part.threads)):
        yield work.event(REMARK, part.name) | {REMARK: known}


def _that_cannot_fit(work: Work, machine: Machine) -> Iterator[Failure]:
    for case in {slot.case.case_id: slot.case for slot in work.missing}.values():
        estimate, _ = estimate_memory(case)
        if case.part.name not in work.free_bytes:
            work.free_bytes[case.part.name] = machine.free_bytes(case.part)
        free = work.free_bytes[case.part.name]
        if estimate is not None and free is not None and estimate.total_bytes > free:
            needed, there = estimate.total_bytes / 1e9, free / 1e9
            error = DoesNotFitError(f"needs {needed:.1f} GB at least, {there:.1f} GB are free on {case.part.device}")
            yield work.failure(case, error, final=True)  # a second try would fail too


def _failures(slots: Sequence[Slot], error: CaseError, work: Work) -> Iterator[Entry]:
    """Those of all cases of a part whose model cannot be loaded."""
    for case in {slot.case.case_id: slot.case for slot in slots}.values():
        yield work.failure(case, error)
    yield from (Skipped(case_id=slot.case.case_id) for slot in slots)


@dataclass
class ModelInMemory:
    """The model in memory: one at a time, shared by consecutive parts of equal settings."""

    _work: Work
    _machine: Machine
    _progress: Progress
    _engine: Engine | None = None
    _settings: dict[str, object] | None = None

    @property
    def loaded(self) -> Engine:
        """The engine of the part that ``load`` was asked for last."""
        assert self._engine is not None
        return self._engine

    def load(self, case: Case) -> Iterator[Entry]:
        """Load the model of a case's part, unless it is there.

        Raises:
            CaseError: it does not fit, or cannot be had.
        """
        part = case.part
        if self._settings != part.engine:
            self.free()  # before the next one is loaded
            self._settings = part.engine
        yield from self._calibrated(case)
        if self._engine is None:
            yield Begun(case_id=case.case_id, what="loading the model")
            with self._progress.step(f"part {part.name}: loading the model"):
                self._engine = self._machine.open_engine(part)

    def free(self) -> None:
        """Forget the model; nobody else holds it between two parts."""
        self._engine = None

    def _calibrated(self, case: Case) -> Iterator[Entry]:
        """What the machine reaches for a timed part, unless the record has it; beside no other model, whose memory it needs."""
        part, known = case.part, self._work.calibrations
        if not part.timed or {part.name, "read_bandwidth"} & known.keys():  # old records have one for all parts
            return
        yield Begun(case_id="", what="calibrating")
        shape = case.shape or self._machine.shape(part)
        calibration = self._machine.calibrate(part, shape, self._progress, [*known.values()])
        if calibration is not None:
            known[part.name] = calibration
            yield self._work.event(CEILINGS, part.name) | {"calibration": calibration}
