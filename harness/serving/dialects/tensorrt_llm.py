"""TensorRT-LLM, read and not run (repository at 0076e93): serve/openai_protocol.py, llmapi and batch_manager/llmRequest.h.

A request has one figure, ``avg_decoded_tokens_per_iter``: output tokens over iterations, the prompt's iteration among both. So
the decode passes are tokens / figure - 1. Unknown fields of a request are refused. Its counters (/prometheus/metrics) grow only
with settings of its own, so none is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.errors import NotPossibleError
from harness.scenario.servers import Server
from harness.serving.dialects.dialect import Dialect, Event, Request, error_of, open_ai, tokens_event


def _body(request: Request, model: str) -> dict[str, Any]:
    return open_ai(request, model) | {"detokenize": False}


def _read(event: Mapping[str, Any]) -> Event:
    if (error := error_of(event)) is not None:
        return error
    usage = event.get("usage") or {}
    said: dict[str, Any] = {"prompt_tokens": usage["prompt_tokens"]} if "prompt_tokens" in usage else {}
    if (details := usage.get("prompt_tokens_details")) is not None:
        said["cached"] = details["cached_tokens"]
    if not event.get("choices"):
        return Event(said=said)
    [choice] = event["choices"]
    if (average := choice.get("avg_decoded_tokens_per_iter")) is not None:
        said |= {"tokens_per_iteration": average, "headline": average}
    return tokens_event(choice.get("finish_reason"), choice["token_ids"], said)


def _command(server: Server, model: str, port: int, dtype: str) -> list[str]:
    raise NotPossibleError(
        "sbd starts no TensorRT-LLM, whose speculation is set in a file that can name code; start it yourself and give url"
    )


TENSORRT_LLM = Dialect(
    name="tensorrt_llm", path="/v1/completions", body=_body, read=_read, command=_command,
    headline="output tokens per iteration, the prompt's token and iteration among them",
)  # fmt: skip
