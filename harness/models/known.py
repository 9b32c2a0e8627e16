"""Published models, so that a plan or a prediction needs no download: the part of their configs that the arithmetic uses."""

from __future__ import annotations

import difflib
import re

from harness.frozen import frozen
from harness.models.config import Config, shape_from_config
from harness.models.shape import ModelShape


@frozen
class KnownModel:
    """``config`` is an excerpt of the config.json of the hub repository ``source``; ``note`` names the exceptions."""

    source: str
    config: Config
    note: str = ""


def _known(
    source: str, shared: Config, layers: int, hidden: int, intermediate: int, heads: int, note: str = "", **more: object
) -> KnownModel:
    """A model of a family: what all of its sizes have, then this size and what it alone has."""
    size = {"num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": intermediate, "num_attention_heads": heads}
    return KnownModel(source=source, config={**shared, **size, **more}, note=note)


def _shared(model_type: str, kv_heads: int, vocab: int, positions: int, **more: object) -> Config:
    """The keys that all sizes of a family have."""
    return {
        "model_type": model_type,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocab,
        "max_position_embeddings": positions,
        **more,
    }


_LLAMA = _shared("llama", 8, 128_256, 131_072)
_QWEN3 = _shared("qwen3", 8, 151_936, 40_960, head_dim=128, tie_word_embeddings=False)
_QWEN3_TIED = _QWEN3 | {"tie_word_embeddings": True}
_QWEN3_MOE = _shared(
    "qwen3_moe",
    4,
    151_936,
    40_960,
    head_dim=128,
    num_experts=128,
    num_experts_per_tok=8,
    decoder_sparse_step=1,
    mlp_only_layers=[],
)
_GEMMA3 = _shared("gemma3_text", 8, 262_208, 131_072, sliding_window=1024)
_NEMOTRON = _shared("nemotron_labs_diffusion", 8, 131_072, 262_144, head_dim=128, tie_word_embeddings=False)
_GEMMA3_NOTE = "its text_config; what the hub file leaves out are the defaults of transformers' Gemma3TextConfig"
_NEMOTRON_NOTE = "as quoted in public code that loads it; the vision part of a VLM is not counted"

