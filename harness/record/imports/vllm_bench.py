"""`vllm bench serve --save-result --save-detailed`: one JSON object with a list for each figure of the requests.

Its times are seconds in the lists and milliseconds in the figures. A failed request has an entry in ``errors`` and zeros
elsewhere. ``latencies`` came later: before, a request ended with the last piece of its stream all the same.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from harness.record.bounds import Moment
from harness.record.imports.document import Asked, Document, Each, Keys, Line, Rate, Time, Tokens, Total, Whole, asked_rate
from harness.record.imports.measured import MeasuredRequest, ResultFile

NAME, TOOL = "vllm", "vllm bench serve"
FIGURES = {"ttft": "first_token_s", "tpot": "time_per_token_s", "itl": "gap_s", "e2el": "request_s"}
STATISTICS = ("median", "mean", "p99")
RATES = {
    "output_throughput": "output_tokens_per_s",
    "request_throughput": "requests_per_s",
    "total_input_tokens": "prompt_tokens",
    "total_output_tokens": "output_tokens",
    "completed": "requests",
}
COUNTS = {
    "spec_decode_num_drafts": "drafts",
    "spec_decode_draft_tokens": "draft_tokens",
    "spec_decode_accepted_tokens": "accepted_tokens",
    "spec_decode_acceptance_length": "acceptance_length",
}
LACKS = {
    "output_ids": "vllm bench serve keeps texts, not token ids",
    "passes": "vllm bench serve counts drafts over all requests together, and passes not at all",
    "stop_reason": "vllm bench serve does not keep why an answer ended",
    "seed": "vllm bench serve does not keep its seed",
    "started_at": "vllm bench serve keeps times of a clock without a date",
}


class Lists(Keys):
    """Lists with an entry for each request."""

    duration: Whole
    input_lens: Each[Tokens]
    output_lens: Each[Tokens]
    ttfts: Each[Time | None]
    itls: Each[Each[Time]]
    errors: Each[str]
    latencies: Each[Time] | None = None
    max_concurrency: Annotated[int, Field(strict=True, ge=1, le=1 << 24)] | None = None


class VllmResult(Lists):
    """What else is read; figures are in ``printed``. ``date``: of the end, ``20261120-100000``; without a zone it is UTC."""

    backend: str
    model_id: Annotated[str, Field(max_length=1000)]
    request_rate: Asked = None
    date: Annotated[Moment | None, BeforeValidator(lambda at: at and re.sub(r"^(\d{8})-", r"\1T", str(at)))] = None


class Totals(Keys):
    """What it sums up over all requests."""

    completed: Total
    total_input_tokens: Total
    total_output_tokens: Total
    request_throughput: Rate
    output_throughput: Rate


def is_it(value: Any) -> bool:
    """Whether this JSON value is such a result, detailed or not."""
    return isinstance(value, dict) and {"endpoint_type", "tokenizer_id", "duration", "request_throughput"} <= set(value)


def read(document: Document) -> ResultFile:
    """The file's requests.

    Raises:
        BenchmarkFileError: it holds several runs, or no times of single requests, or a value that does not fit.
    """
    line = one_run(document)
    if "ttfts" not in line.value:
        raise line.refusal("ttfts: the times of single requests are missing; run it with --save-result --save-detailed")
    result, sums = line.read(VllmResult), line.read(Totals)
    return ResultFile(
        format=NAME,
        tool=TOOL,
        model=result.model_id,
        requests=requests_of(line, result),
        sent=len(result.errors),
        duration_s=result.duration,
        concurrency=result.max_concurrency,
        requests_per_s=asked_rate(result.request_rate),
        printed=printed(line, sums, FIGURES),
        counted={ours: found for key, ours in COUNTS.items() if (found := line.number_at(key)) is not None},
        lacks=LACKS,
        measured_at=result.date,
    )


def one_run(document: Document) -> Line:
    """The only line of a file. Raises BenchmarkFileError where it has several."""
    if document.rest:
        raise document.first.refusal(
            f"the file holds {1 + len(document.rest)} runs; a file is one process of the statistics, so give each its own"
        )
    return document.first


def requests_of(line: Line, result: Lists) -> tuple[MeasuredRequest, ...]:
    """The answered requests, by the lists of this tool and of those that took them over.

    Raises:
        BenchmarkFileError: the lists have different lengths.
    """
    sent = len(result.errors)
    for key in ("input_lens", "output_lens", "ttfts", "itls", "latencies"):
        values: Sequence[object] | None = getattr(result, key)
        if values is not None and len(values) != sent:
            raise line.refusal(f"{key}: has {len(values)} entries, errors has {sent}; the file is damaged, make it again")
    if not sent:
        raise line.refusal("errors: the file holds no request")
    return tuple(_request(result, place) for place in range(sent) if not result.errors[place])


def _request(result: Lists, place: int) -> MeasuredRequest:
    gaps, first_s = array("d", result.itls[place]), result.ttfts[place] or 0.0
    whole = math.fsum((first_s, *gaps)) if result.latencies is None else result.latencies[place]
    return MeasuredRequest(
        place=place,
        prompt_tokens=result.input_lens[place],
        output_tokens=result.output_lens[place],
        first_token_s=first_s,
        last_token_s=whole,
        request_s=whole,
        gaps_s=gaps,
    )


def printed(line: Line, sums: Totals, figures: dict[str, str]) -> dict[str, float]:
    """The totals, and the figures in milliseconds that are there, in seconds; by our names."""
    found = {ours: float(getattr(sums, key)) for key, ours in RATES.items()}
    for theirs, ours in figures.items():
        for statistic in STATISTICS:
            if (value := line.number_at(f"{statistic}_{theirs}_ms")) is not None:
                found[f"{statistic}_{ours}"] = value / 1000
    return found
