"""What a drafted block is held against: by default what the next-token head says behind every slot of it.

Axes: B rows, k slots of a block, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from harness.decoding.block_view import BlockView


class DraftCheck(Protocol):
    """Told every distribution that drafts are drawn from, asked for those that decide which of the drafts count."""

    def drafted(self, logits: Tensor) -> None:
        """(B, k, V): what the masked head says of the blocks that a pass drafts."""

    def worth(self, view: BlockView, tokens: Tensor) -> Tensor:
        """(B, k): the drafts, the mask where one is not worth checking; the block then ends before it."""

    def verdicts(self, behind: Tensor) -> Tensor:
        """(B, k, V) from the next-token head's ``behind`` every slot of the checked blocks."""

    def heard(self, row: int, slots: Sequence[int], verdicts: Sequence[int]) -> Sequence[int]:
        """What a row takes for the tokens drawn from these, behind every slot of its block."""


class NextTokenCheck:
    """The next-token head's own word, whatever the drafts were drawn from: without loss.

    Of a block that is wrong somewhere, what was drafted behind it is in vain and the next block's masks stand in the wrong
    place. A block that ends before its first doubtful slot, of ``least_confidence`` or less, is right more often, and its
    ``mask_id`` stands where it ends; at 0 it never ends early.
    """

    def __init__(self, mask_id: int = -1, least_confidence: float = 0.0) -> None:
        self._mask_id = mask_id
        self._least_confidence = least_confidence

    def drafted(self, logits: Tensor) -> None:
        """How a draft was found does not matter."""

    def worth(self, view: BlockView, tokens: Tensor) -> Tensor:
        """Those that are sure enough."""
        if self._least_confidence == 0:
            return tokens
        return torch.where(view.confidence > self._least_confidence, tokens, self._mask_id)

    def verdicts(self, behind: Tensor) -> Tensor:
        """As they are."""
        return behind

    def heard(self, row: int, slots: Sequence[int], verdicts: Sequence[int]) -> Sequence[int]:
        """What was drawn."""
        return verdicts
