"""Takes the missing samples of a unit of a run: opens each part's model, decodes in order, yields all entries for the record.

It serves the process of `sbd run`, a fresh process and a cluster node. It writes nothing: the caller records an entry before it
asks for the next, so at most one decode is lost.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from itertools import groupby
from typing import Any

from harness.errors import CaseError, DoesNotFitError, MissingExtraError, NoTokenError, NotPossibleError
from harness.meters.environment import snapshot
from harness.progress import Progress
from harness.record.by_machine import CEILINGS
from harness.record.identity import IDENTITY
from harness.record.kept_engines import kept
from harness.record.schema import REMARK, SUPPRESSED_FIRST, Sample
from harness.runner.divergence import DIVERGENCES, noting
from harness.runner.estimates import estimate_memory, what_would_fit
from harness.runner.protocols import Engine, Machine
from harness.runner.recorder import Begun, Entry, Failure, Skipped
from harness.runner.sample_taking import TokenTexts, case_items, now, pass_columns, prompts_digest, take_sample
from harness.runner.work import Work
from harness.scenario.part import Part
from harness.scenario.plan import Case, Slot
from harness.scenario.servers import engine_beside
from harness.workloads.loader import PromptItem, refuse_unfit

MEASURE_EVERY_S = 10.0
"""Seconds of decoding after which a timed part's passes may be measured again.

Memory and cores of a shared machine change differently, so the cost of a pass is measured between samples too.
"""
MEASURE_SHARE = 1 / 6
"""Limit of a measurement's kept decodes, as a share of the decoding since the last one; the warm-up adds half of it."""

MOST_SUPPRESSED_PCT = 1.0
"""A trained head that names the mask more often is not one that was trained with it, or has another mask."""


def take(work: Work, machine: Machine, progress: Progress) -> Iterator[Entry]:
    """Take the missing samples part by part; one model is in memory at a time, shared by parts that can.

    The identities of all parts come before anything is loaded, so that whoever keeps the record can refuse them. That of a
    model that loading brought to this machine comes again.

    Raises:
        UserError and its kind: a model or a device is not usable.
    """
    machine.date(work.begun_at)
    environment = snapshot()
    yield environment | work.event("start") | {"pid": os.getpid()}
    refused = list(_that_cannot_fit(work, machine))
    yield from refused
    left_out = {failure.case_id for failure in refused}
    missing = [slot for slot in work.missing if slot.case.case_id not in left_out]
    _announce(work, missing, progress)
    parts = {slot.case.part.name: slot.case.part for slot in missing}
    identities = {name: machine.identity(part, environment) for name, part in parts.items()}
    yield from (work.event(IDENTITY, name) | found for name, found in identities.items())
    engine: Engine | None = None
    loaded: dict[str, Any] | None = None
    for _, of_part in groupby(missing, key=lambda slot: slot.case.part.name):
        slots = list(of_part)
        part = slots[0].case.part
        try:
            if loaded != part.engine:
                engine, loaded = None, part.engine  # free it before the next one is loaded
            yield from _calibrated(slots[0].case, work, machine, progress)
            if engine is None:
                yield Begun(case_id=slots[0].case.case_id, what="loading the model")
                with progress.step(f"part {part.name}: loading the model"):
                    engine = machine.open_engine(part)
        except CaseError as error:
            for case in {slot.case.case_id: slot.case for slot in slots}.values():
                yield _failed(case, error, work)
            yield from (Skipped(case_id=slot.case.case_id) for slot in slots)
            continue
        if (found := machine.identity(part, environment)) != identities[part.name]:
            yield work.event(IDENTITY, part.name) | found
        yield from _known_of_engines(part, found, work)
        if not part.servers or part.replayed:  # given drafts are written whether they are right or not
            yield from _taken_with(engine, slots, work, machine)
            continue
        told: list[Sample] = []
        yield from noting(_taken_with(engine, slots, work, machine), told)
        engine = None  # its servers make room for the weights
        yield work.event(DIVERGENCES, part.name) | machine.divergences(part, [slot.case for slot in slots], told)
    yield snapshot() | work.event("end")


