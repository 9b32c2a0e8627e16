"""Published models, so that a plan or a prediction needs no download: the part of their configs that the arithmetic uses."""

from __future__ import annotations

from dataclasses import dataclass

from harness.models.config import Config, shape_from_config
from harness.models.shape import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """``config`` is an excerpt of the config.json of the hub repository ``source``; ``note`` names the exceptions."""

    source: str
    config: Config
    note: str = ""


def _config(model_type: str, layers: int, hidden: int, intermediate: int, heads: int, kv_heads: int, **more: object) -> Config:
    return {
        "model_type": model_type,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        **more,
    }


def _llama(layers: int, hidden: int, intermediate: int, heads: int, **more: object) -> Config:
    shared = {"vocab_size": 128_256, "max_position_embeddings": 131_072}
    return _config("llama", layers, hidden, intermediate, heads, 8, **shared, **more)


def _qwen3(layers: int, hidden: int, intermediate: int, heads: int, tied: bool = False) -> Config:
    shared = {"head_dim": 128, "vocab_size": 151_936, "max_position_embeddings": 40_960, "tie_word_embeddings": tied}
    return _config("qwen3", layers, hidden, intermediate, heads, 8, **shared)


def _qwen3_moe(layers: int, hidden: int, intermediate: int, heads: int, expert: int) -> Config:
    return _config(
        "qwen3_moe", layers, hidden, intermediate, heads, 4, head_dim=128, vocab_size=151_936, max_position_embeddings=40_960,
        num_experts=128, num_experts_per_tok=8, moe_intermediate_size=expert, decoder_sparse_step=1, mlp_only_layers=[],
    )  # fmt: skip


def _gemma3(layers: int, hidden: int, intermediate: int, heads: int, kv_heads: int, **more: object) -> Config:
    shared = {"sliding_window": 1024, "vocab_size": 262_208, "max_position_embeddings": 131_072}
    return _config("gemma3_text", layers, hidden, intermediate, heads, kv_heads, **shared, **more)


def _nemotron(layers: int, hidden: int, intermediate: int) -> Config:
    return _config(
        "nemotron_labs_diffusion", layers, hidden, intermediate, 32, 8, head_dim=128, vocab_size=131_072,
        max_position_embeddings=262_144, tie_word_embeddings=False,
    )  # fmt: skip


_GEMMA3_NOTE = "its text_config; what the hub file leaves out are the defaults of transformers' Gemma3TextConfig"
_NEMOTRON_NOTE = "as quoted in public code that loads it; the vision part of a VLM is not counted"

