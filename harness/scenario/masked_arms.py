"""Arms that draft and check with the masked head itself, so not lossless against next-token prediction: FreeDave and APD.

A list on one of their keys is an axis; ``variants`` is the product.
"""

from __future__ import annotations

from itertools import product
from typing import Any, Literal

from pydantic import field_validator

from harness.config_file import StrictModel
from harness.scenario.axes import Counts, Numbers, Shares
from harness.scenario.method import Method, number, per_token

MASKED_CHAIN = "greedy decoding of the masked head, one token a pass, same weights and block size"
"""What nested drafts are lossless against."""


class FreeDaveArm(StrictModel):
    """Nested drafts on the masked chain (arXiv 2510.00294).

    ``draft_steps``: states of a block that are fed side by side; each may save a pass and costs block_size query tokens.
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


class ApdArm(StrictModel):
    """Adaptive parallel decoding (arXiv 2506.00413), the model's own next-token head as auxiliary model; lossy.

    ``mixture``: R, the weight of the masked head where a draft is checked; a larger weight accepts more.
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


FREEDAVE = Method(
    name="freedave", arm=FreeDaveArm, decoder="harness.engine.decoders:freedave",
    arm_id=lambda arm, replay: f"freedave-k{arm['block_size']}-d{arm['draft_steps']}-t{number(arm['temperature'])}",
    label=lambda arm, replay: f"FreeDave k={arm['block_size']} d={arm['draft_steps']}",
    widest=lambda arm, prompt, new: ((arm["draft_steps"] + 1) * arm["block_size"], arm["draft_steps"] * arm["block_size"]),
    passes=lambda arm, prompt, new, passes_of: per_token(
        prompt, new, ("verify+draft", (arm["draft_steps"] + 1) * arm["block_size"], 1, 1)
    ),
)  # fmt: skip
APD = Method(
    name="apd", arm=ApdArm, decoder="harness.engine.decoders:apd",
    arm_id=lambda arm, replay: f"apd-k{arm['block_size']}-r{number(arm['mixture'])}-t{number(arm['temperature'])}",
    label=lambda arm, replay: f"APD k={arm['block_size']} R={number(arm['mixture'])}",
    widest=lambda arm, prompt, new: (2 * arm["block_size"], 2 * arm["block_size"]),
    passes=lambda arm, prompt, new, passes_of: per_token(
        prompt, new, ("draft", arm["block_size"], 0, 1), ("verify+draft", 2 * arm["block_size"], 1, 1)
    ),
)  # fmt: skip
