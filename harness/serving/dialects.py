"""What an engine is called, how it is started and asked, and where it counts: one Dialect each, as data and three functions.

Sources: vLLM 0.32.0 (entrypoints/generate/base/protocol.py, v1/spec_decode/metrics.py) and a run of it; llama.cpp b11434
(tools/server/server-common.cpp, server-context.cpp).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from harness.errors import MissingExtraError, RequestError
from harness.record.trace import StopReason
from harness.scenario.servers import EngineName, Server
from harness.serving.counters import Counter


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What one event of a stream holds. ``said``: of the whole request, as in Answer."""

    ids: tuple[int, ...] = ()
    stop_reason: StopReason | None = None
    said: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a prompt is asked with, whatever the engine. ``exactly``: no stop ends the answer before ``max_tokens``."""

    ids: Sequence[int]
    max_tokens: int
    temperature: float
    seed: int
    salt: str
    exactly: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One engine.

    ``path``      where a prompt of token ids is sent
    ``body``      the request as this engine takes it, for the model of that name
    ``read``      an event of its stream
    ``command``   how it is started, from its own installation, for a folder of weights on a port
    ``health``    answers 200 once requests are served
    ``version``   path and key of its version
    ``counters``  its Prometheus counters, by this program's names: passes, rounds, drafted, accepted, requests, cached,
                  preempted, read_bytes; absent ones are not counted there
    ``model_of``  the name of the model in requests, from the answer of /v1/models
    """

    name: EngineName
    path: str
    body: Callable[[Request, str], dict[str, Any]]
    read: Callable[[Mapping[str, Any]], Event]
    command: Callable[[Server, str, int, str], list[str]]
    health: str = "/health"
    version: tuple[str, str] = ("/version", "version")
    counters: Mapping[str, Counter] = field(default_factory=dict)


def _spec_counters(prefix: str) -> dict[str, Counter]:
    """The schema that vLLM, llama.cpp and LMDeploy share."""
    said = {
        "rounds": ("drafts", "passes that checked a draft; one without a draft is not counted"),
        "drafted": ("draft_tokens", "tokens drafted"),
        "accepted": ("accepted_tokens", "drafted tokens that were accepted, those behind a stop included"),
    }
    return {
        own: Counter(name=f"{prefix}:spec_decode_num_{name}_total", unit="count", words=words)
        for own, (name, words) in said.items()
    }


def _open_ai(request: Request, model: str) -> dict[str, Any]:
    return {
        "model": model, "prompt": list(request.ids), "max_tokens": request.max_tokens, "temperature": request.temperature,
        "seed": request.seed % (1 << 31), "stream": True, "n": 1, "cache_salt": request.salt,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True}, "return_token_ids": True,
        **({"ignore_eos": True, "min_tokens": request.max_tokens} if request.exactly else {}),
    }  # fmt: skip


def _read_vllm(event: Mapping[str, Any]) -> Event:
    if "error" in event:
        return Event(error=str((event["error"] or {}).get("message", event["error"])))
    usage = event.get("usage") or {}
    said: dict[str, Any] = {"prompt_tokens": usage["prompt_tokens"]} if "prompt_tokens" in usage else {}
    spec = ((event.get("metrics") or {}).get("speculative_decoding")) or {}
    if spec:
        said |= {
            "rounds": spec["num_spec_steps"], "accepted": spec["num_accepted_draft_tokens"],
            "drafted": spec["num_draft_tokens"], "headline": spec["mean_acceptance_length"],
            "accepted_by_round": spec.get("per_step_accepted"), "drafted_by_round": spec.get("per_step_drafted"),
        }  # fmt: skip
    elif "metrics" in event:
        said["accepted"] = 0
    if not event.get("choices"):
        return Event(said=said)
    [choice] = event["choices"]
    return Event(ids=tuple(choice["token_ids"] or ()), stop_reason=choice.get("finish_reason"), said=said)


