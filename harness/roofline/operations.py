"""What one forward pass computes and moves, operation by operation, in exact counts; no hardware and no time.

Every weight is read once per pass; in a mixture only those of the visited experts. Rows are padded to equal length, as in
dense kernels: matrices have rows * padded_query lines. Every query meets all cached keys and the pass's own.
The counts hold the bytes that a pass cannot avoid (weights, KV cache), and the activations each operation reads and writes.
What an implementation moves on top (a repeated K/V, a copied cache) is not counted. The number of kernel launches is not
known here: their cost is the fixed cost of the ceilings.
"""

from __future__ import annotations

from typing import Any

from harness.models import ModelShape
from harness.models.deployment import Deployment, as_deployment
from harness.record.trace import ForwardPass
from harness.roofline.feed_forward import activated_width, feed_forward_operations
from harness.roofline.operation import Operation, PassCounts, choose, linear, smaller, some
from harness.roofline.storage import shard


def attention_operations(shape: ModelShape, deployment: Deployment, counts: PassCounts) -> list[Operation]:
    """Projection to Q, K and V, attention, cache write, output projection; ``shape`` is what this device holds."""
    size, cached = deployment.element_bytes, _cached_tokens(shape, counts.context)
    query_width = shape.heads * shape.head_dim
    kv_width = shape.kv_width // 2 if shape.mla is None else shape.kv_width
    # Two flops per query, key and head element, for the scores and again for the weighted sum.
    pairs = counts.rows * counts.query * _head_elements(shape, counts)
    return [
        _qkv(shape, deployment, counts.lines),
        Operation(
            name="attention",
            kind="attention",
            tokens=counts.query,
            sharing=_sharing(shape, counts),
            flops=2 * pairs * cached + 2 * pairs * shape.layers * counts.query,
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
    weight_bytes = shape.qkv_weights * deployment.attention_weight_bytes + shape.qkv_biases * size
    return linear("qkv", shape.layers, lines, shape.qkv_weights, weight_bytes, (shape.hidden + width) * size)


def _output_projection(shape: ModelShape, deployment: Deployment, lines: int) -> Operation:
    size, weights = deployment.element_bytes, shape.o_width * shape.hidden
    weight_bytes = weights * deployment.attention_weight_bytes + shape.hidden * shape.o_bias * size
    return linear("o", shape.layers, lines, weights, weight_bytes, (shape.o_width + shape.hidden) * size)


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
    return shape.heads * choose(counts.context > 0, absorbed, shape.head_dim + shape.mla.v_head_dim)


def _sharing(shape: ModelShape, counts: PassCounts) -> Any:
    """Query heads that meet the same key."""
    return shape.heads / shape.kv_heads if shape.mla is None else choose(counts.context > 0, shape.heads, 1)


LOGIT_BYTES = 4  # the sampler works in float32 whatever the model's dtype
# Sweeps over the logits: write as float32, softmax (read, write), entropy (read), argmax (read). A fused sampler needs fewer.
SAMPLER_SWEEPS = 5


def forward_operations(
    shape: ModelShape, deployment: Deployment | str, forward_pass: ForwardPass, *, visited_experts: float | None = None
) -> tuple[Operation, ...]:
    """The operations of one recorded forward pass: see count_operations, also for its errors."""
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
    weight_bytes = shape.embedding_params * (lines > 0) * deployment.lm_head_bytes
    moved = (shape.hidden + shape.vocab) * deployment.element_bytes
    return linear("lm_head", 1, lines, shape.hidden * shape.vocab, weight_bytes, moved)


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
