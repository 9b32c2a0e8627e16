"""What an inference server's speculation accepted, pass by pass, to be replayed as the checks of verified SBD in our engine.

It comes from a served run of this program, or from a file of vLLM's answers with their ``per_step_accepted``. A pass without a
draft accepted nothing. So a replay makes as many tokens a pass as the server did, whatever its drafts' lengths were. How the
server made its drafts is not replayed: in our engine the model drafts them itself, in one pass.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.config_file import read_text
from harness.errors import RecordError
from harness.record.schema import Run
from harness.record.trace import PassColumns

SERVED = "served"
"""The method of an arm that a server decodes."""
WANTED = "metrics.speculative_decoding.per_step_accepted and usage.completion_tokens"
Accepted = tuple[int, bool]
"""Drafts that one decode pass accepted, and whether the answer's end cut it, so that more is unknown."""


def accepted_in_run(run: Run, label: str | None = None) -> Iterator[Accepted]:
    """Of every row of the run's served samples with an acceptance of their own; with ``label``, of that arm alone.

    A sample whose ways of counting the passes disagree is left out.
    """
    arms = {
        case.case_id
        for case in run.header.cases
        if case.arm.method == SERVED and case.replayed is None and label in (None, case.label)
    }
    for sample in run.samples:
        if sample.case_id in arms and not sample.warmup and not sample.meters.get("served_ways_disagree"):
            for row in range(len(sample.rows)):
                yield from accepted_of_row(sample.passes, row)


def accepted_of_row(passes: PassColumns, row: int) -> Iterator[Accepted]:
    """Of every decode pass that checks: its tokens, less the one that is the model's own. The last one is cut."""
    final = [
        tokens[row]
        for role, tokens, active in zip(passes.role, passes.final_tokens, passes.active, strict=True)
        if role in ("verify", "decide") and active[row]
    ]
    for place, tokens in enumerate(final, start=1):
        yield tokens - 1, place == len(final)


def accepted_in_file(file: Path) -> Iterator[Accepted]:
    """Of every answer of vLLM in a file: one JSON object a line, or one in all. vLLM counts what lies behind an answer's end.

    Raises:
        RecordError: a line is no answer, or lacks what is needed.
    """
    text = read_text(file, "answers of vLLM", RecordError)
    try:
        answers = [json.loads(text)]
    except ValueError:
        answers = [_line(file, number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    for number, answer in enumerate(answers, start=1):
        for accepted in _accepted(answer, f"{file}: answer {number}"):
            yield accepted, False


def _line(file: Path, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise RecordError(f"{file}:{number}: is no JSON ({error}); give one answer of vLLM a line") from error


def _accepted(answer: Any, where: str) -> tuple[int, ...]:
    """Its listed passes, and those without a draft, which vLLM does not list: the other decode tokens, one a pass."""
    try:
        listed = [int(one) for one in answer["metrics"]["speculative_decoding"]["per_step_accepted"]]
        decoded = int(answer["usage"]["completion_tokens"]) - 1  # the prompt gave the first
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(
            f"{where}: lacks {WANTED}; ask vLLM with --enable-per-request-metrics --per-request-spec-decode-metrics detailed"
        ) from error
    return (*listed, *(0,) * max(0, decoded - sum(one + 1 for one in listed)))


def known_labels(run: Run) -> str:
    """The labels of the served arms of a run, for a message."""
    labels = dict.fromkeys(case.label for case in run.header.cases if case.arm.method == SERVED)
    return ", ".join(map(repr, labels)) or "none"
