"""A result file read within bounds, as JSON values with their lines; and the strict values of its keys.

A value of another kind or beyond its bounds is refused with the file, the line and the key. Unknown keys are ignored, because
tools add some with every version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from harness.config_file import MOST_PARSED, needed_bytes, read_bytes
from harness.errors import BenchmarkFileError, in_words
from harness.frozen import positional
from harness.record.imports.measured import MOST_REQUESTS

MOST_BYTES = 100 << 20
"""Of one file; that of 60,000 requests of 16 tokens with their texts, or of 2,000 requests of 2,000, is smaller."""
MOST_LINES = 1 << 22
FEWER = "give a file of fewer requests: run the tool several times, each file is a process of its own"
LONGEST_KEY = 200
MOST_RATE = 1e12
LONGEST = 1e7
Time = Annotated[float, Field(strict=True, ge=0, le=LONGEST)]
"""A duration, in the unit of its key: at most 1e7 s or ms."""
Whole = Annotated[float, Field(strict=True, ge=1e-6, le=LONGEST)]
"""The duration of a whole run, in seconds."""
Tokens = Annotated[int, Field(strict=True, ge=0, le=1 << 24)]
Number = Annotated[float, Field(strict=True, ge=-1e18, le=1e18)]
Total = Annotated[int, Field(strict=True, ge=0, le=1 << 48)]
Asked = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=True)] | str | None
"""A rate of requests that was asked for; infinite, or a word, where all came at once."""
Rate = Annotated[float, Field(strict=True, ge=0, le=MOST_RATE)]
_T = TypeVar("_T")
Each = Annotated[list[_T], Field(max_length=MOST_REQUESTS, fail_fast=True)]
"""A value of every request or token; the first that does not fit is told alone, for a million errors fill the memory."""
_NUMBER: TypeAdapter[float | None] = TypeAdapter(Number | None)
_Keys = TypeVar("_Keys", bound="Keys")


def asked_rate(asked: Asked) -> float | None:
    """The rate; None where all came at once."""
    return float(asked) if isinstance(asked, float | int) and asked <= MOST_RATE else None


class Keys(BaseModel):
    """The keys that are read of one JSON object; others are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, populate_by_name=True)


@positional
class Line:
    """One JSON value of a file and where it begins."""

    file: str
    number: int
    value: Any

    def read(self, kind: type[_Keys]) -> _Keys:
        """The value as ``kind``. Raises BenchmarkFileError with the file, the line and the first key that does not fit."""
        try:
            return kind.model_validate(self.value)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            key = ".".join(map(str, first["loc"]))[:LONGEST_KEY] or "the whole line"
            why = in_words(first).replace("; add it", "; an older version of a tool lacks it: make the file with a newer one")
            why += f"; {FEWER}" if first["type"] == "too_long" else ""
            raise self.refusal(f"{key}: {why}") from error

    def number_at(self, key: str) -> float | None:
        """The number under a key of this object; None where it is absent or null. Raises BenchmarkFileError as ``read``."""
        try:
            return _NUMBER.validate_python(self.value.get(key))
        except ValidationError as error:
            raise self.refusal(f"{key}: {in_words(error.errors(include_url=False)[0])}") from error

    def refusal(self, why: str) -> BenchmarkFileError:
        """The error that says what is wrong here."""
        return BenchmarkFileError(f"{self.file}:{self.number}: {why}")


@positional
class Document:
    """A whole file: a single JSON value, or one per line. Only the ``first`` is kept parsed; ``rest``: (line, text)."""

    name: str
    sha256: str
    first: Line
    rest: tuple[tuple[int, bytes], ...] = ()

    @property
    def lines(self) -> Iterator[Line]:
        """Every value. Raises BenchmarkFileError where one is no JSON."""
        yield self.first
        for number, text in self.rest:
            yield _parsed(self.first.file, number, text)


def read_document(path: Path) -> Document:
    """The file's JSON values.

    Raises:
        BenchmarkFileError: it is absent, no regular file, too large, empty, or no JSON; with the line.
    """
    data = read_bytes(path, "result file", BenchmarkFileError, MOST_BYTES)
    digest, shown, name = hashlib.sha256(data).hexdigest(), str(path), path.name.encode(errors="backslashreplace").decode()
    if data.count(b"\n") > MOST_LINES:
        raise BenchmarkFileError(f"{shown}: has more than {MOST_LINES:,} lines; {FEWER}")
    lines = [(number, text) for number, text in enumerate(data.split(b"\n"), start=1) if text.strip()]
    if not lines:
        raise BenchmarkFileError(f"{shown}: is empty; give a result file of a benchmarking tool")
    try:
        return Document(name, digest, _parsed(shown, *lines[0]), tuple(lines[1:]))
    except BenchmarkFileError:
        if len(lines) == 1:
            raise
    return Document(name, digest, _parsed(shown, 1, data))  # no line by itself: the file is one value over several lines


def _parsed(file: str, number: int, text: bytes) -> Line:
    if (needed := needed_bytes(text)) > MOST_PARSED:
        raise BenchmarkFileError(f"{file}:{number}: its values would need {needed >> 20} MiB of {MOST_PARSED >> 20}; {FEWER}")
    try:
        return Line(file, number, from_json(text))
    except (ValueError, RecursionError) as error:
        raise BenchmarkFileError(f"{file}:{number}: is no JSON ({error}); make it again, or give another one") from error
