"""The open block of every row where the model reads it, on the device, so that a pass has nothing to upload.

Mirrors the integers of harness.decoding.block, which say what is final; it is told only what a pass cannot know by itself:
that a row opened its next block, or that slots behind a stop are no longer asked for. Axes: B rows, k slots.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from harness.decoding.session import Segment


class OpenBlocks:
    """``masked`` (B, k) bool: the slots that are still to be decided. The first block begins right behind each prompt.

    The segments that are fed are made once and hold the state.
    """

    def __init__(self, prompt_lengths: Sequence[int], block_size: int, mask_id: int, device: torch.device) -> None:
        self._size = block_size
        self._masks = torch.full((len(prompt_lengths), block_size), mask_id, device=device)
        self.masked = self._everything = torch.ones_like(self._masks, dtype=torch.bool)
        starts = torch.tensor(prompt_lengths, device=device)[:, None]
        positions = starts + torch.arange(block_size, device=device)
        self._block = Segment(tokens=self._masks, positions=positions, visibility="bidirectional", logits=block_size)
        self._finished = Segment(tokens=self._masks, positions=positions, visibility="causal", logits=0)
        self._segments = self._alone = [self._block]
        self._both = [self._finished, self._block]
        self._commits = self._nothing = (0,) * len(prompt_lengths)

    def open(self, opened: Sequence[bool], commits: Sequence[int]) -> None:
        """Give every row that ``opened`` one a block of masks; ``commits`` is the size of the block before it, 0 without."""
        block, finished = self._block, self._finished
        self._commits = tuple(commits)
        if any(commits):
            of_row = None if all(commits) else torch.tensor(commits, device=self._masks.device)[:, None]
            finished.tokens, finished.positions = block.tokens, block.positions
            finished.valid = None if of_row is None else of_row.bool().expand(-1, self._size)
            block.positions = block.positions + (self._size if of_row is None else of_row)
            self._segments = self._both
        if all(opened):
            block.tokens = self._masks
        else:
            anew = torch.tensor(opened, device=self._masks.device)[:, None]
            block.tokens = torch.where(anew, self._masks, block.tokens)

    def ask_for(self, masked: Sequence[Sequence[bool]]) -> None:
        """Replace the slots that are to be decided."""
        everything = all(map(all, masked))
        self.masked = self._everything if everything else torch.tensor(masked, device=self._masks.device)

    def feed(self) -> tuple[list[Segment], tuple[int, ...]]:
        """The blocks as they stand, and the tokens each row commits: those of the block before, in the first pass of a block.

        Finished blocks come first, padding in rows that commit none.
        """
        segments, self._segments = self._segments, self._alone
        commits, self._commits = self._commits, self._nothing
        return segments, commits

    def decide(self, chosen: Tensor, tokens: Tensor) -> Tensor:
        """Put ``tokens`` (B, k) where ``chosen``, which must be masked slots; (B, k) the same tokens, -1 elsewhere."""
        self._block.tokens = torch.where(chosen, tokens, self._block.tokens)
        self.masked = self.masked ^ chosen
        return torch.where(chosen, tokens, -1)
