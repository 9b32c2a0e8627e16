"""What a batch needs of each device's memory, and the largest batch that fits."""

from __future__ import annotations

from dataclasses import dataclass

from harness.models import ModelShape
from harness.models.deployment import Deployment
from harness.roofline.operations import LOGIT_BYTES
from harness.roofline.storage import activation_bytes, kv_cache_bytes, part_of, stored_weight_bytes

MEMORY_RESERVE = 0.1
"""Share of a device's memory that is kept for the runtime, fragmentation and the prefill's activations."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
