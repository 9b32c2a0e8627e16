"""AIPerf's `profile_export.jsonl`: one JSON object a line and request, with a unit beside every figure.

The lines come in the order in which requests ended; the number of their session orders them as they were made. The file holds
none of the tool's own medians, but each request's time per token.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from datetime import UTC, datetime
from operator import itemgetter
from statistics import median
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from harness.record.imports.document import LONGEST, Document, Each, Keys, Line, Number
from harness.record.imports.measured import MeasuredRequest, ResultFile

NAME, TOOL = "aiperf", "AIPerf"
IN_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}
PROFILING = "profiling"
LACKS = {
    "output_ids": "AIPerf's records keep neither text nor token ids",
    "passes": "AIPerf's records keep counts of tokens, and no passes",
    "stop_reason": "AIPerf's records do not keep why an answer ended",
    "seed": "AIPerf's records do not keep its seed",
}
Nanoseconds = Annotated[int, Field(strict=True, ge=0, lt=1 << 62)]
Place = Annotated[int, Field(strict=True, ge=0, lt=1 << 31)]


class Duration(Keys):
    """A time with its unit, or the list of the gaps of a stream."""

    value: Number | Each[Number]
    unit: Literal["ns", "us", "ms", "s", "sec"]

    @property
    def list_s(self) -> list[float]:
        """In seconds; a single time as a list of one."""
        values = self.value if isinstance(self.value, list) else [self.value]
        return [value * IN_SECONDS[self.unit] for value in values]

    @model_validator(mode="after")
    def _times(self) -> Self:
        if not all(0 <= time_s <= LONGEST for time_s in self.list_s):
            raise ValueError(f"durations from 0 to {LONGEST:g} s are needed")
        return self


class Time(Duration):
    """A single one."""

    value: Number

    @property
    def seconds(self) -> float:
        """In seconds."""
        return self.list_s[0]


class TokenCount(Keys):
    """A number of tokens."""

    value: Annotated[float, Field(strict=True, ge=0, le=1 << 24, multiple_of=1)]


class Metadata(Keys):
    """Of one request. Warm-up requests are of another phase."""

    session_num: Place
    turn_index: Place | None = None
    request_start_ns: Nanoseconds
    benchmark_phase: str = PROFILING
    was_cancelled: bool = False


class Metrics(Keys):
    """The figures of an answered request that are read; the first token's time is there only if its answer was streamed."""

    request_latency: Time
    time_to_first_token: Time | None = None
    input_sequence_length: TokenCount
    output_sequence_length: TokenCount
    inter_token_latency: Time | None = None
    inter_chunk_latency: Duration | None = None


class Record(Keys):
    """One line. ``metrics``: read of an answered request alone."""

    metadata: Metadata
    error: Any = None


class AnsweredLine(Keys):
    """The line of an answered request."""

    metrics: Metrics


def is_it(value: Any) -> bool:
    """Whether this JSON value is such a line."""
    return isinstance(value, dict) and {"metadata", "metrics"} <= set(value) and isinstance(value["metadata"], dict)


def read(document: Document) -> ResultFile:
    """The file's requests, without those of the warm-up.

    Raises:
        BenchmarkFileError: a line lacks a figure of its request, or has a value that does not fit.
    """
    timed, own_s = list[tuple[int, int, MeasuredRequest | None]](), list[float]()
    for line in document.lines:
        record = line.read(Record)
        about = record.metadata
        if about.benchmark_phase != PROFILING:
            continue
        request = None
        if record.error is None and not about.was_cancelled:
            metrics = line.read(AnsweredLine).metrics
            request = _request(line, about, metrics)
            own_s += metrics.inter_token_latency.list_s if metrics.inter_token_latency else []
        timed.append((about.session_num, about.turn_index or 0, request))
    if not timed:
        raise document.first.refusal("metadata.benchmark_phase: the file holds no request of the phase profiling")
    requests = tuple(replace(one, place=place) for place, (*_, one) in enumerate(sorted(timed, key=itemgetter(0, 1))) if one)
    return ResultFile(
        format=NAME,
        tool=TOOL,
        requests=requests,
        sent=len(timed),
        printed={"median_time_per_token_s": median(own_s)} if own_s else {},
        lacks=LACKS,
    )


def _request(line: Line, about: Metadata, metrics: Metrics) -> MeasuredRequest:
    if metrics.time_to_first_token is None:
        raise line.refusal(
            "metrics.time_to_first_token: the key is required and missing; a stream (--streaming) is needed for it"
        )
    whole_s, gaps = metrics.request_latency.seconds, metrics.inter_chunk_latency
    begun = datetime.fromtimestamp(about.request_start_ns / 1e9, UTC)
    return MeasuredRequest(
        place=0,
        prompt_tokens=int(metrics.input_sequence_length.value),
        output_tokens=int(metrics.output_sequence_length.value),
        first_token_s=metrics.time_to_first_token.seconds,
        last_token_s=whole_s,
        request_s=whole_s,
        gaps_s=array("d", gaps.list_s) if gaps and isinstance(gaps.value, list) else None,
        begun_at=begun.isoformat(timespec="milliseconds"),
    )