def _calibrated(case: Case, work: Work, machine: Machine, progress: Progress) -> Iterator[Entry]:
    """What the machine reaches for a timed part, unless the record has it; beside no other model, whose memory it may need."""
    part, known = case.part, work.calibrations
    if not part.timed or {part.name, "read_bandwidth"} & known.keys():  # old records have one for all parts
        return
    yield Begun(case_id="", what="calibrating")
    found = machine.calibrate(part, case.shape or machine.shape(part), progress, [*known.values()])
    if found is not None:
        known[part.name] = found
        yield work.event(CEILINGS, part.name) | {"calibration": found}


def _known_of_engines(part: Part, identity: dict[str, Any], work: Work) -> Iterator[Entry]:
    """What an earlier run found of NTP beside the engines of others, where this one asks none."""
    asks = part.timed and part.has_ntp and part.takes_engines and not part.engines_beside and not work.process
    if asks and (known := kept(identity, part.dtype, part.threads)):
        yield work.event(REMARK, part.name) | {REMARK: known}


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


def _taken_with(engine: Engine, slots: list[Slot], work: Work, machine: Machine) -> Iterator[Entry]:
    part = slots[0].case.part
    found = engine.fingerprint(part)
    yield work.event("engine", part.name) | found
    why = found.get("kernels_reason")
    if why and part.timed and part.device == "cpu" and part.execution == "auto" and not work.process:
        yield work.event(REMARK, part.name) | {REMARK: f"forwards are eager, slower than by the kernels for CPUs: {why}"}
    if engine.meters is not None:
        yield work.event("meters", part.name) | engine.meters
    yield work.event(IDENTITY, part.name) | {"prompts": prompts_digest(part, engine.tokenizer, engine.shape.vocab)}
    measured_s = yield from _passes(part, engine, work)
    yield from _samples(slots, engine, work, machine, measured_s)
    yield from _passes(part, engine, work)


def _that_cannot_fit(work: Work, machine: Machine) -> Iterator[Failure]:
    """The cases that cannot fit, checked first, because a host may kill a process that asks for too much memory."""
    for case in {slot.case.case_id: slot.case for slot in work.missing}.values():
        estimate, _ = estimate_memory(case)
        if case.part.name not in work.free_bytes:
            work.free_bytes[case.part.name] = machine.free_bytes(case.part)
        free = work.free_bytes[case.part.name]
        if estimate is not None and free is not None and estimate.total_bytes > free:
            needed, there = estimate.total_bytes / 1e9, free / 1e9
            error = DoesNotFitError(f"needs {needed:.1f} GB at least, {there:.1f} GB are free on {case.part.device}")
            yield _failed(case, error, work, final=True)  # a second try would fail too


def _failed(case: Case, error: CaseError, work: Work, final: bool = False) -> Failure:
    """The failure of a case that could not run now."""
    work.pace.leave_out(case.case_id)
    reason = str(error)
    if isinstance(error, DoesNotFitError):
        reason += what_would_fit(case, work.free_bytes.get(case.part.name))
    final = final or isinstance(error, NotPossibleError | NoTokenError)  # a second try would fail too
    return Failure(
        case_id=case.case_id,
        outcome=error.outcome,
        reason=reason,
        final=final,
        part=case.part.name,
        process=work.process,
        node=work.node,
    )


def _passes(part: Part, engine: Engine, work: Work) -> Generator[Entry, None, float]:
    """The cost of some passes of a timed part's model now, or why it is unknown; returns the seconds of the kept decodes."""
    if not part.timed:
        return 0.0
    measured_s = 0.0
    yield Begun(case_id="", what="measuring passes")
    found: dict[str, Any] = work.event("measured_passes", part.name) | {"decodes": []}
    try:
        for one in engine.measure_passes(part.block_sizes, part.measured_beside):
            measured_s += one.prefill_s + one.decode_s
            found["decodes"].append({"passes": pass_columns(one).model_dump(mode="json"), "decode_s": one.decode_s})
    except CaseError as error:
        found["reason"] = str(error)
    # An ex-ante price may use only passes that ended before the first sample began.
    yield found | {"ended_at": now()}
    return measured_s


