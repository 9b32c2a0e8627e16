"""What one forward pass computes and moves, operation by operation, in exact counts; no hardware and no time.

Every weight is read once per pass, of a mixture those of the experts visited. Rows are padded to equal length, so the
matrices have rows * padded_query lines and attention covers the cached keys and the pass's own for every query: that is what
dense kernels compute. Counted are the bytes that a pass cannot avoid (weights, KV cache) and the activations each operation
reads and writes; what a particular implementation moves on top (a repeated K/V, a copied cache) is not, and how many kernels
it launches is not known here: their cost is the fixed cost of the ceilings.
"""

from __future__ import annotations

from harness.models import ModelShape
from harness.models.deployment import Deployment, as_deployment, element_bytes
from harness.record.trace import ForwardPass
from harness.roofline.arrays import some
from harness.roofline.attention import attention_operations
from harness.roofline.feed_forward import activated_width, feed_forward_operations
from harness.roofline.operation import Operation, PassCounts
from harness.roofline.storage import shard

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
    ``shape.streamed_params``. The LM head runs for as many positions in every row as in the row with most, and is left out
    where no logits are wanted.

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
    """What one device sends: after attention and after the feed-forward network of every layer, and for embedding and logits.

    A ring all-reduce of S bytes over t devices sends 2 (t - 1) / t * S from each, an all-gather of S bytes in total
    (t - 1) / t * S (Patarasuk & Yuan 2009, doi 10.1016/j.jpdc.2008.09.002). The partial sums of a layer and of the split
    embedding are reduced, the logits gathered; neither where every device has the whole of both. The latency of a collective
    is not known here and not counted.
    """
    devices, size = deployment.tensor_parallel, deployment.element_bytes
    share = (devices - 1) / devices
    reduced = (2 * shape.layers + deployment.split_vocab) * counts.lines * shape.hidden * size
    gathered = counts.logit_lines * part.vocab * devices * size * deployment.split_vocab
    return Operation(name="collectives", kind="link", tokens=counts.lines, link_bytes=share * (2 * reduced + gathered))
