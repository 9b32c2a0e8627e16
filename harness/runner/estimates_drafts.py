"""What the draft models of a case need: memory, and the passes they make between two tokens where every draft is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from harness.models import ModelShape
from harness.record.trace import Role
from harness.roofline.storage import kv_cache_bytes
from harness.scenario.plan_drafts import draft_shapes
from harness.scenario.speculative_arms import stages


def draft_weight_bytes(arm: Mapping[str, Any], target: ModelShape, element_bytes: int) -> int:
    """Of the models that are loaded besides the target; its own first layers are there already."""
    shapes = zip(stages(arm), draft_shapes(arm, target), strict=True)
    return sum(shape.params * element_bytes for stage, shape in shapes if shape is not None and "draft" in stage)


def draft_kv_bytes(arm: Mapping[str, Any], target: ModelShape, dtype: str, slots: Callable[[ModelShape], int]) -> int:
    """Of one row, of so many ``slots`` of each draft model: every one has a cache of its own."""
    return sum(kv_cache_bytes(shape, dtype, slots(shape)) for shape in draft_shapes(arm, target) if shape is not None)


def draft_passes(arm: Mapping[str, Any], target: ModelShape) -> list[tuple[ModelShape, Role, int, int, int]]:
    """(shape, role, query tokens, tokens kept, count) of one round, at most: each stage makes its tokens one a pass, and asks
    the one below before each pass.
    """
    asked = stages(arm)
    below = [*(stage["draft_tokens"] for stage in asked[1:]), 0][: len(asked)]
    found: list[tuple[ModelShape, Role, int, int, int]] = []
    count = 1
    for stage, shape, tokens in zip(asked, draft_shapes(arm, target), below, strict=True):
        count *= stage["draft_tokens"]
        if shape is not None:
            found.append((shape, "verify" if tokens else "draft", tokens + 1, 1, count))
    return found
