"""What a drafted block is held against: by default what the next-token head says behind every slot of it.

Axes: B rows, k slots of a block, V vocabulary.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class DraftCheck(Protocol):
    """Told every distribution that drafts are drawn from, asked for those that decide which of the drafts count."""

    def drafted(self, logits: Tensor) -> None:
        """(B, k, V): what the masked head says of the blocks that a pass drafts."""

    def verdicts(self, behind: Tensor) -> Tensor:
        """(B, k, V) from the next-token head's ``behind`` every slot of the checked blocks."""


class NextTokenCheck:
    """The next-token head's own word, whatever the drafts were drawn from: without loss."""

    def drafted(self, logits: Tensor) -> None:
        """How a draft was found does not matter."""

    def verdicts(self, behind: Tensor) -> Tensor:
        """As they are."""
        return behind
