"""vLLM 0.32.0: entrypoints/generate/base/protocol.py, v1/spec_decode/metrics.py, and runs of it."""

from __future__ import annotations

from harness.errors import RequestError
from harness.scenario.servers import Server
from harness.serving.dialects.dialect import (
    Completion,
    Count,
    Counts,
    Dialect,
    Figure,
    RequestFigures,
    Sent,
    ServerRequest,
    StreamEvent,
    python_of,
    spec_counters,
)


class _VllmSpeculation(Sent):
    num_spec_steps: Count
    num_accepted_draft_tokens: Count
    num_draft_tokens: Count
    mean_acceptance_length: Figure
    per_step_accepted: Counts | None = None
    per_step_drafted: Counts | None = None


class _Metrics(Sent):
    speculative_decoding: _VllmSpeculation | None = None


class _VllmCompletion(Completion):
    metrics: _Metrics | None = None


class Vllm(Dialect):
    """vLLM."""

    name = "vllm"
    headline = "1 + accepted drafts per pass that had a draft, those after an answer's end included"
    counters = spec_counters("vllm") | {
        "passes": "vllm:iteration_tokens_total_count",  # engine steps, the prompt's included
        "requests": "vllm:request_success_total",  # finished requests
        "cached": "vllm:prefix_cache_hits_total",  # prompt tokens found in a cache
        "preempted": "vllm:num_preemptions_total",  # requests put off for lack of KV memory
        "read_bytes": "vllm:estimated_read_bytes_per_gpu_total",  # bytes read, its estimate
    }

    def body(self, request: ServerRequest, model: str) -> dict[str, object]:
        return super().body(request, model) | {"cache_salt": request.salt, "return_token_ids": True}

    def read(self, sent: object) -> StreamEvent:
        event = _VllmCompletion.of(sent)
        said: RequestFigures = {}
        if event.metrics and (spec := event.metrics.speculative_decoding):
            if any(listed and len(listed) != spec.num_spec_steps for listed in (spec.per_step_accepted, spec.per_step_drafted)):
                raise RequestError(f"it lists other rounds than its num_spec_steps, {spec.num_spec_steps}")
            said = {
                "accepted": spec.num_accepted_draft_tokens,
                "headline": spec.mean_acceptance_length,
                "accepted_by_round": spec.per_step_accepted,
                "drafted_by_round": spec.per_step_drafted,
            }
        elif event.metrics:
            said["accepted"] = 0
        return event.told(said)

    def command(self, server: Server, model: str, port: int, dtype: str) -> list[str]:
        speculates = any(word.partition("=")[0] in ("--speculative-config", "-sc") for word in server.arguments)
        per_request = ["--per-request-spec-decode-metrics", "detailed"] if speculates else []
        return [
            python_of("vLLM", "vllm"),
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--model",
            model,
            "--served-model-name",
            "model",
            "--dtype",
            dtype,
            "--no-enable-prefix-caching",
            "--enable-per-request-metrics",
            *per_request,
            "--enable-mfu-metrics",
            *server.arguments,
        ]
