"""GuideLLM's `benchmarks.json`: one JSON object with the requests of every benchmark, and their prompts in the arguments sent.

A file of a sweep holds several benchmarks of different loads, and is refused. GuideLLM calls the mean time of the tokens after
the first inter-token latency; its time per output token has the first one in it.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field

from harness.record.imports.document import Document, Each, Keys, Line, Tokens, Whole
from harness.record.imports.measured import MeasuredRequest, ResultFile
from harness.record.imports.vllm_bench import one_run

NAME, TOOL = "guidellm", "GuideLLM"
FIGURES = {
    "time_to_first_token_ms": ("first_token_s", 1000.0),
    "inter_token_latency_ms": ("time_per_token_s", 1000.0),
    "request_latency": ("request_s", 1.0),
}
STATISTICS = ("median", "mean")
LONGEST_TEXT = 500
LACKS = {
    "output_ids": "GuideLLM keeps texts, not token ids",
    "passes": "GuideLLM counts pieces of the stream, which may hold several passes, and no passes",
    "stop_reason": "GuideLLM does not keep why an answer ended",
    "seed": "GuideLLM does not keep a seed for each request",
}
Epoch = Annotated[float, Field(strict=True, ge=0, le=7e9)]
"""Seconds since 1970, up to the year 2191."""


class Timings(Keys):
    """Wall clock, in seconds; null where nothing was streamed. Some versions take the first token of content for the first."""

    request_start: Epoch
    first_request_iteration: Epoch | None = None
    first_token_iteration: Epoch | None
    last_token_iteration: Epoch | None
    request_end: Epoch
    token_iterations: Tokens | None = None


class Info(Keys):
    """What is kept about the request itself."""

    timings: Timings


class Answered(Keys):
    """One answered request."""

    info: Info
    prompt_tokens: Tokens
    output_tokens: Tokens | None
    request_args: str | None = None


class Requests(Keys):
    """All requests of a benchmark; those that were cut off at its end are ``incomplete``."""

    successful: Each[Answered]
    errored: list[Any] = Field(default_factory=list)
    incomplete: list[Any] = Field(default_factory=list)


class Benchmark(Keys):
    """One load."""

    requests: Requests
    metrics: dict[str, object]
    duration: Whole | None = None
    config: dict[str, object] = Field(default_factory=dict)


class Report(Keys):
    """The whole file."""

    benchmarks: Each[Benchmark]
    metadata: dict[str, object] = Field(default_factory=dict)


def is_it(value: Any) -> bool:
    """Whether this JSON value is such a report."""
    return isinstance(value, dict) and isinstance(value.get("benchmarks"), list) and "metadata" in value


def read(document: Document) -> ResultFile:
    """The file's requests, in the order of their begin.

    Raises:
        BenchmarkFileError: it holds several benchmarks, or a value that does not fit.
    """
    line = one_run(document)
    report = line.read(Report)
    if len(report.benchmarks) != 1:
        raise line.refusal(
            f"benchmarks: the file holds {len(report.benchmarks)}; a file is one process of the statistics, so give each load "
            "a file of its own"
        )
    benchmark = report.benchmarks[0]
    _refuse_sample(line, benchmark)
    answered = sorted(benchmark.requests.successful, key=lambda one: one.info.timings.request_start)
    failed = len(benchmark.requests.errored)
    kind = _at(benchmark.config, "strategy", "type_")
    return ResultFile(
        format=NAME,
        tool=TOOL,
        tool_version=_text(report.metadata.get("guidellm_version")),
        model=_text(_at(benchmark.config, "backend", "model")),
        requests=tuple(_request(one, place) for place, one in enumerate(answered)),
        sent=len(answered) + failed,
        duration_s=benchmark.duration,
        concurrency=1 if kind == "synchronous" else _streams(benchmark),
        printed=_printed(line, benchmark),
        lacks=LACKS,
        rule="per_token",
    )


def _request(one: Answered, place: int) -> MeasuredRequest:
    times, begun_s = one.info.timings, one.info.timings.request_start
    first_s, last_s = times.first_token_iteration or begun_s, times.last_token_iteration or begun_s
    return MeasuredRequest(
        place=place,
        prompt_tokens=one.prompt_tokens,
        output_tokens=one.output_tokens or 0,
        first_token_s=first_s - begun_s,
        last_token_s=last_s - begun_s,
        request_s=times.request_end - begun_s,
        pieces=times.token_iterations,
        before_s=first_s - (times.first_request_iteration or first_s),
        prompt=_prompt(one.request_args),
        begun_at=datetime.fromtimestamp(begun_s, UTC).isoformat(timespec="milliseconds"),
    )


def _prompt(sent: str | None) -> str | None:
    """A digest of the prompt in the arguments that were sent; None where they hold none."""
    try:
        body = json.loads(sent or "null").get("body") or {}
        asked = body.get("prompt") or body.get("messages") or body.get("input")
    except (ValueError, AttributeError, RecursionError):
        return None
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest() if asked else None


def _printed(line: Line, benchmark: Benchmark) -> dict[str, float]:
    """Medians and means over the answered requests, in seconds by our names."""
    found = {}
    for theirs, (ours, scale) in FIGURES.items():
        summary = _at(benchmark.metrics, theirs, "successful")
        if isinstance(summary, dict) and summary.get("count"):
            told = Line(line.file, line.number, summary)
            for statistic in STATISTICS:
                if (value := told.number_at(statistic)) is not None:
                    found[f"{statistic}_{ours}"] = value / scale
    return found


def _refuse_sample(line: Line, benchmark: Benchmark) -> None:
    """Raises BenchmarkFileError where the file keeps a sample of its requests: the figures are of all."""
    kept, every = len(benchmark.requests.successful), _at(benchmark.metrics, "request_totals", "successful")
    if isinstance(every, int) and kept < every:
        raise line.refusal(f"requests.successful: keeps {kept} of {every} requests; run it without a sample size")


def _streams(benchmark: Benchmark) -> int | None:
    found = next((one for key in ("streams", "max_concurrency") if (one := _at(benchmark.config, "strategy", key))), None)
    return found if isinstance(found, int) and not isinstance(found, bool) and 1 <= found <= 1 << 24 else None


def _text(value: Any) -> str | None:
    return value[:LONGEST_TEXT] if isinstance(value, str) else None


def _at(value: Any, *keys: str) -> Any:
    """The value under nested keys; None where one is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
