"""What one forward pass computes and moves, operation by operation, in exact counts; no hardware and no time.

Every weight is read once per pass; in a mixture only those of the visited experts. Rows are padded to equal length, as in
dense kernels: matrices have rows * padded_query lines. Every query meets all cached keys and the pass's own.
The counts hold the bytes that a pass cannot avoid (weights, KV cache), and the activations each operation reads and writes.
What an implementation moves on top (a repeated K/V, a copied cache) is not counted. The number of kernel launches is not
known here: their cost is the fixed cost of the ceilings.

The score work of attention has two counts. As computed: every query meets every key in the cache or the pass, as in dense
kernels. Ideal: the pairs that the mask lets see each other, over real tokens; no kernel needs less.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from harness.errors import UserError
from harness.models import ModelShape
from harness.models.deployment import Deployment, as_deployment, element_bytes
from harness.record.trace import ForwardPass
from harness.roofline.feed_forward import activated_width, feed_forward_operations
from harness.roofline.operation import Operation, PassCounts, choose, larger, smaller, some
from harness.roofline.storage import shard

CAUSAL_ROLES = ("verify",)


class AttentionFlops(NamedTuple):
    """Flops of scores and weighted sum over all layers: on cached keys, and among the tokens of the pass."""

    context: float
    query: float


def attention_flops(shape: ModelShape, counts: PassCounts) -> AttentionFlops:
    """As computed. Two flops per query, key and head element, for the scores and again for the weighted sum."""
    pairs = counts.rows * counts.query * _head_elements(shape, counts)
    return AttentionFlops(
        context=2 * pairs * _cached_tokens(shape, counts.context), query=2 * pairs * shape.layers * counts.query
    )


def ideal_attention_flops(shape: ModelShape, forward_pass: ForwardPass) -> int:
    """The flops of the (query, key) pairs that see each other, over real tokens; ``mla`` with K and V counted as available.

    In a verify pass every token is causal. In the others the kept tokens are causal: the prompt, the previous block of SBD,
    NTP's one token, all that a draft model is fed. The rest form a block whose tokens all see each other.

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

    A causal token sees itself and what came before it; the block's tokens also see the whole block. With a window a token
    sees ``window - 1`` tokens back besides itself; inside the block the window does not apply.
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
    """Projection to Q, K and V. With ``mla`` the up-projection of K and V is counted on the query tokens only.

    With a context it is absorbed into Q and the output at the same number of flops (DeepSeek-V2, arXiv 2405.04434, 2.1.2).
    """
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

    Attention to a latent cache runs in the latent space, where all heads share one key and one value. A pass without context
    (a prefill) uses K and V themselves, which is cheaper.
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


__all__ = ["Operation", "count_operations", "element_bytes", "forward_operations", "sampler_operation"]

LOGIT_BYTES = 4  # the sampler works in float32 whatever the model's dtype
# Sweeps over the logits: write as float32, softmax (read, write), entropy (read), argmax (read). A fused sampler needs fewer.
SAMPLER_SWEEPS = 5


def forward_operations(
    shape: ModelShape, deployment: Deployment | str, forward_pass: ForwardPass, *, visited_experts: float | None = None
) -> tuple[Operation, ...]:
    """The operations of one recorded forward pass: see count_operations.

    Raises:
        UserError: unknown dtype, or heads that cannot be split over the devices.
    """
    return count_operations(shape, deployment, PassCounts.of(forward_pass), visited_experts=visited_experts)