KNOWN_MODELS: dict[str, KnownModel] = {
    "llama-3.1-8b": KnownModel(source="meta-llama/Llama-3.1-8B", config=_llama(32, 4096, 14336, 32)),
    "llama-3.1-70b": KnownModel(source="meta-llama/Llama-3.1-70B", config=_llama(80, 8192, 28672, 64)),
    "llama-3.1-405b": KnownModel(source="meta-llama/Llama-3.1-405B", config=_llama(126, 16384, 53248, 128)),
    "llama-3.2-1b": KnownModel(
        source="meta-llama/Llama-3.2-1B", config=_llama(16, 2048, 8192, 32, head_dim=64, tie_word_embeddings=True)
    ),
    "llama-3.2-3b": KnownModel(
        source="meta-llama/Llama-3.2-3B", config=_llama(28, 3072, 8192, 24, head_dim=128, tie_word_embeddings=True)
    ),
    "qwen3-0.6b": KnownModel(source="Qwen/Qwen3-0.6B", config=_qwen3(28, 1024, 3072, 16, tied=True)),
    "qwen3-1.7b": KnownModel(source="Qwen/Qwen3-1.7B", config=_qwen3(28, 2048, 6144, 16, tied=True)),
    "qwen3-4b": KnownModel(source="Qwen/Qwen3-4B", config=_qwen3(36, 2560, 9728, 32, tied=True)),
    "qwen3-8b": KnownModel(source="Qwen/Qwen3-8B", config=_qwen3(36, 4096, 12288, 32)),
    "qwen3-14b": KnownModel(source="Qwen/Qwen3-14B", config=_qwen3(40, 5120, 17408, 40)),
    "qwen3-32b": KnownModel(source="Qwen/Qwen3-32B", config=_qwen3(64, 5120, 25600, 64)),
    "qwen3-30b-a3b": KnownModel(source="Qwen/Qwen3-30B-A3B", config=_qwen3_moe(48, 2048, 6144, 32, expert=768)),
    "qwen3-235b-a22b": KnownModel(source="Qwen/Qwen3-235B-A22B", config=_qwen3_moe(94, 4096, 12288, 64, expert=1536)),
    "mistral-7b": KnownModel(
        source="mistralai/Mistral-7B-v0.1",
        config=_config("mistral", 32, 4096, 14336, 32, 8, vocab_size=32_000, sliding_window=4096,
                       max_position_embeddings=32_768),
    ),
    "ministral-8b": KnownModel(
        source="mistralai/Ministral-8B-Instruct-2410",
        note="windows (128k, 32k, 32k, 32k) and positions as its model card says; config.json has 32k for all",
        config=_config(
            "ministral", 36, 4096, 12288, 32, 8, head_dim=128, vocab_size=131_072, sliding_window=32_768,
            max_position_embeddings=131_072, layer_types=["full_attention", *["sliding_attention"] * 3] * 9,
        ),
    ),
    "mistral-small-24b": KnownModel(
        source="mistralai/Mistral-Small-24B-Base-2501",
        config=_config(
            "mistral", 40, 5120, 32768, 32, 8, head_dim=128, vocab_size=131_072, sliding_window=None,
            max_position_embeddings=32_768,
        ),
    ),
    "gemma-2-9b": KnownModel(
        source="google/gemma-2-9b",
        config=_config("gemma2", 42, 3584, 14336, 16, 8, head_dim=256, vocab_size=256_000, sliding_window=4096,
                       max_position_embeddings=8192),
    ),
    "gemma-3-4b": KnownModel(source="google/gemma-3-4b-it", note=_GEMMA3_NOTE, config=_gemma3(34, 2560, 10240, 8, 4)),
    "gemma-3-12b": KnownModel(source="google/gemma-3-12b-it", note=_GEMMA3_NOTE, config=_gemma3(48, 3840, 15360, 16, 8)),
    "gemma-3-27b": KnownModel(
        source="google/gemma-3-27b-it", note=_GEMMA3_NOTE, config=_gemma3(62, 5376, 21504, 32, 16, head_dim=128)
    ),
    "deepseek-v3": KnownModel(
        source="deepseek-ai/DeepSeek-V3",
        note="the main model; its multi-token-prediction module (14B more in the checkpoint) is not counted",
        config=_config(
            "deepseek_v3", 61, 7168, 18432, 128, 128, vocab_size=129_280, max_position_embeddings=163_840, q_lora_rank=1536,
            kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, n_routed_experts=256,
            n_shared_experts=1, num_experts_per_tok=8, moe_intermediate_size=2048, first_k_dense_replace=3,
        ),
    ),
    "nemotron-labs-diffusion-3b": KnownModel(
        source="nvidia/Nemotron-Labs-Diffusion-3B", note=_NEMOTRON_NOTE, config=_nemotron(26, 3072, 9216)
    ),
    "nemotron-labs-diffusion-8b": KnownModel(
        source="nvidia/Nemotron-Labs-Diffusion-8B", note=_NEMOTRON_NOTE, config=_nemotron(34, 4096, 14336)
    ),
    "nemotron-labs-diffusion-14b": KnownModel(
        source="nvidia/Nemotron-Labs-Diffusion-14B", note=_NEMOTRON_NOTE, config=_nemotron(40, 5120, 16384)
    ),
}  # fmt: skip

# Published nowhere: a small Llama for runs on a CPU, larger than its cache in bfloat16.
_LLAMA_250M = ModelShape(
    name="llama-250m", layers=16, hidden=1024, intermediate=3584, heads=16, kv_heads=4, head_dim=64, vocab=32_000,
    tied_embeddings=True, max_positions=4096,
)  # fmt: skip

KNOWN_SHAPES: dict[str, ModelShape] = {
    **{name: shape_from_config(name, model.config) for name, model in KNOWN_MODELS.items()},
    _LLAMA_250M.name: _LLAMA_250M,
}
