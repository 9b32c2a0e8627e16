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
    """``masked`` (B, k) bool: the slots that are still to be decided. The first block begins right behind each prompt."""

    def __init__(self, prompt_lengths: Sequence[int], block_size: int, mask_id: int, device: torch.device) -> None:
        self._size = block_size
        self._masks = torch.full((len(prompt_lengths), block_size), mask_id, device=device)
        self._everything = torch.ones_like(self._masks, dtype=torch.bool)
        starts = torch.tensor(prompt_lengths, device=device)[:, None]
        self._positions = starts + torch.arange(block_size, device=device)
        self._tokens, self.masked = self._masks, self._everything
        self._commits = self._nothing = (0,) * len(prompt_lengths)
        self._finished: Segment | None = None

    def open(self, opened: Sequence[bool], commits: Sequence[int]) -> None:
        """Give every row that ``opened`` one a block of masks; ``commits`` is the size of the block before it, 0 without."""
        self._commits = tuple(commits)
        if any(commits):
            of_row = None if all(commits) else torch.tensor(commits, device=self._tokens.device)[:, None]
            self._finished = Segment(
                tokens=self._tokens, positions=self._positions, visibility="causal", logits=0,
                valid=None if of_row is None else of_row.bool().expand(-1, self._size),
            )  # fmt: skip
            self._positions = self._positions + (self._size if of_row is None else of_row)
        if all(opened):
            self._tokens = self._masks
        else:
            anew = torch.tensor(opened, device=self._tokens.device)[:, None]
            self._tokens = torch.where(anew, self._masks, self._tokens)

    def ask_for(self, masked: Sequence[Sequence[bool]]) -> None:
        """Replace the slots that are to be decided."""
        everything = all(map(all, masked))
        self.masked = self._everything if everything else torch.tensor(masked, device=self._tokens.device)

    def feed(self) -> tuple[list[Segment], tuple[int, ...]]:
        """The blocks as they stand, and the tokens each row commits: those of the block before, in the first pass of a block.

        Finished blocks come first, padding in rows that commit none.
        """
        block = Segment(tokens=self._tokens, positions=self._positions, visibility="bidirectional", logits=self._size)
        segments = [block] if self._finished is None else [self._finished, block]
        commits, self._commits, self._finished = self._commits, self._nothing, None
        return segments, commits

    def decide(self, chosen: Tensor, tokens: Tensor) -> Tensor:
        """Put ``tokens`` (B, k) where ``chosen``, which must be masked slots; (B, k) the same tokens, -1 elsewhere."""
        self._tokens = torch.where(chosen, tokens, self._tokens)
        self.masked = self.masked ^ chosen
        return torch.where(chosen, tokens, -1)