def _engine_of(
    case: Case, own: Engine, others: dict[str, Engine | CaseError], slots: list[Slot], work: Work, machine: Machine
) -> Generator[Entry, None, Engine]:
    """The engine of a case: our own, or one of others, started once for the part's longest request, on as many threads.

    Raises:
        CaseError: it is not installed, has no weights of this dtype, or does not start; nothing is tried twice.
    """
    if not case.is_check or "server" not in case.arm:
        return own
    name, part = case.arm["server"], case.part
    if name not in others:
        cases = {slot.case.cell: slot.case for slot in slots}.values()
        longest = max(len(item.ids) for one in cases for item in case_items(one, own.tokenizer, own.shape.vocab))
        threads, tokens = snapshot()["threads"]["torch"] or 1, longest + part.workload.max_new_tokens
        server = engine_beside(name, part.device, threads, max(part.batch_sizes), tokens)
        part = part.model_copy(update={"servers": {name: server}})
        try:
            others[name] = opened = machine.open_engine(part)
            yield work.event("beside", part.name) | opened.fingerprint(part)
        except (CaseError, MissingExtraError) as error:
            others[name] = NotPossibleError(str(error))
    found = others[name]
    if isinstance(found, CaseError):
        raise found
    return found


def _samples(slots: list[Slot], engine: Engine, work: Work, machine: Machine, measured_s: float) -> Iterator[Entry]:
    """``measured_s``: seconds of the decodes of the last pass measurement."""
    items: dict[tuple[str, str, int], Sequence[PromptItem]] = {}
    token_texts = TokenTexts(engine.tokenizer)
    decoded_s = 0.0  # since passes were measured
    remarked: set[str | None] = {None}
    others: dict[str, Engine | CaseError] = {}
    for slot in slots:
        case = slot.case
        if not work.pace.needs(slot):
            yield Skipped(case_id=case.case_id)
            continue
        if case.cell not in items:
            items[case.cell] = case_items(case, engine.tokenizer, engine.shape.vocab)
            refuse_unfit(items[case.cell], case.workload.max_new_tokens, engine.shape.max_positions, engine.shape.vocab)
            if engine.tokenizer and case.workload.synthetic is None and not work.process:
                found = {engine.tokenizer.remark(item.ids) for item in items[case.cell]} - remarked
                remarked |= found
                yield from (work.event(REMARK, case.part.name) | {REMARK: one} for one in found)
        yield Begun(case_id=case.case_id, what="decoding")
        try:
            decoding = yield from _engine_of(case, engine, others, slots, work, machine)
            sample = take_sample(slot, decoding, [items[case.cell][i] for i in slot.prompt_range], work.node)
        except CaseError as error:
            yield _failed(case, error, work)
            yield Skipped(case_id=case.case_id)
            continue
        work.pace.note(sample)
        yield sample
        if (share := sample.meters.get(SUPPRESSED_FIRST, 0.0)) >= MOST_SUPPRESSED_PCT and not work.process:
            words = f"{case.label}: the mask token, which no answer holds, was the first choice at {share:.3g} % of positions"
            yield work.event(REMARK, case.part.name) | {REMARK: words}
        if texts := token_texts.new_in(sample):
            yield work.event("token_texts", case.part.name) | {"texts": texts}
        decoded_s += (sample.prefill_s or 0.0) + (sample.decode_s or 0.0)
        if decoded_s >= max(MEASURE_EVERY_S, measured_s / MEASURE_SHARE):
            measured_s = yield from _passes(case.part, engine, work)
            decoded_s = 0.0
