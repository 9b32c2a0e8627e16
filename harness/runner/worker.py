"""Takes the missing samples of a unit of a run: opens each part's model, decodes in order, yields all entries for the record.

It serves the process of `sbd run`, a fresh process and a cluster node. It writes nothing: the caller records an entry before it
asks for the next, so at most one decode is lost. A sample is one batch, graded after the clock has stopped. The first decodes
of every arm have their tokens spelt out, so a report shows them without a tokenizer.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from statistics import median
from typing import Any

from harness.errors import CaseError, DoesNotFitError, NoTokenError, NotPossibleError
from harness.meters.environment import snapshot
from harness.progress import Progress
from harness.record.identity import IDENTITY
from harness.record.schema import PassColumns, RowResult, RowTimes, Run, Sample
from harness.record.trace import ForwardPass, Generation
from harness.runner.divergence import DIVERGENCES, noting
from harness.runner.estimates import estimate_memory, what_would_fit
from harness.runner.protocols import Decoded, Engine, Machine
from harness.runner.recorder import Begun, Entry, Failure, Skipped
from harness.runner.stopping_rule import StoppingRule, missing_slots
from harness.scenario.plan import Case, Plan, Share, Slot
from harness.scenario.scenario import Part
from harness.workloads.loader import PromptItem, Tokenizer, prompt_items, refuse_too_long

SHOWN_GROUPS = 2
"""Per case, decodes of so many prompt groups have their tokens spelt out in the record."""


class TokenTexts:
    """Spells token ids, each once; with ``tokenizer`` None, none."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer
        self._known: set[int] = set()

    def new_in(self, sample: Sample) -> dict[str, str]:
        """Text by id (a string, as in JSON) of the tokens of ``sample`` not spelt yet; empty for later decodes.

        A special token has no text.
        """
        shown = sample.group < SHOWN_GROUPS and sample.repeat == 0 and sample.process == 0 and not sample.warmup
        if self._tokenizer is None or not shown:
            return {}
        new = sorted({token for row in sample.rows for token in row.ids} - self._known)
        self._known.update(new)
        return {str(token): self._tokenizer.decode([token]) for token in new}


def case_items(case: Case, tokenizer: Tokenizer | None, vocab: int) -> Sequence[PromptItem]:
    """The prompts of a case: those of its task, or made of them in the lengths of a trace.

    Raises:
        ScenarioError, MissingExtraError: see prompt_items and read_trace.
    """
    items = prompt_items(case.workload, case.task, case.part.seed, tokenizer, vocab)
    return items if case.load is None else case.load.items(items)


def take_sample(slot: Slot, engine: Engine, items: list[PromptItem], node: str | None = None) -> Sample:
    """Decode one batch, then grade it after the clock has stopped. ``node``: this node of a cluster."""
    case = slot.case
    seed = case.sample_seed(slot.group, slot.repeat)
    started_at = _now()
    load = os.getloadavg()[0]
    decoded = engine.decode(case, [item.ids for item in items], seed)
    ended_at = _now()
    timed = case.part.timed
    row_times = decoded.row_times if timed and decoded.row_times else [None] * len(items)
    return Sample(
        case_id=case.case_id,
        group=slot.group,
        repeat=slot.repeat,
        process=slot.process,
        warmup=slot.warmup,
        seed=seed,
        rows=[
            _row(decoded.generation, row, item, engine.tokenizer, case, times)
            for row, (item, times) in enumerate(zip(items, row_times, strict=True))
        ],
        passes=_told_passes(decoded, timed),
        prefill_s=decoded.prefill_s if timed else None,
        decode_s=decoded.decode_s if timed else None,
        started_at=started_at,
        ended_at=ended_at,
        node=node,
        load_1min=load,
        meters=decoded.readings.values if decoded.readings else {},
        meter_reasons=decoded.readings.reasons if decoded.readings else {},
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _row(
    generation: Generation, row: int, item: PromptItem, tokenizer: Tokenizer | None, case: Case, times: RowTimes | None
) -> RowResult:
    output = generation.output_ids[row]
    correct, reason = None, item.ungraded_reason
    if case.part.replayed:
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
        cluster=item.cluster,
        times=times,
    )


