"""The open block of every row where the model reads it, on the device, so that a pass has nothing to upload.

Mirrors the integers of harness.decoding.block, which say what is final; it is told only what a pass cannot know by itself:
that a row opened its next block, or that slots behind a stop are no longer asked for. Axes: B rows, k slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from harness.decoding.session import Segment
from harness.decoding.uploading import upload
from harness.record.trace import Role


class Fed(NamedTuple):
    """What one pass feeds, and how its trace entry says so: the same for every later pass of a block, so it is made once.

    ``segments``      finished blocks first, padding in rows that commit none
    ``commits``       tokens each row commits: those of the block before, in the first pass of a block
    ``query_tokens``  real tokens each row feeds; ``padded_query``: what each row's tensor holds
    """

    role: Role
    segments: list[Segment]
    commits: tuple[int, ...]
    query_tokens: tuple[int, ...]
    padded_query: int


class OpenBlocks:
    """``masked`` (B, k) bool: the slots that are still to be decided; ``logit_tokens`` (B): how many slots a block has. The
    first block begins right behind each prompt.

    The segments that are fed are made once and hold the state.
    """

    def __init__(self, prompt_lengths: Sequence[int], block_size: int, mask_id: int, device: torch.device) -> None:
        self._size = block_size
        self._masks = torch.full((len(prompt_lengths), block_size), mask_id, device=device)
        self.masked = self._everything = torch.ones_like(self._masks, dtype=torch.bool)
        starts = upload(prompt_lengths, device)[:, None]
        positions = starts + torch.arange(block_size, device=device)
        self._block = Segment(tokens=self._masks, positions=positions, visibility="bidirectional", logits=block_size)
        self._finished = Segment(tokens=self._masks, positions=positions, visibility="causal", logits=0)
        of_block = self.logit_tokens = (block_size,) * len(prompt_lengths)
        self._next = self._alone = Fed("decide", [self._block], (0,) * len(of_block), of_block, block_size)
        both = (2 * block_size,) * len(of_block)
        self._both = Fed("commit+decide", [self._finished, self._block], of_block, both, 2 * block_size)

    def open(self, opened: Sequence[bool], commits: Sequence[int]) -> None:
        """Give every row that ``opened`` one a block of masks; ``commits`` is the size of the block before it, 0 without."""
        block, finished = self._block, self._finished
        if any(commits):
            finished.tokens, finished.positions = block.tokens, block.positions
            if all(commits):
                self._next, finished.valid = self._both, None
                block.positions = block.positions + self._size
            else:
                fed = tuple([commit + self._size for commit in commits])
                self._next = self._both._replace(commits=tuple(commits), query_tokens=fed)
                of_row = torch.tensor(commits)[:, None]
                finished.valid = of_row.bool().expand(-1, self._size)
                block.positions = block.positions + upload(of_row, self._masks.device)
        if all(opened):
            block.tokens = self._masks
        else:
            anew = upload(opened, self._masks.device)[:, None]
            block.tokens = torch.where(anew, self._masks, block.tokens)

    def ask_for(self, masked: Sequence[Sequence[bool]]) -> None:
        """Replace the slots that are to be decided."""
        everything = all(map(all, masked))
        self.masked = self._everything if everything else upload(masked, self._masks.device)

    def feed(self, active: Sequence[bool]) -> Fed:
        """The blocks as they stand, behind those that they have just been opened after. Of a row that is not ``active`` nothing
        is read: it waits, and its block is fed again, or it has ended.
        """
        fed, self._next = self._next, self._alone
        self._block.read = active
        return fed

    @property
    def tokens(self) -> Tensor:
        """(B, k): the block as it stands, masks where a token is not known."""
        return self._block.tokens

    def decide(self, chosen: Tensor, tokens: Tensor) -> Tensor:
        """Put ``tokens`` (B, k) where ``chosen``, which must be masked slots; (B, k) the same tokens, -1 elsewhere."""
        said, self._block.tokens, self.masked = decided(chosen, tokens, self._block.tokens, self.masked)
        return said

    def take(self, tokens: Tensor, masked: Tensor) -> None:
        """What a pass made of the block and of its masked slots."""
        self._block.tokens, self.masked = tokens, masked


def decided(chosen: Tensor, tokens: Tensor, block: Tensor, masked: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(B, k) each: ``tokens`` where ``chosen``, which must be masked slots, and -1 elsewhere; the block with them; what is
    still masked.
    """
    return torch.where(chosen, tokens, -1), torch.where(chosen, tokens, block), masked ^ chosen
