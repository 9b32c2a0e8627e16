"""The samples of one part, decoded in order with its loaded model; between them the cost of its passes is measured."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

from harness.errors import CaseError, MissingExtraError, NotPossibleError
from harness.meters.environment import snapshot
from harness.record.identity import IDENTITY
from harness.record.schema import REMARK, SUPPRESSED_FIRST
from harness.runner.protocols import Engine, Machine
from harness.runner.recorder import Begun, Entry, Skipped
from harness.runner.sample_taking import TokenTexts, case_items, now, pass_columns, prompts_digest, take_sample
from harness.runner.work import Work
from harness.scenario.part import Part
from harness.scenario.plan import Case, Slot
from harness.scenario.servers import EngineName, engine_beside
from harness.workloads.loader import PromptItem, refuse_unfit

MEASURE_EVERY_S = 10.0
"""Seconds of decoding after which a timed part's passes may be measured again.

Memory and cores of a shared machine change differently, so the cost of a pass is measured between samples too.
"""
MEASURE_SHARE = 1 / 6
"""Limit of a measurement's kept decodes, as a share of the decoding since the last one; the warm-up adds half of it."""

MOST_SUPPRESSED_PCT = 1.0
"""A trained head that names the mask more often is not one that was trained with it, or has another mask."""


@dataclass
class Sampling:
    """Decodes the missing samples of one part with its engine, and measures the cost of passes between them."""

    _slots: Sequence[Slot]
    _engine: Engine
    _work: Work
    _machine: Machine

    def __post_init__(self) -> None:
        self._part = self._slots[0].case.part
        self._prompts: dict[tuple[str, str, int], Sequence[PromptItem]] = {}
        self._remarks: set[str | None] = {None}
        self._engines_beside: dict[str, Engine | CaseError] = {}

    def entries(self) -> Iterator[Entry]:
        """What the part runs on, then its samples between two measurements of its passes."""
        part, engine = self._part, self._engine
        runs_on = engine.fingerprint(part)
        yield self._event("engine") | runs_on
        why = runs_on.get("kernels_reason")
        if why and part.timed and part.device == "cpu" and part.execution == "auto" and not self._work.process:
            yield self._remark(f"forwards are eager, slower than by the kernels for CPUs: {why}")
        if engine.meters is not None:
            yield self._event("meters") | engine.meters
        yield self._event(IDENTITY) | {"prompts": prompts_digest(part, engine.tokenizer, engine.shape.vocab)}
        measured_s = yield from self._passes()
        yield from self._samples(measured_s)
        yield from self._passes()

    def _event(self, name: str) -> dict[str, object]:
        return self._work.event(name, self._part.name)

    def _remark(self, words: str) -> dict[str, object]:
        return self._event(REMARK) | {REMARK: words}

    def _passes(self) -> Generator[Entry, None, float]:
        """The cost of some passes of a timed part's model now, or why it is unknown; returns the kept decodes' seconds."""
        part, measured_s = self._part, 0.0
        if not part.timed:
            return measured_s
        yield Begun(case_id="", what="measuring passes")
        decodes: list[object] = []
        found = self._event("measured_passes") | {"decodes": decodes}
        try:
            for decoded in self._engine.measure_passes(part.block_sizes, part.measured_beside):
                measured_s += decoded.prefill_s + decoded.decode_s
                columns = pass_columns(decoded).model_dump(mode="json")
                decodes.append({"passes": columns, "decode_s": decoded.decode_s})
        except CaseError as error:
            found["reason"] = str(error)
        # An ex-ante price may use only passes that ended before the first sample began.
        yield found | {"ended_at": now()}
        return measured_s

    def _samples(self, measured_s: float) -> Iterator[Entry]:
        """``measured_s``: seconds of the decodes of the last pass measurement."""
        work, token_texts = self._work, TokenTexts(self._engine.tokenizer)
        decoded_s = 0.0  # since passes were measured
        for slot in self._slots:
            # 1. Ask the stopping rule, just before the sample.
            case = slot.case
            if not work.pace.needs(slot):
                yield Skipped(case_id=case.case_id)
                continue
            # 2. Decode, or leave the case out with its reason.
            yield from self._read_prompts(case)
            yield Begun(case_id=case.case_id, what="decoding")
            try:
                engine = yield from self._engine_of(case)
                sample = take_sample(slot, engine, [self._prompts[case.cell][i] for i in slot.prompt_range], work.node)
            except CaseError as error:
                yield work.failure(case, error)
                yield Skipped(case_id=case.case_id)
                continue
            work.pace.note(sample)
            yield sample
            # 3. Say what stands out in it.
            share = sample.meters.get(SUPPRESSED_FIRST, 0.0)
            if share >= MOST_SUPPRESSED_PCT and not work.process:
                yield self._remark(
                    f"{case.label}: the mask token, which no answer holds, was the first choice at {share:.3g} % of positions"
                )
            if texts := token_texts.new_in(sample):
                yield self._event("token_texts") | {"texts": texts}
            # 4. Measure passes again after enough decoding.
            decoded_s += (sample.prefill_s or 0.0) + (sample.decode_s or 0.0)
            if decoded_s >= max(MEASURE_EVERY_S, measured_s / MEASURE_SHARE):
                measured_s = yield from self._passes()
                decoded_s = 0.0

    def _read_prompts(self, case: Case) -> Iterator[Entry]:
        """Read the prompts of a cell once; a tokenizer's remark on them is told once a part."""
        if case.cell in self._prompts:
            return
        tokenizer, shape = self._engine.tokenizer, self._engine.shape
        items = self._prompts[case.cell] = case_items(case, tokenizer, shape.vocab)
        refuse_unfit(items, case.workload.max_new_tokens, shape.max_positions, shape.vocab)
        if tokenizer and case.workload.synthetic is None and not self._work.process:
            new = {tokenizer.remark(item.ids) for item in items} - self._remarks
            self._remarks |= new
            yield from (self._remark(words) for words in new if words)

    def _engine_of(self, case: Case) -> Generator[Entry, None, Engine]:
        """The engine of a case: our own, or one of others, started once for the part's longest request, on as many threads.

        Raises:
            CaseError: it is not installed, has no weights of this dtype, or does not start; nothing is tried twice.
        """
        if not case.is_check or case.arm.server is None:
            return self._engine
        name = next(engine for engine in self._part.engines_beside if engine == case.arm.server)
        if name not in self._engines_beside:
            part = self._beside(name)
            try:
                self._engines_beside[name] = opened = self._machine.open_engine(part)
                yield self._event("beside") | opened.fingerprint(part)
            except (CaseError, MissingExtraError) as error:
                self._engines_beside[name] = NotPossibleError(str(error))
        engine = self._engines_beside[name]
        if isinstance(engine, CaseError):
            raise engine
        return engine

    def _beside(self, name: EngineName) -> Part:
        """The part on an engine of others."""
        part, own = self._part, self._engine
        cases = {slot.case.cell: slot.case for slot in self._slots}.values()
        longest = max(len(item.ids) for case in cases for item in case_items(case, own.tokenizer, own.shape.vocab))
        threads, tokens = snapshot()["threads"]["torch"] or 1, longest + part.workload.max_new_tokens
        server = engine_beside(name, part.device, threads, max(part.batch_sizes), tokens)
        return part.model_copy(update={"servers": {name: server}})