KNOWN_MODELS: dict[str, KnownModel] = {
    "llama-3.1-8b": _known("meta-llama/Llama-3.1-8B", _LLAMA, 32, 4096, 14336, 32),
    "llama-3.1-70b": _known("meta-llama/Llama-3.1-70B", _LLAMA, 80, 8192, 28672, 64),
    "llama-3.1-405b": _known("meta-llama/Llama-3.1-405B", _LLAMA, 126, 16384, 53248, 128),
    "llama-3.2-1b": _known("meta-llama/Llama-3.2-1B", _LLAMA, 16, 2048, 8192, 32, head_dim=64, tie_word_embeddings=True),
    "llama-3.2-3b": _known("meta-llama/Llama-3.2-3B", _LLAMA, 28, 3072, 8192, 24, head_dim=128, tie_word_embeddings=True),
    "smollm2-135m": _known(
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        _shared("llama", 3, 49_152, 8192),
        30,
        576,
        1536,
        9,
        head_dim=64,
        tie_word_embeddings=True,
    ),
    "qwen3-0.6b": _known("Qwen/Qwen3-0.6B", _QWEN3_TIED, 28, 1024, 3072, 16),
    "qwen3-1.7b": _known("Qwen/Qwen3-1.7B", _QWEN3_TIED, 28, 2048, 6144, 16),
    "qwen3-4b": _known("Qwen/Qwen3-4B", _QWEN3_TIED, 36, 2560, 9728, 32),
    "qwen3-8b": _known("Qwen/Qwen3-8B", _QWEN3, 36, 4096, 12288, 32),
    "qwen3-14b": _known("Qwen/Qwen3-14B", _QWEN3, 40, 5120, 17408, 40),
    "qwen3-32b": _known("Qwen/Qwen3-32B", _QWEN3, 64, 5120, 25600, 64),
    "qwen3-30b-a3b": _known("Qwen/Qwen3-30B-A3B", _QWEN3_MOE, 48, 2048, 6144, 32, moe_intermediate_size=768),
    "qwen3-235b-a22b": _known("Qwen/Qwen3-235B-A22B", _QWEN3_MOE, 94, 4096, 12288, 64, moe_intermediate_size=1536),
    "mistral-7b": _known(
        "mistralai/Mistral-7B-v0.1", _shared("mistral", 8, 32_000, 32_768), 32, 4096, 14336, 32, sliding_window=4096
    ),
    "ministral-8b": _known(
        "mistralai/Ministral-8B-Instruct-2410",
        _shared("ministral", 8, 131_072, 131_072),
        36,
        4096,
        12288,
        32,
        note="windows (128k, 32k, 32k, 32k) and positions as its model card says; config.json has 32k for all",
        head_dim=128,
        sliding_window=32_768,
        layer_types=["full_attention", *["sliding_attention"] * 3] * 9,
    ),
    "mistral-small-24b": _known(
        "mistralai/Mistral-Small-24B-Base-2501",
        _shared("mistral", 8, 131_072, 32_768),
        40,
        5120,
        32768,
        32,
        head_dim=128,
        sliding_window=None,
    ),
    "gemma-2-9b": _known(
        "google/gemma-2-9b", _shared("gemma2", 8, 256_000, 8192), 42, 3584, 14336, 16, head_dim=256, sliding_window=4096
    ),
    "gemma-3-4b": _known("google/gemma-3-4b-it", _GEMMA3, 34, 2560, 10240, 8, _GEMMA3_NOTE, num_key_value_heads=4),
    "gemma-3-12b": _known("google/gemma-3-12b-it", _GEMMA3, 48, 3840, 15360, 16, _GEMMA3_NOTE),
    "gemma-3-27b": _known(
        "google/gemma-3-27b-it", _GEMMA3, 62, 5376, 21504, 32, _GEMMA3_NOTE, num_key_value_heads=16, head_dim=128
    ),
    "deepseek-v3": _known(
        "deepseek-ai/DeepSeek-V3",
        _shared("deepseek_v3", 128, 129_280, 163_840),
        61,
        7168,
        18432,
        128,
        note="the main model; its multi-token-prediction module (14B more in the checkpoint) is not counted",
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        n_routed_experts=256,
        n_shared_experts=1,
        num_experts_per_tok=8,
        moe_intermediate_size=2048,
        first_k_dense_replace=3,
    ),
    "nemotron-labs-diffusion-3b": _known("nvidia/Nemotron-Labs-Diffusion-3B", _NEMOTRON, 26, 3072, 9216, 32, _NEMOTRON_NOTE),
    "nemotron-labs-diffusion-8b": _known("nvidia/Nemotron-Labs-Diffusion-8B", _NEMOTRON, 34, 4096, 14336, 32, _NEMOTRON_NOTE),
    "nemotron-labs-diffusion-14b": _known("nvidia/Nemotron-Labs-Diffusion-14B", _NEMOTRON, 40, 5120, 16384, 32, _NEMOTRON_NOTE),
}

# Published nowhere: a small Llama for runs on a CPU, larger than its cache in bfloat16.
_LLAMA_250M = ModelShape(
    name="llama-250m",
    layers=16,
    hidden=1024,
    intermediate=3584,
    heads=16,
    kv_heads=4,
    head_dim=64,
    vocab=32_000,
    tied_embeddings=True,
    max_positions=4096,
)

KNOWN_SHAPES: dict[str, ModelShape] = {
    **{name: shape_from_config(name, model.config) for name, model in KNOWN_MODELS.items()},
    _LLAMA_250M.name: _LLAMA_250M,
}

_TUNED = re.compile(r"(-instruct|-it|-base|-chat|-hf)+(-\d{4})?$")


def known_name(written: str) -> tuple[str | None, str]:
    """The name of a known shape as people write it: in capitals, by its repository on the hub, or by that of a tuned one. None,
    with the nearest names in words, where none is meant.
    """
    by_alias = {alias: name for name, known in KNOWN_MODELS.items() for alias in _aliases(known.source)}
    by_alias |= {name.lower(): name for name in KNOWN_SHAPES}
    near = difflib.get_close_matches(_aliases(written)[1], KNOWN_SHAPES, n=2)
    hint = f" (did you mean {' or '.join(near)}?)" if near else ""
    return next((by_alias[alias] for alias in _aliases(written) if alias in by_alias), None), hint


def _aliases(repository: str) -> list[str]:
    """How a repository is called: with and without its owner, and without what was tuned."""
    whole = repository.lower()
    short = whole.rpartition("/")[2]
    return [whole, short, _TUNED.sub("", short)]
