"""A decoder-only transformer as counts and widths, and the parameters that follow from them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

DTYPE_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "float8": 1}
MOST_LAYERS = 1 << 16
Size = Annotated[int, Field(ge=1, lt=1 << 31)]
"""A count or a width, bounded widely enough for every model, so that arithmetic on it stays finite."""
SizeOrZero = Annotated[int, Field(ge=0, lt=1 << 31)]


class _FrozenShape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class MixtureOfExperts(_FrozenShape):
    """The feed-forward network of the routing layers: every token visits ``experts_per_token`` of ``experts``."""

    experts: Size
    """Routed experts of a layer."""
    experts_per_token: Size
    """Experts that every token visits."""
    intermediate: Size
    """Inner width of one expert."""
    layers: Size
    """Routing layers; the others are dense."""
    shared_intermediate: SizeOrZero = 0
    """Inner width of all shared experts together, which every token visits; 0: none."""
    router_bias: bool = False
    """Whether the router adds a learned bias per expert to its scores (DeepSeek-V3)."""


class LatentAttention(_FrozenShape):
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): K and V are cached as one low-rank latent.

    The cache of a token holds ``kv_lora_rank`` elements of the latent and ``qk_rope_head_dim`` of the one rotated key.
    """

    q_lora_rank: Size | None
    """Rank of the latent of Q; null where Q is projected in one step."""
    kv_lora_rank: Size
    """Elements of the latent of K and V that are cached per token."""
    qk_nope_head_dim: Size
    """Width of the part of Q and K without rotation, per head."""
    qk_rope_head_dim: Size
    """Width of the rotated part; its key is cached once per token, for all heads."""
    v_head_dim: Size
    """Width of V, per head."""


