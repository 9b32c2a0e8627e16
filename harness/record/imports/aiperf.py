"""AIPerf's `profile_export.jsonl`: one JSON object a line and request, with a unit beside every figure.

The lines come in the order in which requests ended; the number of their session orders them as they were made. The file holds
none of the tool's own medians, but each request's time per token.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from operator import itemgetter
from statistics import median
from typing import Annotated, Any

from pydantic import Field

from harness.record.imports.document import LONGEST, Document, Each, Keys, Line, Number
from harness.record.imports.measured import Measured, Request

NAME, TOOL = "aiperf", "AIPerf"
IN_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}
PROFILING, OWN = "profiling", "inter_token_latency"
LACKS = {
    "output_ids": "AIPerf's records keep neither text nor token ids",
    "passes": "AIPerf's records keep counts of tokens, and no passes",
    "stop_reason": "AIPerf's records do not keep why an answer ended",
    "seed": "AIPerf's records do not keep its seed",
}
Nanoseconds = Annotated[int, Field(strict=True, ge=0, lt=1 << 62)]
Place = Annotated[int, Field(strict=True, ge=0, lt=1 << 31)]


class Metric(Keys):
    """A figure with its unit; ``value`` is a list for gaps."""

    value: Number | Each[Number]
    unit: str


class Metadata(Keys):
    """Of one request. Warm-up requests are of another phase."""

    session_num: Place
    turn_index: Place | None = None
    request_start_ns: Nanoseconds
    benchmark_phase: str = PROFILING
    was_cancelled: bool = False


class Metrics(Keys):
    """The figures of a request that are read."""

    request_latency: Metric | None = None
    time_to_first_token: Metric | None = None
    input_sequence_length: Metric | None = None
    output_sequence_length: Metric | None = None
    inter_token_latency: Metric | None = None
    inter_chunk_latency: Metric | None = None


class Record(Keys):
    """One line."""

    metadata: Metadata
    metrics: Metrics
    error: Any = None


def is_it(value: Any) -> bool:
    """Whether this JSON value is such a line."""
    return isinstance(value, dict) and {"metadata", "metrics"} <= set(value) and isinstance(value["metadata"], dict)


def read(document: Document) -> Measured:
    """The file's requests, without those of the warm-up.

    Raises:
        BenchmarkFileError: a line lacks a figure of its request, or has a value that does not fit.
    """
    timed, own_s = list[tuple[int, int, Request | None]](), list[float]()
    for line in document.lines:
        about = (one := line.read(Record)).metadata
        if about.benchmark_phase == PROFILING:
            answered = one.error is None and not about.was_cancelled
            timed.append((about.session_num, about.turn_index or 0, _request(line, one) if answered else None))
            own_s += [_seconds(line, one.metrics, OWN)] if answered and one.metrics.inter_token_latency else []
    if not timed:
        raise document.first.refusal("metadata.benchmark_phase: the file holds no request of the phase profiling")
    requests = tuple(replace(one, place=place) for place, (*_, one) in enumerate(sorted(timed, key=itemgetter(0, 1))) if one)
    return Measured(
        format=NAME,
        tool=TOOL,
        tool_version=None,
        model=None,
        requests=requests,
        sent=len(timed),
        duration_s=None,
        concurrency=None,
        requests_per_s=None,
        printed={"median_time_per_token_s": median(own_s)} if own_s else {},
        counted={},
        lacks=LACKS,
    )


def _request(line: Line, record: Record) -> Request:
    whole = _seconds(line, record.metrics, "request_latency")
    begun = datetime.fromtimestamp(record.metadata.request_start_ns / 1e9, UTC)
    return Request(
        place=0,
        prompt_tokens=_count(line, record.metrics, "input_sequence_length"),
        output_tokens=_count(line, record.metrics, "output_sequence_length"),
        first_token_s=_seconds(line, record.metrics, "time_to_first_token"),
        last_token_s=whole,
        request_s=whole,
        gaps_s=_gaps(line, record.metrics),
        begun_at=begun.isoformat(timespec="milliseconds"),
    )


def _seconds(line: Line, metrics: Metrics, name: str) -> float:
    found = _metric(line, metrics, name)
    if not isinstance(found.value, list) and 0 <= (time_s := found.value * _scale(line, name, found)) <= LONGEST:
        return time_s
    raise line.refusal(f"metrics.{name}.value: got {found.value!r}, a duration is needed")


def _gaps(line: Line, metrics: Metrics) -> Sequence[float] | None:
    found = metrics.inter_chunk_latency
    if found is None or not isinstance(found.value, list):
        return None
    scale = _scale(line, "inter_chunk_latency", found)
    if any(not 0 <= value * scale <= LONGEST for value in found.value):
        raise line.refusal("metrics.inter_chunk_latency.value: got a gap that is no duration")
    return array("d", (value * scale for value in found.value))


def _count(line: Line, metrics: Metrics, name: str) -> int:
    found = _metric(line, metrics, name)
    if isinstance(found.value, list) or found.value != int(found.value) or not 0 <= found.value <= 1 << 24:
        raise line.refusal(f"metrics.{name}.value: got {found.value!r}, a whole number of tokens is needed")
    return int(found.value)


def _metric(line: Line, metrics: Metrics, name: str) -> Metric:
    found: Metric | None = getattr(metrics, name)
    if found is None:
        raise line.refusal(f"metrics.{name}: the key is required and missing; a stream (--streaming) is needed for its times")
    return found


def _scale(line: Line, name: str, found: Metric) -> float:
    if found.unit not in IN_SECONDS:
        raise line.refusal(f"metrics.{name}.unit: got {found.unit[:40]!r}, allowed: {', '.join(IN_SECONDS)}")
    return IN_SECONDS[found.unit]
