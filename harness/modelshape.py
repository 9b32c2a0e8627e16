"""What the arithmetic needs to know of a model: widths and counts, no weights.

A ModelShape can be read off a transformers config, a record, or written by hand; the roofline prices it.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, PositiveInt

DTYPE_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "float8": 1}


class ModelShape(BaseModel):
    """A decoder-only transformer of the Llama/Qwen/Mistral family (gated FFN, RMS norms, rotary positions)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    architecture: str = "llama"
    layers: PositiveInt
    hidden: PositiveInt
    intermediate: PositiveInt
    heads: PositiveInt
    kv_heads: PositiveInt
    head_dim: PositiveInt
    vocab: PositiveInt
    tied_embeddings: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    gated_ffn: bool = True
    max_positions: PositiveInt | None = None

    @property
    def attention_params(self) -> int:
        """Weights of one layer's Q, K, V and O projections (with biases where the model has them)."""
        q = self.heads * self.head_dim
        kv = self.kv_heads * self.head_dim
        bias = q + 2 * kv if self.qkv_bias else 0
        norms = 2 * self.head_dim if self.qk_norm else 0
        return self.hidden * q + 2 * self.hidden * kv + q * self.hidden + bias + norms

    @property
    def ffn_params(self) -> int:
        """Weights of one layer's feed-forward network (gate, up, down)."""
        return (3 if self.gated_ffn else 2) * self.hidden * self.intermediate

    @property
    def embedding_params(self) -> int:
        """Weights of the token embedding (shared with the LM head when tied)."""
        return self.vocab * self.hidden

    @property
    def params(self) -> int:
        """All weights of the model."""
        per_layer = self.attention_params + self.ffn_params + 2 * self.hidden
        heads = self.embedding_params * (1 if self.tied_embeddings else 2)
        return self.layers * per_layer + self.hidden + heads

    @property
    def streamed_params(self) -> int:
        """Weights that every forward pass reads in full: all but the looked-up embedding table, LM head included."""
        return self.params - (0 if self.tied_embeddings else self.embedding_params)

    def kv_bytes_per_token(self, dtype: str) -> int:
        """KV-cache bytes that one committed token adds over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * DTYPE_BYTES[dtype]

    @classmethod
    def from_config(cls, name: str, config: dict[str, Any]) -> ModelShape:
        """Read the shape off a transformers config given as a dict (``config.to_dict()``)."""
        heads = config["num_attention_heads"]
        head_dim = config.get("head_dim") or config["hidden_size"] // heads
        architecture = config.get("model_type", "llama")
        return cls(
            name=name,
            architecture=architecture,
            layers=config["num_hidden_layers"],
            hidden=config["hidden_size"],
            intermediate=config["intermediate_size"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            head_dim=head_dim,
            vocab=config["vocab_size"],
            tied_embeddings=bool(config.get("tie_word_embeddings", False)),
            qkv_bias=bool(config.get("attention_bias", False)) or architecture == "qwen2",
            qk_norm=architecture == "qwen3",
            max_positions=config.get("max_position_embeddings"),
        )


# Published architectures, so that a plan or a prediction needs no download. Source: the config.json of each model card.
KNOWN_SHAPES: dict[str, ModelShape] = {
    shape.name: shape
    for shape in (
        ModelShape(name="llama-3.1-8b", layers=32, hidden=4096, intermediate=14336, heads=32, kv_heads=8, head_dim=128,
                   vocab=128256, max_positions=131072),
        ModelShape(name="qwen3-8b", architecture="qwen3", layers=36, hidden=4096, intermediate=12288, heads=32, kv_heads=8,
                   head_dim=128, vocab=151936, qk_norm=True, max_positions=40960),
        ModelShape(name="llama-250m", layers=16, hidden=1024, intermediate=3584, heads=16, kv_heads=4, head_dim=64,
                   vocab=32000, tied_embeddings=True, max_positions=4096),
    )
}  # fmt: skip
