"""LMDeploy 0.18.0, read and not run: serve/openai/endpoints/generate.py, serve/core/async_engine.py, metrics/loggers.py.

An answer that ends by itself comes in two events from its last pass: the tokens before the end, then the end alone. A pass of
the end alone sends an empty event first. A diffusion model (SDAR) is detected by its architecture; its passes are not told.
"""

from __future__ import annotations

from harness.scenario.servers import Server
from harness.serving.dialects.dialect import (
    ONE_PASS,
    Counts,
    Dialect,
    RequestFigures,
    Rounds,
    Sent,
    ServerFacts,
    ServerRequest,
    StreamEvent,
    Usage,
    program_of,
    spec_counters,
    tokens_event,
)


class _End(Sent):
    type: str


class _About(Usage):
    finish_reason: _End | None = None


class _Generated(Sent):
    output_ids: Counts
    meta_info: _About


class Lmdeploy(Dialect):
    """LMDeploy."""

    name = "lmdeploy"
    path = "/generate"
    about = "/v1/models"
    headline = "1 + accepted drafts per pass that had a draft"
    counters = spec_counters("lmdeploy") | {
        "passes": "lmdeploy:iteration_tokens_total_count",  # outputs, the prompt's included
        "requests": "lmdeploy:request_success_total",  # finished requests
        "cached": "lmdeploy:cached_tokens_total",  # prompt tokens found in a cache
    }

    def body(self, request: ServerRequest, model: str) -> dict[str, object]:
        return {
            "input_ids": list(request.ids),
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "stream": True,
            "ignore_eos": request.ignore_stop,
            "include_stop_str_in_output": True,
            "skip_special_tokens": False,
        }

    def read(self, sent: object) -> StreamEvent:
        event = _Generated.of(sent)
        about = event.meta_info
        reason = about.finish_reason.type if about.finish_reason else None
        said: RequestFigures = {"prompt_tokens": about.prompt_tokens, "written": about.completion_tokens}
        return tokens_event(reason, event.output_ids, said, same_round=reason == "stop")

    def rounds(self, about: ServerFacts, server: Server) -> Rounds:
        """From the arguments: the server describes nothing of it."""
        if any(word.startswith("--dllm-") for word in server.arguments):
            untold = "LMDeploy tells no passes of a diffusion model; its answers are timed, not counted"
            return Rounds(passes=None, untold=untold)
        return ONE_PASS

    def command(self, server: Server, model: str, port: int, dtype: str) -> list[str]:
        return [
            program_of("lmdeploy"),
            "serve",
            "api_server",
            model,
            "--server-name",
            "127.0.0.1",
            "--server-port",
            str(port),
            "--model-name",
            "model",
            "--dtype",
            dtype,
            "--backend",
            "pytorch",
            *server.arguments,
        ]
