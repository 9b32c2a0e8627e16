"""What to do about a case that does not fit: the largest batch that would, by the planner's account of memory."""

from __future__ import annotations

from harness.errors import UserError
from harness.models.deployment import Deployment
from harness.roofline.memory import memory_need
from harness.runner.estimates import prompt_tokens_at_most
from harness.scenario.plan import Case


def what_would_fit(case: Case, free_bytes: int | None) -> str:
    """Words to go behind "does not fit": modelled, with the activations of one layer; empty where nothing is known.

    ``free_bytes``: what the device had to spare before the model was loaded.
    """
    if case.shape is None or free_bytes is None:
        return ""
    tokens = prompt_tokens_at_most(case) + case.workload.max_new_tokens
    try:
        need = memory_need(
            case.shape, Deployment(dtype=case.part.dtype), tokens=tokens, block_size=case.arm.get("block_size"),
            budget_bytes=free_bytes,
        )  # fmt: skip
    except UserError:
        return ""
    free = f"{free_bytes / 1e9:.1f} GB"
    if need.largest_batch >= case.batch_size:
        return f"; by the plan batch {case.batch_size} fits into {free}, so something else takes the memory"
    if need.largest_batch:
        return f"; by the plan batch {need.largest_batch} is the largest that fits into {free}"
    return f"; by the plan no batch fits into {free}: the weights take {need.weight_bytes / 1e9:.1f} GB"
