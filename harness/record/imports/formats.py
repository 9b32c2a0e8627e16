"""The table of formats: how each is recognised and read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.errors import BenchmarkFileError
from harness.frozen import frozen
from harness.record.bounds import SHORTEST_S
from harness.record.imports import aiperf, guidellm, sglang_bench, vllm_bench
from harness.record.imports.document import LONGEST, Document, read_document
from harness.record.imports.measured import ResultFile


@frozen
class Format:
    """``is_it`` looks at the first JSON value of a file; ``made_by``: what makes such a file."""

    is_it: Callable[[Any], bool]
    read: Callable[[Document], ResultFile]
    made_by: str


FORMATS = {
    module.NAME: Format(is_it=module.is_it, read=module.read, made_by=made_by)
    for module, made_by in (
        (vllm_bench, "vllm bench serve --save-result --save-detailed"),
        (aiperf, "aiperf profile: profile_export.jsonl"),
        (guidellm, "guidellm benchmark: benchmarks.json"),
        (sglang_bench, "sglang.bench_serving --output-details"),
    )
}


def read_file(path: Path, wanted: str | None = None) -> ResultFile:
    """Read a file, as the ``wanted`` format or the one that it shows.

    Raises:
        BenchmarkFileError: it cannot be read, is of no known format, or has no request that was answered.
    """
    document = read_document(path)
    known = FORMATS[wanted] if wanted else _recognised(document)
    file = replace(known.read(document), name=document.name, sha256=document.sha256)
    if not file.requests:
        raise BenchmarkFileError(f"{path}: none of its {file.sent} requests was answered, so there is nothing to import")
    for one in file.requests:
        times_s = one.first_token_s, one.last_token_s, one.request_s
        if not one.output_tokens or not all(SHORTEST_S <= time_s <= LONGEST for time_s in times_s):
            raise BenchmarkFileError(
                f"{path}: request {one.place + 1} of {file.sent} counts as answered, with {one.output_tokens} tokens; its "
                f"first token, last token and end come {', '.join(map('{:g}'.format, times_s))} s after its begin, and "
                f"{SHORTEST_S:g} to {LONGEST:g} s are allowed, else no token came, or no stream; make it again, with a stream "
                "and answers of a fixed length (ignore_eos)"
            )
    return file


def _recognised(document: Document) -> Format:
    found = [one for one in FORMATS.values() if one.is_it(document.first.value)]
    if len(found) != 1:
        known = "; ".join(f"{name} ({one.made_by})" for name, one in FORMATS.items())
        raise document.first.refusal(f"is no result file that is known; known are: {known}; --format names one")
    return found[0]