def _told_passes(decoded: Decoded, timed: bool) -> PassColumns | None:
    """None where a server does not tell them."""
    if not decoded.generation.passes:
        return None
    return pass_columns(decoded) if timed else pass_columns(decoded).untimed()


def pass_columns(decoded: Decoded) -> PassColumns:
    """Column by column; empty columns where a server does not tell its passes."""
    columns: dict[str, Any] = {name: [] for name, field in PassColumns.model_fields.items() if field.is_required()}
    for name in ForwardPass._fields:
        values = [getattr(one, name) for one in decoded.generation.passes]
        if any(v is not None for v in values):
            columns[name] = [list(v) if isinstance(v, tuple) else v for v in values]
    return PassColumns(**columns, forward_s=decoded.forward_s, sampler_s=decoded.sampler_s)


MEASURE_EVERY_S = 10.0
"""Seconds of decoding after which a timed part's passes may be measured again.

Memory and cores of a shared machine change differently, so the cost of a pass is measured between samples too.
"""
MEASURE_SHARE = 1 / 6
"""Limit of a measurement's kept decodes, as a share of the decoding since the last one; the warm-up adds half of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What to take, by the stopping rule: all samples, or a ``share``, with the rest left to ``later`` processes.

    ``node``: the node in a run over a cluster. ``planned``: all samples of the plan, with those that are there. ``known_s``:
    seconds of a sample by case, from those that are there.
    """

    missing: list[Slot]
    pace: StoppingRule
    share: Share | None = None
    later: tuple[Slot, ...] = ()
    planned: int | None = None
    node: str | None = None
    known_s: dict[str, float] = field(default_factory=dict)
    free_bytes: dict[str, int | None] = field(default_factory=dict)

    @property
    def process(self) -> int:
        """The process number of the samples."""
        return self.share.process if self.share else 0

    def event(self, name: str, part: str | None = None) -> dict[str, Any]:
        """The first fields of an entry about a part or about this whole process."""
        about = part or (self.share.part if self.share else None)
        found: dict[str, Any] = {"event": name} | ({"part": about} if about else {}) | {"process": self.process}
        return found | ({"node": self.node} if self.node else {})


def work_of(plan: Plan, held: Run, share: Share | None = None, node: str | None = None) -> Work:
    """The missing work of a run, or of a share."""
    pace = StoppingRule(plan, held)
    missing, planned, known_s = missing_slots(plan, held, pace), sum(1 for _ in plan.slots()), _seconds_of_samples(held)
    if share is None:
        return Work(missing=missing, pace=pace, planned=planned, known_s=known_s)
    behind: list[Share] = []
    if share.batch_size is None:  # fresh processes run one after the other, in the order of the plan
        order = list(dict.fromkeys(slot.share for slot in missing))
        behind = order[order.index(share) + 1 :] if share in order else []
    own = [slot for slot in missing if share.holds(slot)]
    later = tuple(slot for slot in missing if slot.share in behind)
    return Work(missing=own, pace=pace, share=share, later=later, planned=planned, node=node, known_s=known_s)


def _seconds_of_samples(held: Run) -> dict[str, float]:
    """Medians by case; warm-ups left out, which may compile."""
    found: dict[str, list[float]] = {}
    for one in held.samples:
        if not one.warmup and one.started_at and one.ended_at:
            took = datetime.fromisoformat(one.ended_at) - datetime.fromisoformat(one.started_at)
            found.setdefault(one.case_id, []).append(took.total_seconds())
    return {case_id: median(took) for case_id, took in found.items()}


