"""The table of formats: how each is recognised and read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import BenchmarkFileError
from harness.record.imports import aiperf, guidellm, sglang_bench, vllm_bench
from harness.record.imports.document import LONGEST, Document, read_document
from harness.record.imports.measured import MOST_REQUESTS, Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """``is_it`` looks at the first JSON value of a file; ``made_by``: what makes such a file."""

    name: str
    is_it: Callable[[Any], bool]
    read: Callable[[Document], Measured]
    made_by: str


FORMATS = {
    one.name: one
    for one in (
        Format(name=vllm_bench.NAME, is_it=vllm_bench.is_it, read=vllm_bench.read,
               made_by="vllm bench serve --save-result --save-detailed"),
        Format(name=aiperf.NAME, is_it=aiperf.is_it, read=aiperf.read, made_by="aiperf profile: profile_export.jsonl"),
        Format(name=guidellm.NAME, is_it=guidellm.is_it, read=guidellm.read, made_by="guidellm benchmark: benchmarks.json"),
        Format(name=sglang_bench.NAME, is_it=sglang_bench.is_it, read=sglang_bench.read,
               made_by="sglang.bench_serving --output-details"),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFile:
    """A file that was read: its name without folders, its SHA-256 and its requests."""

    name: str
    sha256: str
    measured: Measured


def read_file(path: Path, wanted: str | None = None) -> ResultFile:
    """Read a file, as the ``wanted`` format or the one that it shows.

    Raises:
        BenchmarkFileError: it cannot be read, is of no known format, or has no request that was answered.
    """
    document = read_document(path)
    found = FORMATS[wanted] if wanted else _recognised(document)
    measured = found.read(document)
    if not measured.requests:
        raise BenchmarkFileError(f"{path}: none of its {measured.sent} requests was answered, so there is nothing to import")
    if measured.sent > MOST_REQUESTS:
        raise BenchmarkFileError(f"{path}: holds {measured.sent:,} requests; at most {MOST_REQUESTS:,} are read")
    for one in measured.requests:
        if not all(0 <= time_s <= LONGEST for time_s in (one.first_token_s, one.last_token_s, one.request_s)):
            raise BenchmarkFileError(
                f"{path}: request {one.place + 1}: first token, last token and end come {one.first_token_s:g}, "
                f"{one.last_token_s:g} and {one.request_s:g} s after its begin; allowed are 0 to {LONGEST:g}; make it again"
            )
    return ResultFile(name=document.name, sha256=document.sha256, measured=measured)


def _recognised(document: Document) -> Format:
    first = document.lines[0]
    found = [one for one in FORMATS.values() if one.is_it(first.value)]
    if len(found) != 1:
        known = "; ".join(f"{one.name} ({one.made_by})" for one in FORMATS.values())
        raise first.refusal(f"is no result file that is known; known are: {known}; --format names one")
    return found[0]
