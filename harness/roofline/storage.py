"""What one device of a deployment holds: its part of the model, bytes of its weights and KV cache, the largest batch.

It also gives the slots of a captured session's KV buffers, and the number of pieces that attention cuts them into.
"""

from __future__ import annotations

from harness.errors import UserError
from harness.frozen import frozen
from harness.models import ModelShape
from harness.models.deployment import Deployment, as_deployment


def shard(shape: ModelShape, devices: int) -> ModelShape:
    """What one of ``devices`` holds under tensor parallelism, whatever its dtype: see part_of."""
    return part_of(shape, Deployment(dtype="bfloat16", tensor_parallel=devices))


def part_of(shape: ModelShape, deployment: Deployment) -> ModelShape:
    """What one device of a stage computes with, itself a ModelShape (Megatron-LM, arXiv 1909.08053, section 3).

    Heads, the inner widths of feed-forward networks and experts, and with ``split_vocab`` the vocabulary are split. Norms, the
    router, biases of the width of ``hidden``, and with latent attention the down-projections and the cached latent stay whole.
    Fewer KV heads than devices are repeated. Odd widths are rounded up, as padding does. With DP attention the heads stay
    whole. With EP an expert stays whole; how many of them a device has is not in the shape.

    Raises:
        UserError: the heads do not divide evenly, or EP of a model without experts.
    """
    moe, devices, sharing = shape.moe, deployment.tensor_parallel, deployment.attention_split
    if deployment.expert_parallel and moe is None:
        raise UserError(f"{shape.name} has no experts to share out; leave out --expert-parallel")
    if deployment.expert_parallel and moe is not None and moe.experts % devices:
        raise UserError(
            f"{shape.name} has {moe.experts} experts, which cannot be shared out evenly over {devices} devices; "
            f"choose a divisor of {moe.experts}"
        )
    if shape.heads % sharing:
        raise UserError(
            f"{shape.name} has {shape.heads} attention heads, which cannot be split evenly over {sharing} devices; "
            f"choose a divisor of {shape.heads}"
        )
    if moe is not None:
        own = moe.intermediate if deployment.expert_parallel else _part(moe.intermediate, devices)
        moe = moe.model_copy(update={"intermediate": own, "shared_intermediate": _part(moe.shared_intermediate, devices)})
    parts = {
        "heads": shape.heads // sharing,
        "kv_heads": _part(shape.kv_heads, sharing),
        "intermediate": _part(shape.intermediate, devices),
        "vocab": _part(shape.vocab, devices) if deployment.split_vocab else shape.vocab,
        "moe": moe,
    }
    return shape.model_copy(update=parts) if devices > 1 else shape


def stored_weight_bytes(shape: ModelShape, deployment: Deployment | str) -> float:
    """Bytes of all weights that one device of a deployment holds, whether a pass reads them or not.

    The stages of a pipeline are taken as balanced.
    """
    deployed = as_deployment(deployment)
    part, elsewhere, head = part_of(shape, deployed), 0.0, 0.0
    attention = part.layers * (part.qkv_weights + part.o_width * part.hidden)
    linear = part.dense_layers * part.ffn_weights(part.intermediate)
    if part.moe:
        expert = part.ffn_weights(part.moe.intermediate)
        linear += part.moe.layers * (part.ffn_weights(part.moe.shared_intermediate) + part.moe.experts * expert)
        if deployed.expert_parallel:
            routed = part.moe.experts - part.moe.experts // deployed.tensor_parallel  # those of the other devices
            elsewhere = part.moe.layers * routed * expert * deployed.weight_bytes
    if deployed.lm_head_weights is not None:
        # A tied table is looked up in the plain dtype, so its quantised copy comes on top instead of replacing it.
        replaced = 0 if part.tied_embeddings else deployed.element_bytes
        head = part.embedding_params * (deployed.lm_head_bytes - replaced)
    plain = (part.params - attention - linear) * deployed.element_bytes
    whole = attention * deployed.attention_weight_bytes + linear * deployed.weight_bytes + plain + head
    return (whole - elsewhere) / deployed.pipeline_parallel