def _start_vllm(server: Server, model: str, port: int, dtype: str) -> list[str]:
    python = os.environ.get("SBD_VLLM_PYTHON") or (sys.executable if find_spec("vllm") else None)
    if python is None:
        raise MissingExtraError(
            "vLLM is not installed beside sbd; set SBD_VLLM_PYTHON to the Python of the environment that has it, or give url: "
            "of a running server (docs/servers.md)"
        )
    speculates = any(one.partition("=")[0] in ("--speculative-config", "-sc") for one in server.arguments)
    per_request = ["--per-request-spec-decode-metrics", "detailed"] if speculates else []
    return [
        python, "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", str(port), "--model", model,
        "--served-model-name", "model", "--dtype", dtype, "--no-enable-prefix-caching", "--enable-per-request-metrics",
        *per_request, "--enable-mfu-metrics", *server.arguments,
    ]  # fmt: skip


def _llama_cpp(request: Request, model: str) -> dict[str, Any]:
    return {
        "prompt": list(request.ids), "n_predict": request.max_tokens, "temperature": request.temperature, "stream": True,
        "seed": request.seed % (1 << 31), "return_tokens": True, "cache_prompt": False, "timings_per_token": False,
        **({"ignore_eos": True} if request.exactly else {}),
    }  # fmt: skip


def _read_llama_cpp(event: Mapping[str, Any]) -> Event:
    if "error" in event:
        return Event(error=str((event["error"] or {}).get("message", event["error"])))
    stop: StopReason | None = None
    said: dict[str, Any] = {}
    if event.get("stop"):
        stop = "length" if event.get("stop_type") == "limit" else "stop"
        timings = event.get("timings") or {}
        said = {
            "prompt_tokens": event.get("tokens_evaluated"), "drafted": timings.get("draft_n", 0),
            "accepted": timings.get("draft_n_accepted", 0), "cached": timings.get("cache_n"),
        }  # fmt: skip
    return Event(ids=tuple(event.get("tokens") or ()), stop_reason=stop, said=said)


def _start_llama_cpp(server: Server, model: str, port: int, dtype: str) -> list[str]:
    binary = os.environ.get("SBD_LLAMA_SERVER") or shutil.which("llama-server")
    if binary is None:
        raise MissingExtraError("llama-server is not on the PATH; set SBD_LLAMA_SERVER to it, or give url: of a running server")
    return [binary, "--host", "127.0.0.1", "--port", str(port), "--model", model, "--metrics", *server.arguments]


VLLM = Dialect(
    name="vllm", path="/v1/completions", body=_open_ai, read=_read_vllm, command=_start_vllm,
    counters=_spec_counters("vllm") | {
        "passes": Counter(name="vllm:iteration_tokens_total_count", unit="count", words="engine steps, the prompt's included"),
        "requests": Counter(name="vllm:request_success_total", unit="count", words="finished requests"),
        "cached": Counter(name="vllm:prefix_cache_hits_total", unit="tokens", words="prompt tokens found in a cache"),
        "preempted": Counter(name="vllm:num_preemptions_total", unit="count", words="requests put off for lack of KV memory"),
        "read_bytes": Counter(name="vllm:estimated_read_bytes_per_gpu_total", unit="bytes", words="bytes read, its estimate"),
    },
)  # fmt: skip
LLAMA_CPP = Dialect(
    name="llama_cpp", path="/completion", body=_llama_cpp, read=_read_llama_cpp, command=_start_llama_cpp,
    version=("/props", "build_info"),
    counters=_spec_counters("llamacpp") | {
        "passes": Counter(name="llamacpp:n_decode_total", unit="count", words="calls of llama_decode, the prompt's included"),
    },
)  # fmt: skip
DIALECTS: dict[EngineName, Dialect] = {one.name: one for one in (VLLM, LLAMA_CPP)}


def dialect_of(server: Server) -> Dialect:
    """The dialect that a server speaks."""
    return DIALECTS[server.engine]


def refuse_other_model(name: str, wanted: str | None, listed: Sequence[str]) -> str:
    """The model's name in requests.

    Raises:
        RequestError: the server serves another model, or several and none is named.
    """
    if wanted is None and len(listed) == 1:
        return listed[0]
    if wanted is not None and wanted in listed:
        return wanted
    asked = f"the scenario asks for {wanted!r}" if wanted else "the scenario names none (model:)"
    raise RequestError(f"server {name} serves {', '.join(listed) or 'no model'}; {asked}")
