"""TensorRT-LLM, read and not run (repository at 0076e93): serve/openai_protocol.py, llmapi and batch_manager/llmRequest.h.

A request has one figure, ``avg_decoded_tokens_per_iter``: output tokens over iterations, the prompt's iteration among both. So
the decode passes are tokens / figure - 1. Unknown fields of a request are refused. Its counters (/prometheus/metrics) grow only
with settings of its own, so none is read.
"""

from __future__ import annotations

from harness.errors import NotPossibleError
from harness.scenario.servers import Server
from harness.serving.dialects.dialect import Completion, Dialect, RequestFigures, ServerRequest, StreamEvent


class TensorRtLlm(Dialect):
    """trtllm-serve."""

    name = "tensorrt_llm"
    headline = "output tokens per iteration, the prompt's token and iteration among them"

    def body(self, request: ServerRequest, model: str) -> dict[str, object]:
        return super().body(request, model) | {"detokenize": False}

    def read(self, sent: object) -> StreamEvent:
        event = Completion.of(sent)
        averages = [choice.avg_decoded_tokens_per_iter for choice in event.choices]
        said: RequestFigures = {}
        if averages and averages[0] is not None:
            said = {"tokens_per_iteration": averages[0], "headline": averages[0]}
        return event.told(said)

    def command(self, server: Server, model: str, port: int, dtype: str) -> list[str]:
        raise NotPossibleError(
            "sbd starts no TensorRT-LLM, whose speculation is set in a file that can name code; start it yourself and give url"
        )
