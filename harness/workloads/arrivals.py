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
from dataclasses import dataclass
from datetime import UTC, datetime
from io import StringIO
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from harness.config_file import NonNegative, StrictModel, read_text
from harness.errors import ScenarioError
from harness.workloads.loader import PromptItem

AZURE_HEAD = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MOST_BYTES = 16 << 20
"""Of a trace: some 500,000 requests."""
csv.field_size_limit(MOST_BYTES)  # a longer field is an error that names no line
CUT = "prompt and answer are cut to the lengths of a trace"
Length = Annotated[int, Field(strict=True, ge=1, le=1 << 24)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRequest:
    """One line of a trace. ``after_s``: since the first request; ``line``: its number in the file, from 1."""

    after_s: float
    prompt_tokens: int
    output_tokens: int
    line: int


class MooncakeLine(StrictModel):
    """``timestamp`` in milliseconds."""

    timestamp: NonNegative
    input_length: Length
    output_length: Length
    hash_ids: tuple[int, ...] = ()


class AzureLine(StrictModel):
    """``timestamp`` in seconds since 1970."""

    timestamp: float
    input_length: Length
    output_length: Length


Stamped = tuple[int, float, int, int]
"""(line, seconds, prompt tokens, output tokens)."""


def read_trace(file: Path, most: int | None = None) -> tuple[TracedRequest, ...]:
    """The first ``most`` requests of a trace, or all; blank lines are skipped.

    Raises:
        ScenarioError: the file cannot be read, has another form, no request or fewer than ``most``; or a line is wrong (named
            as ``file:line``), such as one that comes before the line above it.
    """
    reader = FORMS.get(file.suffix)
    if reader is None:
        raise ScenarioError(f"{file}: a trace ends in {' or '.join(FORMS)} (Mooncake's or Azure's form); rename or convert it")
    stamped = list(islice(reader(file, StringIO(read_text(file, "trace", most_bytes=MOST_BYTES), newline="")), most))
    if len(stamped) < (most or 1):
        raise ScenarioError(f"{file}: has {len(stamped)} requests, {most or 'at least 1'} are asked for; ask for fewer")
    for (_, before_s, _, _), (line, at_s, _, _) in pairwise(stamped):
        if at_s < before_s:
            raise ScenarioError(f"{file}:{line}: comes before the line above it; sort the trace by time")
    return tuple(
        TracedRequest(after_s=at_s - stamped[0][1], prompt_tokens=prompt, output_tokens=output, line=line)
        for line, at_s, prompt, output in stamped
    )


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


def _mooncake(file: Path, lines: Iterator[str]) -> Iterator[Stamped]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found = MooncakeLine.model_validate(json.loads(line))
        except ValidationError as error:
            raise _refused(file, number, error) from error
        except (ValueError, RecursionError) as error:
            raise ScenarioError(
                f'{file}:{number}: not JSON: {error}; write {{"timestamp": 0, "input_length": 64, "output_length": 16}}'
            ) from error
        yield number, found.timestamp / 1000, found.input_length, found.output_length


def _azure(file: Path, lines: Iterator[str]) -> Iterator[Stamped]:
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
            values: dict[str, Any] = {"timestamp": (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()}
        except ValueError as error:
            raise ScenarioError(f"{file}:{rows.line_num}: {row[0][:200]!r} is no time; write 2023-11-16 18:17:03.97") from error
        values |= {
            key: int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text
            for key, text in zip(("input_length", "output_length"), row[1:], strict=True)
        }
        try:
            found = AzureLine.model_validate(values)
        except ValidationError as error:
            raise _refused(file, rows.line_num, error) from error
        yield rows.line_num, found.timestamp, found.input_length, found.output_length


FORMS: dict[str, Callable[[Path, Iterator[str]], Iterator[Stamped]]] = {".jsonl": _mooncake, ".csv": _azure}


def _refused(file: Path, number: int, error: ValidationError) -> ScenarioError:
    """The first mistake of a line, by its key in Mooncake's form."""
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"])) or "the line"
    return ScenarioError(f"{file}:{number}: {where}: {first['msg'].removeprefix('Value error, ')}")