def take(work: Work, machine: Machine, progress: Progress) -> Iterator[Entry]:
    """Take the missing samples part by part; one model is in memory at a time, shared by parts that can.

    The identities of all parts come before anything is loaded, so that whoever keeps the record can refuse them. That of a
    model that loading brought to this machine comes again.

    Raises:
        UserError and its kind: a model or a device is not usable.
    """
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
            if engine is None or loaded != part.engine:
                engine = None  # free it before the next one is loaded
                yield Begun(case_id=slots[0].case.case_id, what="loading the model")
                with progress.step(f"part {part.name}: loading the model"):
                    engine, loaded = machine.open_engine(part), part.engine
        except CaseError as error:
            for case in {slot.case.case_id: slot.case for slot in slots}.values():
                yield _failed(case, error, work)
            yield from (Skipped(case_id=slot.case.case_id) for slot in slots)
            continue
        if (found := machine.identity(part, environment)) != identities[part.name]:
            yield work.event(IDENTITY, part.name) | found
        if not part.servers or part.replayed:  # given drafts are written whether they are right or not
            yield from _taken_with(engine, slots, work)
            continue
        kept: list[Sample] = []
        yield from noting(_taken_with(engine, slots, work), kept)
        engine = None  # its servers make room for the weights
        yield work.event(DIVERGENCES, part.name) | machine.divergences(part, [slot.case for slot in slots], kept)
    yield snapshot() | work.event("end")


def _announce(work: Work, missing: Sequence[Slot], progress: Progress) -> None:
    """Tell how many samples there are, by the names of their arms, and how many models are to be opened for them."""
    cases = {slot.case.case_id: slot.case for slot in (*missing, *work.later)}
    parts, processes = {slot.case.part.name for slot in missing}, {slot.share for slot in work.later}
    progress.start(
        [slot.case.case_id for slot in missing], [slot.case.case_id for slot in work.later], planned=work.planned,
        starts=len(parts) + len(processes),
        names={name: f"{case.label}, {case.task}, batch {case.batch_size}" for name, case in cases.items()},
        known_s=work.known_s,
    )  # fmt: skip


def _taken_with(engine: Engine, slots: list[Slot], work: Work) -> Iterator[Entry]:
    part = slots[0].case.part
    yield work.event("engine", part.name) | engine.fingerprint(part)
    if engine.meters is not None:
        yield work.event("meters", part.name) | engine.meters
    measured_s = yield from _passes(part, engine, work)
    yield from _samples(slots, engine, work, measured_s)
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
        case_id=case.case_id, outcome=error.outcome, reason=reason, final=final,
        part=case.part.name, process=work.process, node=work.node,
    )  # fmt: skip


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
    yield found | {"ended_at": _now()}
    return measured_s


def _samples(slots: list[Slot], engine: Engine, work: Work, measured_s: float) -> Iterator[Entry]:
    """``measured_s``: seconds of the decodes of the last pass measurement."""
    items: dict[tuple[str, str, int], Sequence[PromptItem]] = {}
    token_texts = TokenTexts(engine.tokenizer)
    decoded_s = 0.0  # since passes were measured
    for slot in slots:
        case = slot.case
        if not work.pace.needs(slot):
            yield Skipped(case_id=case.case_id)
            continue
        if case.cell not in items:
            items[case.cell] = case_items(case, engine.tokenizer, engine.shape.vocab)
            refuse_too_long(items[case.cell], case.workload.max_new_tokens, engine.shape.max_positions)
        yield Begun(case_id=case.case_id, what="decoding")
        try:
            sample = take_sample(slot, engine, [items[case.cell][i] for i in slot.prompt_range], work.node)
        except CaseError as error:
            yield _failed(case, error, work)
            yield Skipped(case_id=case.case_id)
            continue
        work.pace.note(sample)
        yield sample
        if texts := token_texts.new_in(sample):
            yield work.event("token_texts", case.part.name) | {"texts": texts}
        decoded_s += (sample.prefill_s or 0.0) + (sample.decode_s or 0.0)
        if decoded_s >= max(MEASURE_EVERY_S, measured_s / MEASURE_SHARE):
            measured_s = yield from _passes(case.part, engine, work)
            decoded_s = 0.0
