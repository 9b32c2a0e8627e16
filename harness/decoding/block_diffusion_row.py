"""One row of a model whose blocks need not begin where the prompt ends. Plain integers only."""

from __future__ import annotations

from collections.abc import Sequence

from harness.decoding.block import BlockRow
from harness.decoding.stopping import StopRule


class BlockDiffusionRow(BlockRow):
    """A BlockRow whose first block begins with ``given`` tokens of the prompt: its slots are the columns behind them.

    Columns: positions 0..k-1 of the fed block. In every block but the first they are the slots.
    """

    def __init__(self, stop: StopRule, max_new_tokens: int, block_size: int, mask_id: int, given: int = 0) -> None:
        super().__init__(stop, max_new_tokens, block_size, mask_id)
        self._given_first = given
        self.given = 0

    def open_block(self) -> int:
        """Start the next block; see BlockRow."""
        self.given, self._given_first = self._given_first, 0
        self._room = len(self.slots) - self.given
        return super().open_block()

    @property
    def masked_columns(self) -> list[bool]:
        """Which columns are to be decided."""
        return [False] * self.given + self.masked[: len(self.slots) - self.given]

    def decide_columns(self, tokens: Sequence[int]) -> int:
        """Take the tokens of one pass by column (-1, or none at the end: not decided); returns how many output tokens became
        final by it.
        """
        slots = [*tokens[self.given :]]
        return self.decide(slots + [-1] * (len(self.slots) - len(slots)))
