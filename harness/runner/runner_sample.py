"""Makes a sample of the record: one batch decoded by the engine, graded after the clock has stopped."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

from harness.record.schema import PassColumns, RowResult, Sample
from harness.record.trace import ForwardPass, Generation
from harness.runner.protocols import Decoded, Engine
from harness.scenario.plan import Case, Slot
from harness.workloads.loader import PromptItem, Tokenizer


def take_sample(slot: Slot, engine: Engine, items: list[PromptItem], node: str | None = None) -> Sample:
    """Decode one batch and grade it; grading happens after the clock has stopped. ``node``: where this is, of a cluster."""
    case = slot.case
    seed = case.sample_seed(slot.group, slot.repeat)
    started_at = _now()
    load = os.getloadavg()[0]
    decoded = engine.decode(case, [item.ids for item in items], seed)
    ended_at = _now()
    timed = case.part.timed
    return Sample(
        case_id=case.case_id,
        group=slot.group,
        repeat=slot.repeat,
        process=slot.process,
        warmup=slot.warmup,
        seed=seed,
        rows=[_row(decoded.generation, row, item, engine.tokenizer, case) for row, item in enumerate(items)],
        passes=pass_columns(decoded) if timed else pass_columns(decoded).untimed(),
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
        cluster=item.cluster,
    )


def pass_columns(decoded: Decoded) -> PassColumns:
    columns: dict[str, Any] = {}
    for name in ForwardPass._fields:
        values = [getattr(one, name) for one in decoded.generation.passes]
        if any(v is not None for v in values):
            columns[name] = [list(v) if isinstance(v, tuple) else v for v in values]
    return PassColumns(**columns, forward_s=decoded.forward_s, sampler_s=decoded.sampler_s)
