"""What one forward pass computes and moves, operation by operation, in exact counts; no hardware and no time.

A pass is one group of rows alike, or several groups that an engine packs into one step (rows of a prompt's chunk beside rows
that decode): their lines are multiplied together, each group attends for itself. Every weight is read once per pass; in a
mixture only those of the visited experts. Rows of a group are padded to equal length, as in dense kernels.

A query meets the cached keys that its layer's window leaves it, and of the pass's own those up to itself (causal, a prefill) or
all of them (a block). The counts hold the bytes that a pass cannot avoid (weights, KV cache), and the activations that an
operation hands to the next. How much of those stays on the chip, the ceilings say. What an implementation moves on top (a
repeated K/V, a copied cache) is not counted. The number of kernel launches is not known here: their cost is the fixed cost of
the ceilings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from harness.models import ModelShape
from harness.models.deployment import Deployment, as_deployment
from harness.record.trace import ForwardPass
from harness.roofline.feed_forward import activated_width, feed_forward_operations
from harness.roofline.operation import Operation, PassCounts, choose, larger, linear, smaller, some
from harness.roofline.storage import LOGIT_BYTES, part_of

Groups = PassCounts | Sequence[PassCounts]
"""A pass: one group of rows alike, or several."""


def groups_of(counts: Groups) -> tuple[PassCounts, ...]:
    """The groups of a pass."""
    return (counts,) if isinstance(counts, PassCounts) else tuple(counts)


def _attention(shape: ModelShape, deployment: Deployment, counts: PassCounts) -> list[Operation]:
    """Attention of one group, and the cache it writes; ``shape`` is what this device holds."""
    size = deployment.element_bytes
    query_width = shape.heads * shape.head_dim
    kv_width = shape.kv_width // 2 if shape.mla is None else shape.kv_width
    return [
        Operation(
            name="attention",
            kind="attention",
            tokens=counts.query,
            sharing=_sharing(shape, counts),
            flops=counts.rows * _row_flops(shape, counts),
            kv_bytes=counts.rows * _cached_tokens(shape, counts.context) * shape.kv_width * deployment.kv_element_bytes,
            activation_bytes=2 * shape.layers * counts.rows * counts.query * (query_width + kv_width) * size,
            pieces=shape.layers,
        ),
        Operation(
            name="kv_write",
            kind="memory",
            tokens=counts.kept,
            kv_bytes=shape.layers * counts.kept * shape.kv_width * deployment.kv_element_bytes,
        ),
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
    cached: int = shape.full_layers * context + shape.sliding_layers * smaller(context, shape.sliding_window - 1)
    return cached


def _row_flops(shape: ModelShape, counts: PassCounts) -> Any:
    """Of a row's attention over all layers: two flops per query, key and head element, in the scores and the weighted sum.

    Attention to a latent cache runs in the latent space, where all heads share one key and one value. A pass without context
    uses K and V themselves, which is cheaper. A later chunk of a prompt takes the cheaper way: its context's K and V made again
    from their latents, or the latent space.
    """
    pairs = _pairs(shape, counts)
    if shape.mla is None:
        return 2 * pairs * 2 * shape.heads * shape.head_dim
    latent = shape.mla
    absorbed = 2 * pairs * shape.heads * (2 * latent.kv_lora_rank + latent.qk_rope_head_dim)
    plain = 2 * pairs * shape.heads * (shape.head_dim + latent.v_head_dim)
    if not counts.causal:
        return choose(counts.context > 0, absorbed, plain)
    up = latent.kv_lora_rank * shape.heads * (latent.qk_nope_head_dim + latent.v_head_dim)
    return smaller(absorbed, plain + 2 * shape.layers * counts.context * up)


def _pairs(shape: ModelShape, counts: PassCounts) -> Any:
    """Pairs of a query and a key that it sees, in a row, over all layers."""
    query, context, window = counts.query, counts.context, shape.sliding_window
    own = query * (query + 1) / 2 if counts.causal else query * query
    whole = shape.full_layers * (query * context + own)
    if window is None:
        return whole
    if not counts.causal:
        return whole + shape.sliding_layers * query * (smaller(context, window - 1) + query)
    # Query i of the pass sees min(context + i, window) keys: the first ``filling`` queries all that came before.
    filling = smaller(larger(window - context, 0), query)
    return whole + shape.sliding_layers * (filling * context + filling * (filling + 1) / 2 + (query - filling) * window)


def _sharing(shape: ModelShape, counts: PassCounts) -> Any:
    """Query heads that meet the same key."""
    if shape.mla is None:
        return shape.heads / shape.kv_heads
    return 1 if counts.causal else choose(counts.context > 0, shape.heads, 1)


# Sweeps over the logits: write as float32, softmax (read, write), entropy (read), argmax (read). A fused sampler needs fewer.
SAMPLER_SWEEPS = 5
ELEMENTWISE_STEPS = 6
"""Of a layer: two norms, two residual additions, rotation, activation; each hands its result to the next operation."""


def forward_operations(
    shape: ModelShape, deployment: Deployment | str, forward_pass: ForwardPass, *, visited_experts: float | None = None
) -> tuple[Operation, ...]:
    """The operations of one recorded forward pass: see count_operations, also for its errors."""
    return count_operations(shape, deployment, PassCounts.of(forward_pass), visited_experts=visited_experts)


def count_operations(
    shape: ModelShape, deployment: Deployment | str, counts: Groups, *, visited_experts: float | None = None
) -> tuple[Operation, ...]:
    """The operations of one forward pass on one device, in the order they run. The sampler is not part of a forward pass.

    A dtype for ``deployment`` means everything in it, on one device. The weight bytes of a dense model add up to
    ``shape.streamed_params``. In every row of a group the LM head runs for as many positions as in the row with most; without
    logits it is left out. With stages the pass is one of as many batches in flight, each with its share of the rows, through
    all stages: in that time every row of the whole batch makes one pass.

    Args:
        visited_experts: distinct experts that a recorded routing visited, summed over the layers; None: the expectation.

    Raises:
        UserError: unknown dtype, heads or experts that cannot be split over the devices.
    """
    deployed = as_deployment(deployment)
    part = part_of(shape, deployed)
    groups = [_shared_out(group, deployed.pipeline_parallel) for group in groups_of(counts)]
    own = [_shared_out(group, deployed.tensor_parallel // deployed.attention_split) for group in groups]
    lines, own_lines, logit_lines = (
        sum(values) for values in ([g.lines for g in groups], [g.lines for g in own], [g.logit_lines for g in groups])
    )
    operations = [
        _qkv(part, deployed, own_lines),
        *(operation for group in own for operation in _attention(part, deployed, group)),
        _output_projection(part, deployed, own_lines),
        *feed_forward_operations(part, deployed, lines, own_lines, visited_experts),
        _elementwise(part, deployed.element_bytes, own_lines),
    ]
    if some(logit_lines):
        operations.append(_lm_head(part, deployed, logit_lines))
    sent = collectives(shape, deployed, lines, logit_lines)
    return (*operations, sent) if sent is not None else tuple(operations)


def batch_lines(counts: Groups, deployment: Deployment) -> Any:
    """Lines that the layers multiply at once: with stages, those of one of the batches in flight."""
    return sum(_shared_out(group, deployment.pipeline_parallel).lines for group in groups_of(counts))


def _shared_out(counts: PassCounts, parts: int) -> PassCounts:
    """The rows of the part that has most, where they are shared out evenly; a row is not divided."""
    if parts == 1:
        return counts
    rows = larger(counts.rows / parts, smaller(counts.rows, 1))
    return replace(counts, rows=rows, kept=counts.kept * rows / larger(counts.rows, 1))


def sampler_operation(shape: ModelShape, counts: ForwardPass | Groups, stages: int = 1) -> Operation | None:
    """Softmax, entropy and argmax over the logits of a pass; None where the pass wants no logits."""
    groups = groups_of(PassCounts.of(counts) if isinstance(counts, ForwardPass) else counts)
    lines = sum(_shared_out(group, stages).logit_lines for group in groups)
    logits = lines * shape.vocab
    if not some(logits):
        return None
    moved = SAMPLER_SWEEPS * LOGIT_BYTES * logits
    return Operation(name="sampler", kind="sampler", tokens=lines, activation_bytes=moved, logits=logits, pieces=SAMPLER_SWEEPS)


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
        name="elementwise",
        kind="memory",
        tokens=lines,
        weight_bytes=norm_weights * size,
        activation_bytes=moved * size,
        pieces=ELEMENTWISE_STEPS * shape.layers,
    )


def _lm_head(shape: ModelShape, deployment: Deployment, lines: int) -> Operation:
    weight_bytes = shape.embedding_params * (lines > 0) * deployment.lm_head_bytes
    moved = (shape.hidden + shape.vocab) * deployment.element_bytes
    return linear("lm_head", 1, lines, shape.hidden * shape.vocab, weight_bytes, moved)


def collectives(shape: ModelShape, deployment: Deployment, lines: int, logit_lines: int) -> Operation | None:
    """Bytes one device sends for ``lines`` lines of a stage's rows, over all layers and stages; None on one device.

    ``shape`` is the whole model's. Over t devices a ring all-reduce of S bytes sends 2 (t - 1) / t * S from each device. An
    all-gather or reduce-scatter of S bytes in total sends (t - 1) / t * S (Patarasuk & Yuan 2009, doi
    10.1016/j.jpdc.2008.09.002). Transfers that wait for one another are hops: ceil(log2 t) for an all-gather or a
    reduce-scatter, twice that for an all-reduce (Thakur, Rabenseifner & Gropp 2005, doi 10.1177/1094342005051521).

    * TP: the partial sums of a layer's attention and feed-forward network are reduced, as are those of a split embedding; split
      logits are gathered.
    * DP attention: a device gathers the others' lines before a feed-forward network and scatters its sums after it. That is one
      all-reduce a layer instead of two.
    * EP after DP attention: a line goes to the devices that hold its experts, and its sums come back. A token with K
      independent experts visits each of t devices with probability 1 - (1 - 1/t)^K. EP after split heads reduces as TP does.
    * PP: every stage hands its lines to the next one, each device its share of them.
    """
    devices, stages, size = deployment.tensor_parallel, deployment.pipeline_parallel, deployment.element_bytes
    if deployment.devices == 1:
        return None
    share, hops = (devices - 1) / devices, (devices - 1).bit_length()
    line_bytes = lines * shape.hidden * size
    networks, moved = shape.layers, float(shape.layers)
    if deployment.attention_data_parallel:
        reduced = int(deployment.split_vocab)
        if deployment.expert_parallel and shape.moe is not None:
            visited = 1 - (1 - 1 / devices) ** shape.moe.experts_per_token
            moved = shape.dense_layers + shape.moe.layers * visited
    else:
        reduced = shape.layers + deployment.split_vocab
    gathered = logit_lines * -(-shape.vocab // devices) * devices * size * deployment.split_vocab
    sent = share * (2 * (reduced + moved) * line_bytes + gathered)
    waits = hops * (2 * (reduced + networks) + deployment.split_vocab * (logit_lines > 0))
    return Operation(
        name="collectives",
        kind="link",
        tokens=lines,
        link_bytes=sent + (stages - 1) * line_bytes / devices,
        link_hops=waits + (stages - 1),
    )
