"""llama.cpp b11434: tools/server/server-task.cpp (events, counters), server-context.cpp:4220-4360, and runs of llama-server.

Every token is an event of its own. The tokens of one round share the time of the last decode (``timings.predicted_ms``), which
is set once a round; that is how they are told apart. A token that ends within a character of UTF-8 is counted and never sent.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from harness.errors import NotPossibleError
from harness.scenario.servers import Server
from harness.serving.dialects.dialect import (
    Count,
    Counts,
    Dialect,
    Figure,
    RequestFigures,
    RoundProgress,
    Sent,
    ServerRequest,
    StreamEvent,
    program_of,
    spec_counters,
    tokens_event,
)

GGUF_TYPES = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}
"""What llama.cpp's converter calls a dtype."""


class _Timings(Sent):
    predicted_ms: Figure
    cache_n: Count
    draft_n: Count = 0
    draft_n_accepted: Count = 0


class _Tokens(Sent):
    stop: bool
    tokens: Counts
    tokens_predicted: Count
    tokens_evaluated: Count
    timings: _Timings
    stop_type: Literal["none", "eos", "word", "limit"] = "none"


def gguf_of(model: str, dtype: str) -> str:
    """The GGUF file of the weights: ``model`` itself, or the one in its folder that was converted to the dtype.

    Raises:
        NotPossibleError: the folder has none.
    """
    if model.endswith(".gguf"):
        return model
    name = f"model-{GGUF_TYPES.get(dtype, dtype)}.gguf"
    if not (Path(model) / name).is_file():
        raise NotPossibleError(
            f"llama-server loads GGUF files, and {model} has no {name}; convert the weights once with llama.cpp's own program: "
            f"convert_hf_to_gguf.py {model} --outtype {GGUF_TYPES.get(dtype, dtype)} --outfile {Path(model) / name}"
        )
    return str(Path(model) / name)


class LlamaCpp(Dialect):
    """llama-server."""

    name = "llama_cpp"
    path = "/completion"
    about = "/props"
    headline = "1 + accepted drafts per pass that had a draft"
    whole = False
    counters = spec_counters("llamacpp") | {
        "passes": "llamacpp:n_decode_total"  # calls of llama_decode, the prompt's included
    }

    def body(self, request: ServerRequest, model: str) -> dict[str, object]:
        return {
            "prompt": list(request.ids),
            "n_predict": request.max_tokens,
            "temperature": request.temperature,
            "stream": True,
            "ignore_eos": request.ignore_stop,
            "seed": request.seed % (1 << 31),
            "return_tokens": True,
            "cache_prompt": False,
            "timings_per_token": True,
        }

    def read(self, sent: object) -> StreamEvent:
        event = _Tokens.of(sent)
        timings = event.timings
        said: RequestFigures = {"written": event.tokens_predicted}
        if not event.stop:
            here = RoundProgress(mark=timings.predicted_ms, drafted=timings.draft_n, accepted=timings.draft_n_accepted)
            return tokens_event(None, event.tokens, said, progress=here)
        said |= {"accepted": timings.draft_n_accepted, "cached": timings.cache_n, "prompt_tokens": event.tokens_evaluated}
        return tokens_event("length" if event.stop_type == "limit" else "stop", event.tokens, said)

    def command(self, server: Server, model: str, port: int, dtype: str) -> list[str]:
        program, weights = program_of("llama-server"), gguf_of(model, dtype)
        return [program, "--host", "127.0.0.1", "--port", str(port), "--model", weights, "--metrics", *server.arguments]