def kv_cache_bytes(shape: ModelShape, deployment: Deployment | str, tokens: int) -> int:
    """Bytes that one device holds for a row of ``tokens`` cached tokens; a sliding layer keeps its window less one.

    With DP attention a row is on one device, with stages in the layers of all: then it is the mean over the devices.
    """
    deployed = as_deployment(deployment)
    part = part_of(shape, deployed)
    kept = tokens if part.sliding_window is None else min(tokens, part.sliding_window - 1)
    cached = (part.full_layers * tokens + part.sliding_layers * kept) * part.kv_width * deployed.kv_element_bytes
    sharing = deployed.pipeline_parallel * (deployed.tensor_parallel // deployed.attention_split)
    return -(-cached // sharing)


def activation_bytes(part: ModelShape, element_bytes: int) -> int:
    """Live activations of one token in the widest place of a layer: residual and normed input, then Q, K and V or the FFN's.

    ``part``: what one device holds of a model.
    """
    inner = part.intermediate if part.dense_layers else 0
    if part.moe is not None:
        inner = max(inner, part.moe.experts_per_token * part.moe.intermediate + part.moe.shared_intermediate)
    inside = (3 if part.gated_ffn else 2) * inner  # gate, up and their product
    attention = part.heads * part.head_dim + part.kv_width
    return (2 * part.hidden + max(inside, attention)) * element_bytes


def _part(width: int, devices: int) -> int:
    return -(-width // devices)


LOGIT_BYTES = 4  # the sampler works in float32 whatever the model's dtype
MEMORY_RESERVE = 0.1
"""Share of a device's memory that is kept for the runtime, fragmentation and the prefill's activations."""


@frozen
class MemoryNeed:
    """Bytes on each of the devices that share a model. ``weight_bytes`` are there once, the others for every row of a batch.

    ``shared_bytes``             cache of a prefix that all rows have in common; there once, like the weights
    ``kv_bytes_per_row``         cache of a row at its longest, the shared prefix apart
    ``workspace_bytes_per_row``  logits (as computed, and the sampler's float32 copy) and the live activations of one layer
    ``budget_bytes``             capacity less the reserve
    ``largest_batch``            rows that fit; 0 where not even one does
    """

    weight_bytes: float
    kv_bytes_per_row: float
    workspace_bytes_per_row: float
    budget_bytes: float
    largest_batch: int
    shared_bytes: float = 0.0

    def total_bytes(self, batch: int) -> float:
        """Bytes that a batch takes."""
        return self.weight_bytes + self.shared_bytes + batch * (self.kv_bytes_per_row + self.workspace_bytes_per_row)

    def refusal(self, batch: int, devices: int) -> str:
        """Why a batch does not fit."""
        needed, there = self.total_bytes(batch) / 1e9, self.budget_bytes / 1e9
        return (
            f"batch {batch:,} needs {needed:,.3g} GB on each of {devices}, {there:.3g} are usable; {self.largest_batch:,} such "
            "rows fit"
        )


def memory_need(
    shape: ModelShape,
    deployment: Deployment,
    *,
    tokens: int,
    block_size: int | None,
    budget_bytes: float,
    shared_tokens: int = 0,
    verified: bool = False,
) -> MemoryNeed:
    """The need of one arm: NTP where ``block_size`` is None, else SBD.

    An SBD row holds the keys of two blocks more: the previous one is fed again, and the last may reach past the last token.
    The workspace of a prefill is not counted: the prefill is chunked to fit the reserve.

    Args:
        tokens: cached tokens of a row at its longest.
        budget_bytes: what of the device's memory may be used.
        shared_tokens: of ``tokens``, those of a prefix that every row has.
        verified: blocks are checked, so that their pass also has the logits of the tokens that are checked.

    Raises:
        UserError: unknown dtype, or heads that cannot be split over the devices.
    """
    block = block_size or 0
    lines, logits = (2 * block, 2 * block if verified else block) if block else (1, 1)
    weights = stored_weight_bytes(shape, deployment)
    shared = kv_cache_bytes(shape, deployment, shared_tokens)
    kv = kv_cache_bytes(shape, deployment, tokens + 2 * block) - shared
    workspace = logits * shape.vocab * (deployment.element_bytes + LOGIT_BYTES)
    workspace += lines * activation_bytes(part_of(shape, deployment), deployment.element_bytes)
    return MemoryNeed(
        weight_bytes=weights,
        kv_bytes_per_row=kv,
        workspace_bytes_per_row=workspace,
        budget_bytes=budget_bytes,
        largest_batch=max(0, int((budget_bytes - weights - shared) // (kv + workspace))),
        shared_bytes=shared,
    )


SMALLEST_PIECE = 256
WANTED_GROUPS = 128
"""Wanted number of (row, KV head, piece): about the multiprocessors of a large GPU, to keep it busy."""


def pieces_of(groups: int, slots: int) -> int:
    """Number of equal pieces of buffers with ``groups`` (row, KV head) and ``slots``: a power of two.

    No piece is shorter than SMALLEST_PIECE.
    """
    pieces = 1
    while groups * pieces < WANTED_GROUPS and slots % (2 * pieces) == 0 and slots // (2 * pieces) >= SMALLEST_PIECE:
        pieces *= 2
    return pieces


def slots_allocated(rows: int, groups: int, slots: int) -> int:
    """Slots of each of ``rows`` rows of ``groups`` KV heads where ``slots`` are needed.

    They are a multiple of SMALLEST_PIECE times the number of pieces that keep a GPU busy.
    """
    pieces = 1
    while rows * groups * pieces < WANTED_GROUPS and slots >= 2 * pieces * SMALLEST_PIECE:
        pieces *= 2
    return -(-slots // (pieces * SMALLEST_PIECE)) * pieces * SMALLEST_PIECE
