"""Takes one sample: a batch is decoded, and graded after the clock has stopped.

The first decodes of every arm have their tokens spelt out, so a report shows them without a tokenizer.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from harness.record.decode import Decoded
from harness.record.schema import PassColumns, RowResult, RowTimes, Sample
from harness.record.trace import ForwardPass, Generation
from harness.runner.protocols import Engine
from harness.scenario.part import Part
from harness.scenario.plan import Case, Slot
from harness.workloads.loader import PromptItem, Tokenizer, prompt_items

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
    """The prompts of a case in all its processes: those of its task, or made of them in the lengths of a trace.

    Raises:
        ScenarioError, MissingExtraError: see prompt_items and read_trace.
    """
    every = case.workload.model_copy(update={"prompts": case.prompts_drawn})
    items = prompt_items(every, case.task, case.part.seed, tokenizer, vocab)
    return items if case.load is None else case.load.items(items)


def prompts_digest(part: Part, tokenizer: Tokenizer | None, vocab: int) -> str:
    """SHA-256 over the token ids of the prompts of all tasks of a part. Raises as prompt_items does."""
    work = part.workload
    drawn = [one.ids for task in work.task_names for one in prompt_items(work, task, part.seed, tokenizer, vocab)]
    return hashlib.sha256(repr(drawn).encode()).hexdigest()


def prompt_digest(part: Part, item: PromptItem) -> str:
    """As a row of a sample has it: of the part's name and the prompt's token ids."""
    return hashlib.sha256(f"{part.name} {item.ids}".encode()).hexdigest()[:16]


def take_sample(slot: Slot, engine: Engine, items: list[PromptItem], node: str | None) -> Sample:
    """Decode one batch, then grade it after the clock has stopped. ``node``: this node of a cluster."""
    case, seed = slot.case, slot.seed
    load = os.getloadavg()[0]
    started_at, started_clock_s = now(), time.monotonic()
    decoded = engine.decode(case, [item.ids for item in items], seed)
    ended_at, ended_clock_s = now(), time.monotonic()
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
        passes=pass_columns(decoded, timed) if decoded.generation.passes else None,  # None: a server does not tell them
        prefill_s=decoded.prefill_s if timed else None,
        decode_s=decoded.decode_s if timed else None,
        started_at=started_at,
        ended_at=ended_at,
        started_clock_s=started_clock_s,
        ended_clock_s=ended_clock_s,
        node=node,
        load_1min=load,
        meters=decoded.readings.values if decoded.readings else {},
        meter_reasons=decoded.readings.reasons if decoded.readings else {},
    )


def now() -> str:
    """As a record has it: UTC, milliseconds."""
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
        prompt_digest=prompt_digest(case.part, item),
        times=times,
    )


def pass_columns(decoded: Decoded, timed: bool = True) -> PassColumns:
    """Column by column; empty columns where a server does not tell its passes."""
    columns: dict[str, Any] = {name: [] for name, field in PassColumns.model_fields.items() if field.is_required()}
    for name in ForwardPass._fields:
        values = [getattr(one, name) for one in decoded.generation.passes]
        if any(v is not None for v in values):
            columns[name] = [list(v) if isinstance(v, tuple) else v for v in values]
    found = PassColumns(**columns, forward_s=decoded.forward_s, sampler_s=decoded.sampler_s)
    return found if timed else found.untimed()