def count_operations(
    shape: ModelShape, deployment: Deployment | str, counts: PassCounts, *, visited_experts: float | None = None
) -> tuple[Operation, ...]:
    """The operations of one forward pass on one device, in the order they run. The sampler is not part of a forward pass.

    A dtype for ``deployment`` means everything in it, on one device. The weight bytes of a dense model add up to
    ``shape.streamed_params``. In every row the LM head runs for as many positions as in the row with most; without logits it
    is left out.

    Args:
        visited_experts: distinct experts that a recorded routing visited, summed over the layers; None: the expectation.

    Raises:
        UserError: unknown dtype, or heads that cannot be split over the devices.
    """
    deployed = as_deployment(deployment)
    part = shard(shape, deployed.tensor_parallel, split_vocab=deployed.split_vocab)
    operations = [
        *attention_operations(part, deployed, counts),
        *feed_forward_operations(part, deployed, counts.lines, visited_experts),
        _elementwise(part, deployed.element_bytes, counts.lines),
    ]
    if some(counts.logit_lines):
        operations.append(_lm_head(part, deployed, counts.logit_lines))
    if deployed.tensor_parallel > 1:
        operations.append(_collectives(shape, part, deployed, counts))
    return tuple(operations)


def sampler_operation(shape: ModelShape, forward_pass: ForwardPass | PassCounts) -> Operation | None:
    """Softmax, entropy and argmax over the logits of a pass; None where the pass wants no logits."""
    counts = forward_pass if isinstance(forward_pass, PassCounts) else PassCounts.of(forward_pass)
    logits = counts.logit_lines * shape.vocab
    if not some(logits):
        return None
    moved = SAMPLER_SWEEPS * LOGIT_BYTES * logits
    return Operation(name="sampler", kind="sampler", tokens=counts.logit_lines, activation_bytes=moved, logits=logits)


def _elementwise(shape: ModelShape, size: int, lines: int) -> Operation:
    """Norms (read, write), residual additions (two reads, a write), rotation of Q and K, activation; the embedding look-up.

    A fused implementation moves less; it is small either way, and its arithmetic is not counted.
    """
    keys = shape.kv_heads * shape.head_dim if shape.mla is None else shape.kv_width
    rotated = 2 * (shape.heads * shape.head_dim + keys) * (2 if shape.head_norms else 1)
    per_layer = (2 * shape.norms_per_layer + 2 * 3) * shape.hidden + rotated
    activated = (3 if shape.gated_ffn else 2) * activated_width(shape)
    norm_weights = shape.layers * (shape.norms_per_layer * shape.hidden + shape.head_norms) + shape.hidden
    moved = lines * (shape.layers * per_layer + activated + (2 + 2) * shape.hidden)
    return Operation(
        name="elementwise", kind="memory", tokens=lines, weight_bytes=norm_weights * size, activation_bytes=moved * size
    )


def _lm_head(shape: ModelShape, deployment: Deployment, lines: int) -> Operation:
    return Operation(
        name="lm_head",
        kind="linear",
        tokens=lines,
        flops=2 * lines * shape.hidden * shape.vocab,
        weight_bytes=shape.embedding_params * (lines > 0) * deployment.lm_head_bytes,
        activation_bytes=lines * (shape.hidden + shape.vocab) * deployment.element_bytes,
    )


def _collectives(shape: ModelShape, part: ModelShape, deployment: Deployment, counts: PassCounts) -> Operation:
    """Bytes one device sends: after attention and the feed-forward network of every layer, and for embedding and logits.

    Over t devices a ring all-reduce of S bytes sends 2 (t - 1) / t * S from each device. An all-gather of S bytes in total
    sends (t - 1) / t * S (Patarasuk & Yuan 2009, doi 10.1016/j.jpdc.2008.09.002). The partial sums of a layer and of a split
    embedding are reduced, split logits are gathered. The latency of a collective is not counted.
    """
    devices, size = deployment.tensor_parallel, deployment.element_bytes
    share = (devices - 1) / devices
    reduced = (2 * shape.layers + deployment.split_vocab) * counts.lines * shape.hidden * size
    gathered = counts.logit_lines * part.vocab * devices * size * deployment.split_vocab
    return Operation(name="collectives", kind="link", tokens=counts.lines, link_bytes=share * (2 * reduced + gathered))