class ModelShape(_FrozenShape):
    """A decoder-only transformer with RMS norms and rotary positions."""

    name: str
    """Name in tables."""
    architecture: str = "llama"
    """Family of transformers, as `model_type` of a config.json has it."""
    layers: Annotated[Size, Field(le=MOST_LAYERS)]
    """Transformer layers."""
    hidden: Size
    """Hidden width."""
    intermediate: Size
    """Inner width of a dense feed-forward network."""
    heads: Size
    """Query heads."""
    kv_heads: Size
    """Heads of K and V; equals `heads` with `mla`."""
    head_dim: Size
    """Width of a head; with `mla` of a query, both parts."""
    vocab: Size
    """Rows of the embedding."""
    tied_embeddings: bool = False
    """Whether the LM head shares the embedding's weights."""
    qkv_bias: bool = False
    """Whether Q, K and V have biases."""
    o_bias: bool = False
    """Whether the output projection has a bias."""
    ffn_bias: bool = False
    """Whether the feed-forward network has biases."""
    qk_norm: bool = False
    """Whether Q and K have a norm over the head width."""
    gated_ffn: bool = True
    """Whether the feed-forward network has a gate, and so three matrices."""
    norms_per_layer: Size = 2
    """Norms over the hidden width in a layer (2; Gemma 2 and 3 have 4)."""
    sliding_window: Size | None = None
    """Tokens that a sliding layer sees, its own included. Left out: no layer slides."""
    sliding_layers: SizeOrZero = 0
    """How many layers slide; which ones does not matter to the arithmetic."""
    moe: MixtureOfExperts | None = None
    """The mixture of experts. Left out: the network is dense."""
    mla: LatentAttention | None = None
    """Latent attention. Left out: ordinary attention."""
    max_positions: Size | None = None
    """Longest context that the model is made for, in tokens. Left out: not known."""

    @model_validator(mode="after")
    def _consistent(self) -> ModelShape:
        if (self.sliding_window is None) != (self.sliding_layers == 0) or self.sliding_layers > self.layers:
            raise ValueError(
                f"{self.sliding_layers} of {self.layers} layers slide with a window of {self.sliding_window}; give both "
                "sliding_window and sliding_layers (at most all layers), or neither"
            )
        if self.moe and (self.moe.layers > self.layers or self.moe.experts_per_token > self.moe.experts):
            raise ValueError(
                f"{self.moe.layers} of {self.layers} layers route to {self.moe.experts_per_token} of {self.moe.experts} "
                "experts; neither may be more than there are"
            )
        return self

    @property
    def full_layers(self) -> int:
        """Layers whose attention sees the whole context."""
        return self.layers - self.sliding_layers

    @property
    def dense_layers(self) -> int:
        """Layers with an ordinary feed-forward network."""
        return self.layers - (self.moe.layers if self.moe else 0)

    @property
    def kv_width(self) -> int:
        """Elements that one token adds to the cache of one layer: K and V of all KV heads, or the latent and its key."""
        if self.mla:
            return self.mla.kv_lora_rank + self.mla.qk_rope_head_dim
        return 2 * self.kv_heads * self.head_dim

    @property
    def qkv_weights(self) -> int:
        """Matrix elements of one layer that make Q, K and V of a token (with ``mla``: both down- and both up-projections)."""
        if self.mla is None:
            return self.hidden * (self.heads + 2 * self.kv_heads) * self.head_dim
        latent, q_width = self.mla, self.heads * self.head_dim
        rank = latent.q_lora_rank
        queries = self.hidden * q_width if rank is None else rank * (self.hidden + q_width)
        up = latent.kv_lora_rank * self.heads * (latent.qk_nope_head_dim + latent.v_head_dim)
        return queries + self.hidden * self.kv_width + up

    @property
    def qkv_biases(self) -> int:
        """Bias elements of these projections in one layer; with ``mla`` only the down-projections have one."""
        if not self.qkv_bias:
            return 0
        if self.mla:
            return self.kv_width + (self.mla.q_lora_rank or 0)
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def o_width(self) -> int:
        """Input width of the output projection."""
        return self.heads * (self.mla.v_head_dim if self.mla else self.head_dim)

    @property
    def head_norms(self) -> int:
        """Norm elements inside the attention of one layer: of Q and K, or of the two latents."""
        if self.mla:
            return self.mla.kv_lora_rank + (self.mla.q_lora_rank or 0)
        return 2 * self.head_dim if self.qk_norm else 0

    @property
    def attention_params(self) -> int:
        """Weights of one layer's Q, K, V and O projections, with their biases and norms."""
        output = self.o_width * self.hidden + (self.hidden if self.o_bias else 0)
        return self.qkv_weights + self.qkv_biases + output + self.head_norms

    @property
    def ffn_params(self) -> int:
        """Weights of one dense layer's feed-forward network (gate, up, down, and their biases)."""
        inputs = 2 if self.gated_ffn else 1
        return self.ffn_weights(self.intermediate) + (inputs * self.intermediate + self.hidden if self.ffn_bias else 0)

    def ffn_weights(self, intermediate: int) -> int:
        """Matrix elements of a feed-forward network, or of an expert, that is ``intermediate`` wide inside."""
        return (3 if self.gated_ffn else 2) * self.hidden * intermediate

    @property
    def routed_params(self) -> int:
        """Weights of one routing layer: its router, the shared experts, and all experts."""
        if self.moe is None:
            return 0
        router = self.moe.experts * (self.hidden + self.moe.router_bias)
        return router + self.ffn_weights(self.moe.shared_intermediate + self.moe.experts * self.moe.intermediate)

    @property
    def embedding_params(self) -> int:
        """Weights of the token embedding (shared with the LM head when tied)."""
        return self.vocab * self.hidden

    @property
    def params(self) -> int:
        """All weights of the model."""
        every_layer = self.attention_params + self.norms_per_layer * self.hidden
        routed = self.moe.layers * self.routed_params if self.moe else 0
        embeddings = self.embedding_params * (1 if self.tied_embeddings else 2)
        return self.layers * every_layer + self.dense_layers * self.ffn_params + routed + self.hidden + embeddings

    @property
    def streamed_params(self) -> int:
        """Weights that a forward pass may read: all but the looked-up embedding table, LM head included.

        A dense model reads them all in every pass; a mixture of experts only in a pass whose tokens visit every expert.
        """
        return self.params - (0 if self.tied_embeddings else self.embedding_params)


def with_layers(shape: ModelShape, layers: int) -> ModelShape:
    """The same widths with another number of layers, of each kind in proportion; the LM head and the final norm stay."""
    if layers == shape.layers:
        return shape
    share = layers / shape.layers
    sliding, routed = round(share * shape.sliding_layers), round(share * shape.moe.layers) if shape.moe else 0
    changed = {
        "name": f"{shape.name}, {layers} of {shape.layers} layers",
        "layers": layers,
        "sliding_layers": sliding,
        "sliding_window": shape.sliding_window if sliding else None,
        "moe": shape.moe.model_copy(update={"layers": routed}) if shape.moe and routed else None,
    }
    return ModelShape.model_validate({**dict(shape), **changed})
