"""A result file read within bounds, as JSON values with their lines; and the strict values of its keys.

A value of another kind or beyond its bounds is refused with the file, the line and the key. Unknown keys are ignored, because
tools add some with every version.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from harness.errors import BenchmarkFileError, UserError, in_words
from harness.record.regular_file import open_regular

MOST_BYTES = 1 << 28
"""Of one file; that of a million requests with their texts is smaller."""
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
_NUMBER: TypeAdapter[float | None] = TypeAdapter(Number | None)
_Keys = TypeVar("_Keys", bound="Keys")


def asked_rate(asked: Asked) -> float | None:
    """The rate; None where all came at once."""
    return float(asked) if isinstance(asked, float | int) and asked <= MOST_RATE else None


class Keys(BaseModel):
    """The keys that are read of one JSON object; others are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, populate_by_name=True)


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Document:
    """A whole file: a single JSON value, or one per line."""

    name: str
    sha256: str
    lines: tuple[Line, ...]


def read_document(path: Path) -> Document:
    """The file's JSON values.

    Raises:
        BenchmarkFileError: it is absent, no regular file, too large, empty, or no JSON; with the line.
    """
    data = _bytes(path)
    digest = hashlib.sha256(data).hexdigest()
    shown = str(path)
    try:
        return Document(path.name, digest, (Line(shown, 1, from_json(data)),))
    except (ValueError, RecursionError) as error:
        whole = error
    lines = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            lines.append(Line(shown, number, from_json(line)))
        except (ValueError, RecursionError) as error:
            why = whole if not lines else error  # no line by itself: then the file is one value over several lines
            raise BenchmarkFileError(f"{shown}:{number}: is no JSON ({why}); make it again, or give another one") from error
    if not lines:
        raise BenchmarkFileError(f"{shown}: is empty; give a result file of a benchmarking tool")
    return Document(path.name, digest, tuple(lines))


def _bytes(path: Path) -> bytes:
    try:
        with os.fdopen(open_regular(path.resolve(), os.O_RDONLY), "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError as error:
        raise BenchmarkFileError(f"{path}: there is no such file; give a result file of a benchmarking tool") from error
    except UserError as error:
        raise BenchmarkFileError(f"{path}: is no regular file; give a result file of a benchmarking tool") from error
    except (OSError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or error
        raise BenchmarkFileError(f"{path}: cannot be read ({why}); check its permissions") from error
    if len(data) > MOST_BYTES:
        raise BenchmarkFileError(f"{path}: has more than {MOST_BYTES >> 20} MiB; give a file of fewer requests")
    return data
