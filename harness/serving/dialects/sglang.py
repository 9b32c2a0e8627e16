"""SGLang 0.5.23, read and not run: srt/entrypoints/openai/serving_completions.py, srt/managers/tokenizer_manager.py:3139-3200.

Its own figures have traps. ``spec_accept_length`` divides all output tokens by the rounds, the prompt's token among them.
``spec_num_proposed_drafts`` is rounds x (draft tokens - 1), whatever was proposed. ``spec_num_correct_drafts`` counts drafts
after an answer's end. With UNO a round is two passes of the served model, one that drafts and one that checks, and two of its
tokens come from no draft (srt/speculative/uno_worker_v2.py:612). A diffusion model's passes are not told at all: those of a
block run inside one step of the scheduler. The counter of decode steps (sglang:cuda_graph_passes_total) is not read: a step
begun before an answer's end was seen is in it.
"""

from __future__ import annotations

from collections.abc import Mapping

from harness.scenario.servers import Server
from harness.serving.dialects.dialect import (
    Completion,
    Count,
    Counts,
    Dialect,
    Figure,
    RequestFigures,
    Rounds,
    Sent,
    ServerFacts,
    ServerRequest,
    StreamEvent,
    python_of,
)


class _Speculation(Sent):
    spec_verify_ct: Count
    spec_num_correct_drafts: Count
    spec_accept_length: Figure
    spec_correct_drafts_histogram: Counts


class _More(Sent):
    spec_tokens_details: _Speculation | None = None


class _Completion(Completion):
    sglext: _More | None = None


class Sglang(Dialect):
    """SGLang."""

    name = "sglang"
    about = "/server_info"
    headline = "all output tokens, the prompt's among them, per round; a round of UNO is two passes"
    counters: Mapping[str, str] = {
        "requests": "sglang:num_requests_total",  # finished requests
        "cached": "sglang:cached_tokens_total",  # prompt tokens found in a cache
        "preempted": "sglang:num_retracted_requests_total",  # requests put off for lack of KV
        "read_bytes": "sglang:estimated_read_bytes_per_gpu_total",  # bytes read, its estimate
    }

    def body(self, request: ServerRequest, model: str) -> dict[str, object]:
        return super().body(request, model) | {
            "cache_salt": request.salt,
            "return_token_ids": True,
            "return_spec_tokens_details": True,
        }

    def read(self, sent: object) -> StreamEvent:
        event = _Completion.of(sent)
        said: RequestFigures = {}
        if event.sglext and (spec := event.sglext.spec_tokens_details):
            said = {
                "steps": spec.spec_verify_ct,
                "accepted": spec.spec_num_correct_drafts,
                "headline": spec.spec_accept_length,
                "accepted_histogram": spec.spec_correct_drafts_histogram,
            }
        return event.told(said)

    def rounds(self, about: ServerFacts, server: Server) -> Rounds:
        """From its startup configuration (/server_info)."""
        if about.dllm_algorithm:
            return Rounds(passes=None, untold="SGLang tells no passes of a diffusion model; its answers are timed, not counted")
        if about.speculative_algorithm is None:
            return Rounds(drafts=False if about.model_fields_set else None)
        each = 2 if about.speculative_algorithm.upper() == "UNO" else 1
        return Rounds(passes=each, own_tokens=each, fed=about.speculative_num_draft_tokens, drafts=True)

    def command(self, server: Server, model: str, port: int, dtype: str) -> list[str]:
        return [
            python_of("SGLang", "sglang"),
            "-m",
            "sglang.launch_server",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--model-path",
            model,
            "--served-model-name",
            "model",
            "--dtype",
            dtype,
            "--disable-radix-cache",
            "--enable-metrics",
            *server.arguments,
        ]
