"""A trace of requests: when each one came, how long its prompt was, how long its answer. In the two forms that the field uses:

    .jsonl  Mooncake's: {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}, in milliseconds
    .csv    Azure's: TIMESTAMP,ContextTokens,GeneratedTokens, then 2023-11-16 18:17:03.9799600,4808,10

A trace has lengths and no text. Its prompts are made of other prompts (``of_lengths``). ``hash_ids``, which say what prompts
share, are read and not used: no server here finds a prompt in a cache.
Sources: github.com/kvcache-ai/Mooncake (FAST25 traces), github.com/Azure/AzurePublicDataset (AzureLLMInferenceDataset2023.md).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from io import StringIO
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from harness.config_file import NonNegative, StrictModel, read_text
from harness.errors import ScenarioError, first_mistake
from harness.frozen import frozen
from harness.workloads.loader import PromptItem

AZURE_HEAD = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MOST_BYTES = 16 << 20
"""Of a trace: some 500,000 requests."""
csv.field_size_limit(MOST_BYTES)  # a longer field is an error that names no line
CUT = "prompt and answer are cut to the lengths of a trace"
Length = Annotated[int, Field(strict=True, ge=1, le=1 << 24)]


@frozen
class TracedRequest:
    """One line of a trace. ``after_s``: since the first request; ``line``: its number in the file, from 1."""

    after_s: float
    prompt_tokens: int
    output_tokens: int
    line: int


class TraceLine(StrictModel):
    """One request, by the keys of Mooncake's form. ``timestamp``: in the unit of its form, since any moment."""

    timestamp: NonNegative
    input_length: Length
    output_length: Length
    hash_ids: tuple[int, ...] = ()


def read_trace(file: Path, most: int | None = None) -> tuple[TracedRequest, ...]:
    """The first ``most`` requests of a trace, or all; blank lines are skipped.

    Raises:
        ScenarioError: the file cannot be read, has another form, no request or fewer than ``most``; or a line is wrong (named
            as ``file:line``), such as one that comes before the line above it.
    """
    if file.suffix not in FORMS:
        raise ScenarioError(f"{file}: a trace ends in {' or '.join(FORMS)} (Mooncake's or Azure's form); rename or convert it")
    values_of, per_s = FORMS[file.suffix]
    text = StringIO(read_text(file, "trace", most_bytes=MOST_BYTES), newline="")
    lines = [(number, _line(file, number, values)) for number, values in islice(values_of(file, text), most)]
    if len(lines) < (most or 1):
        raise ScenarioError(f"{file}: has {len(lines)} requests, {most or 'at least 1'} are asked for; ask for fewer")
    for (_, before), (number, line) in pairwise(lines):
        if line.timestamp < before.timestamp:
            raise ScenarioError(f"{file}:{number}: comes before the line above it; sort the trace by time")
    return tuple(
        TracedRequest(
            after_s=line.timestamp / per_s - lines[0][1].timestamp / per_s,
            prompt_tokens=line.input_length,
            output_tokens=line.output_length,
            line=number,
        )
        for number, line in lines
    )


def _line(file: Path, number: int, values: Any) -> TraceLine:
    try:
        return TraceLine.model_validate(values)
    except ValidationError as error:
        raise ScenarioError(f"{file}:{number}: {first_mistake(error, 'the line')}") from error


def of_lengths(items: Sequence[PromptItem], trace: Sequence[TracedRequest]) -> tuple[PromptItem, ...]:
    """A prompt for every request of a trace, exactly as long as it says.

    Request i ends with prompt i of ``items``, taken in turn, so that a chat template's end stays. In front of it are the
    prompts before that one, as many as are needed; what is too long is cut at its front. Nothing can be graded.
    """
    return tuple(
        PromptItem(
            prompt_id=f"{items[number % len(items)].prompt_id}/line{one.line}",
            ids=_ids(items, number, one.prompt_tokens),
            ungraded_reason=CUT,
            cluster=items[number % len(items)].cluster,
        )
        for number, one in enumerate(trace)
    )


def _ids(items: Sequence[PromptItem], last: int, wanted: int) -> tuple[int, ...]:
    pieces: list[tuple[int, ...]] = []
    while sum(map(len, pieces)) < wanted:
        pieces.append(items[(last - len(pieces)) % len(items)].ids)
    return tuple(chain.from_iterable(reversed(pieces)))[-wanted:]


Numbered = Iterator[tuple[int, Any]]
"""The number of a line from 1, and its values as TraceLine has them, not yet checked."""


def _mooncake(file: Path, lines: Iterator[str]) -> Numbered:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield number, json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ScenarioError(
                f'{file}:{number}: not JSON: {error}; write {{"timestamp": 0, "input_length": 64, "output_length": 16}}'
            ) from error


def _azure(file: Path, lines: Iterator[str]) -> Numbered:
    rows = csv.reader(lines)
    if (head := tuple(next(rows, ()))) != AZURE_HEAD:
        raise ScenarioError(f"{file}:1: begins with {','.join(head)[:200]!r}; Azure's form begins with {','.join(AZURE_HEAD)}")
    for row in rows:
        if not row:
            continue
        if len(row) != len(AZURE_HEAD):
            raise ScenarioError(f"{file}:{rows.line_num}: has {len(row)} columns; {len(AZURE_HEAD)} are read")
        try:
            at = datetime.fromisoformat(row[0])
            at_s = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
        except ValueError as error:
            raise ScenarioError(f"{file}:{rows.line_num}: {row[0][:200]!r} is no time; write 2023-11-16 18:17:03.97") from error
        tokens = [int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text for text in row[1:]]
        yield rows.line_num, {"timestamp": at_s, "input_length": tokens[0], "output_length": tokens[1]}


FORMS: dict[str, tuple[Callable[[Path, Iterator[str]], Numbered], float]] = {
    ".jsonl": (_mooncake, 1000.0),
    ".csv": (_azure, 1.0),
}
"""How the values of a line are read, and how many units of its time are a second."""
