"""Arms that draft and check with the masked head itself, and so are not lossless against next-token prediction: FreeDave and
APD. A list on one of their keys is an axis; ``variants`` is the product. Knows no model and no task.
"""

from __future__ import annotations

from itertools import product
from typing import Any, Literal

from pydantic import field_validator

from harness.config_file import Frozen
from harness.scenario.axes import Counts, Numbers, Shares

MASKED_CHAIN = "greedy decoding of the masked head, one token a pass, same weights and block size"
"""What nested drafts are lossless against."""


class FreeDaveArm(Frozen):
    """Nested drafts on the masked chain (arXiv 2510.00294). ``draft_steps``: states of a block that are fed side by side; each
    may save a pass and costs block_size query tokens.
    """

    method: Literal["freedave"]
    block_size: Counts = (16,)
    draft_steps: Counts = (4,)
    temperature: Numbers = (0.0,)

    @field_validator("temperature")
    @classmethod
    def _greedy(cls, temperature: tuple[float, ...]) -> tuple[float, ...]:
        if any(temperature):
            raise ValueError(f"got {max(temperature):g}; nested drafts are exact at temperature 0 only, remove temperature")
        return temperature

    def variants(self) -> list[dict[str, Any]]:
        """One mapping per point of the product of the axes, every key with a single value."""
        return [
            {"method": "freedave", "block_size": size, "draft_steps": steps, "temperature": temperature,
             "lossless": MASKED_CHAIN}
            for size, steps, temperature in product(self.block_size, self.draft_steps, self.temperature)
        ]  # fmt: skip


class ApdArm(Frozen):
    """Adaptive parallel decoding (arXiv 2506.00413), the model's own next-token head as auxiliary model; lossy. ``mixture``: R,
    the weight of the masked head where a draft is checked; more of it accepts more.
    """

    method: Literal["apd"]
    block_size: Counts = (16,)
    mixture: Shares = (0.7,)
    temperature: Numbers = (0.0,)

    def variants(self) -> list[dict[str, Any]]:
        """One mapping per point of the product of the axes, every key with a single value."""
        return [
            {"method": "apd", "block_size": size, "mixture": mixture, "temperature": temperature}
            for size, mixture, temperature in product(self.block_size, self.mixture, self.temperature)
        ]


def arm_id(arm: dict[str, Any]) -> str:
    """The arm with one value on every axis as case ids have it."""
    if arm["method"] == "freedave":
        return f"freedave-k{arm['block_size']}-d{arm['draft_steps']}-t{arm['temperature']:.12g}"
    return f"apd-k{arm['block_size']}-r{arm['mixture']:.12g}-t{arm['temperature']:.12g}"


def label(arm: dict[str, Any]) -> str:
    """The arm as tables call it; a temperature above 0 is named by the caller."""
    if arm["method"] == "freedave":
        return f"FreeDave k={arm['block_size']} d={arm['draft_steps']}"
    return f"APD k={arm['block_size']} R={arm['mixture']:.12g}"
