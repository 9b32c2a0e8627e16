"""Counts of attention: projections, scores, cache; with sliding windows and with a latent cache.

Two counts of the score work. As computed: every query meets every key that is in the cache or the pass, which is what dense
kernels do. Ideal: the pairs that the mask lets see each other, over real tokens; no kernel can do with less.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from harness.errors import UserError
from harness.models import ModelShape
from harness.models.deployment import Deployment
from harness.record.trace import ForwardPass
from harness.roofline.arrays import choose, larger, smaller
from harness.roofline.operation import Operation, PassCounts

CAUSAL_ROLES = ("verify",)


class AttentionFlops(NamedTuple):
    """Flops of scores and weighted sum over all layers: on cached keys, and among the tokens of the pass."""

    context: float
    query: float


def attention_flops(shape: ModelShape, counts: PassCounts) -> AttentionFlops:
    """As computed. Two flops per query, key and head element, for the scores and again for the weighted sum."""
    pairs = counts.rows * counts.query * _head_elements(shape, counts)
    return AttentionFlops(
        context=2 * pairs * _cached_tokens(shape, counts.context),
        query=2 * pairs * shape.layers * counts.query,
    )


def ideal_attention_flops(shape: ModelShape, forward_pass: ForwardPass) -> int:
    """The flops of the (query, key) pairs that see each other, over real tokens; ``mla`` as if K and V were at hand.

    In a verify pass every token is causal; in the others the kept tokens are (the prompt, the previous block of SBD, NTP's one
    token, all that a draft model is fed) and the rest form a block whose tokens all see each other.

    Raises:
        UserError: a verify+draft pass, whose counts do not say which of its tokens were a draft and which were masks.
    """
    if forward_pass.role == "verify+draft":
        raise UserError("of a verify+draft pass the counts do not say who sees whom, so its ideal attention is not known")
    per_pair = 2 * (2 * shape.heads * shape.head_dim if shape.mla is None else shape.heads * _mla_head(shape))
    total = 0
    for query, context, kept in zip(
        forward_pass.query_tokens, forward_pass.context_tokens, forward_pass.kept_tokens, strict=True
    ):
        causal = query if forward_pass.role in CAUSAL_ROLES else min(kept, query)
        pairs = shape.full_layers * visible_pairs(context, causal, query - causal)
        if shape.sliding_window is not None:
            pairs += shape.sliding_layers * visible_pairs(context, causal, query - causal, shape.sliding_window)
        total += per_pair * pairs
    return total


def visible_pairs(context: int, causal: int, block: int, window: int | None = None) -> int:
    """(query, key) pairs that see each other: ``causal`` tokens after ``context`` cached ones, then a block of ``block``.

    A causal token sees itself and what came before it, the block's tokens see all of that and the whole block. With a
    window a token sees ``window - 1`` tokens back besides itself; inside the block the window does not apply.
    """
    before = context + causal
    if window is None:
        pairs: int = _triangle(before) - _triangle(context) + block * (before + block)
        return pairs
    # Causal token n (counted from the start) sees min(n, window) keys.
    narrow = smaller(before, window) - smaller(context, window)
    causal_pairs = _triangle(smaller(before, window)) - _triangle(smaller(context, window)) + window * (causal - narrow)
    # Token j = 1..block sees min(before, window - j) keys before the block: a sum of min(before, v) over v = window - j >= 0.
    reach = _capped_sum(window - 1, before) - _capped_sum(larger(window - block, 0) - 1, before)
    pairs = causal_pairs + reach + block * block
    return pairs


def attention_operations(shape: ModelShape, deployment: Deployment, counts: PassCounts) -> list[Operation]:
    """Projection to Q, K and V, attention, cache write, output projection; ``shape`` is what this device holds."""
    size, cached = deployment.element_bytes, _cached_tokens(shape, counts.context)
    query_width = shape.heads * shape.head_dim
    kv_width = shape.kv_width // 2 if shape.mla is None else shape.kv_width
    flops = attention_flops(shape, counts)
    return [
        _qkv(shape, deployment, counts.lines),
        Operation(
            name="attention",
            kind="attention",
            tokens=counts.query,
            sharing=_sharing(shape, counts),
            flops=flops.context + flops.query,
            kv_bytes=counts.rows * cached * shape.kv_width * deployment.kv_element_bytes,
            activation_bytes=2 * shape.layers * counts.rows * counts.query * (query_width + kv_width) * size,
        ),
        Operation(
            name="kv_write",
            kind="memory",
            tokens=counts.kept,
            kv_bytes=shape.layers * counts.kept * shape.kv_width * deployment.kv_element_bytes,
        ),
        _output_projection(shape, deployment, counts.lines),
    ]


def _qkv(shape: ModelShape, deployment: Deployment, lines: int) -> Operation:
    """With ``mla`` the step up of K and V is taken on the query tokens only: it is absorbed where there is a context, which
    moves it to Q and to the output at the same number of flops (DeepSeek-V2, arXiv 2405.04434, section 2.1.2)."""
    size = deployment.element_bytes
    width = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    if shape.mla is not None:
        width = shape.heads * shape.head_dim + shape.kv_width + (shape.mla.q_lora_rank or 0)
    weights = shape.qkv_weights * deployment.weight_bytes + shape.qkv_biases * size
    return Operation(
        name="qkv",
        kind="linear",
        tokens=lines,
        flops=2 * shape.layers * lines * shape.qkv_weights,
        weight_bytes=shape.layers * weights,
        activation_bytes=shape.layers * lines * (shape.hidden + width) * size,
    )


def _output_projection(shape: ModelShape, deployment: Deployment, lines: int) -> Operation:
    size, width = deployment.element_bytes, shape.o_width
    bias = shape.hidden if shape.o_bias else 0
    return Operation(
        name="o",
        kind="linear",
        tokens=lines,
        flops=2 * shape.layers * lines * width * shape.hidden,
        weight_bytes=shape.layers * (width * shape.hidden * deployment.weight_bytes + bias * size),
        activation_bytes=shape.layers * lines * (width + shape.hidden) * size,
    )


def _cached_tokens(shape: ModelShape, context: int) -> int:
    """Keys in the caches of all layers: a sliding layer's cache holds its window less the query itself."""
    if shape.sliding_window is None:
        return shape.layers * context
    held: int = shape.full_layers * context + shape.sliding_layers * smaller(context, shape.sliding_window - 1)
    return held


def _head_elements(shape: ModelShape, counts: PassCounts) -> Any:
    """Elements that a query and a key have in common over all heads, for the scores and the weighted sum together.

    A latent cache is attended to in the latent space, where all heads share one key and one value; a pass without context
    (a prefill) has K and V at hand and uses them, which is cheaper.
    """
    if shape.mla is None:
        return 2 * shape.heads * shape.head_dim
    absorbed = 2 * shape.mla.kv_lora_rank + shape.mla.qk_rope_head_dim
    return shape.heads * choose(counts.context > 0, absorbed, _mla_head(shape))


def _sharing(shape: ModelShape, counts: PassCounts) -> Any:
    """Query heads that meet the same key."""
    return shape.heads / shape.kv_heads if shape.mla is None else choose(counts.context > 0, shape.heads, 1)


def _mla_head(shape: ModelShape) -> int:
    assert shape.mla is not None
    return shape.head_dim + shape.mla.v_head_dim


def _triangle(count: Any) -> Any:
    return count * (count + 1) // 2


def _capped_sum(last: Any, cap: Any) -> Any:
    """Sum of min(v, cap) over v = 0..last; 0 for last = -1."""
    return _triangle(smaller(last, cap)) + cap * larger(last - cap, 0)
