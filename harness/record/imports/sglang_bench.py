"""SGLang's bench_serving with `--output-details`: one JSON object a line and run, with lists as in vLLM's, which it came from.

It keeps no time of a whole request: that is the first token's and the gaps after it, without the end of the stream. Its own
figures of requests and of time per token have that end, so they stand under other names and are held against nothing.
"""

from __future__ import annotations

from typing import Any

from harness.record.imports.document import Asked, Document, Rate, asked_rate
from harness.record.imports.measured import ResultFile
from harness.record.imports.vllm_bench import Lists, Totals, one_run, printed, requests_of

NAME, TOOL = "sglang", "SGLang bench_serving"
FIGURES = {
    "ttft": "first_token_s",
    "itl": "gap_s",
    "tpot": "time_per_token_to_the_end_s",
    "e2e_latency": "request_to_the_end_s",
}
LACKS = {
    "output_ids": "SGLang bench_serving keeps texts, not token ids",
    "passes": "SGLang bench_serving keeps one mean accept length of all requests, and no passes",
    "stop_reason": "SGLang bench_serving does not keep why an answer ended",
    "seed": "SGLang bench_serving does not keep its seed",
    "started_at": "SGLang bench_serving keeps no time of day",
}


class SglangResult(Lists, Totals):
    """The lists and the figures; which model it was is not kept."""

    request_rate: Asked = None
    accept_length: Rate | None = None


def is_it(value: Any) -> bool:
    """Whether this JSON value is such a run, detailed or not."""
    return isinstance(value, dict) and {"backend", "dataset_name", "duration", "median_e2e_latency_ms"} <= set(value)


def read(document: Document) -> ResultFile:
    """The file's requests.

    Raises:
        BenchmarkFileError: it holds several runs, or no times of single requests, or a value that does not fit.
    """
    line = one_run(document)
    if "ttfts" not in line.value:
        raise line.refusal("ttfts: the times of single requests are missing; run it with --output-details")
    result = line.read(SglangResult)
    return ResultFile(
        format=NAME,
        tool=TOOL,
        requests=requests_of(line, result),
        sent=len(result.errors),
        duration_s=result.duration,
        concurrency=result.max_concurrency,
        requests_per_s=asked_rate(result.request_rate),
        printed=printed(line, result, FIGURES),
        counted={} if result.accept_length is None else {"acceptance_length": result.accept_length},
        lacks=LACKS,
    )
