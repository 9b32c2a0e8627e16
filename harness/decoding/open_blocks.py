"""The open block of every row: on the host one row's progress as integers, on the device what the model reads.

OpenBlocks mirrors the integers of BlockRow, which say what is final. The host tells it only two things: a row opened its next
block, or slots after a stop are no longer wanted. Axes: B rows, k slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from harness.decoding.request import EndingRow, StopRule
from harness.decoding.session import NO_NUMBERS, NO_TOKEN, Segment, upload
from harness.errors import NoTokenError
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


class DeviceBlocks:
    """The block of every row where the model reads it. ``tokens`` (B, k): masks where one is not known; ``masked`` (B, k) bool:
    the slots still to be decided.
    """

    tokens: Tensor
    masked: Tensor

    def decide(self, chosen: Tensor, tokens: Tensor) -> Tensor:
        """Put ``tokens`` (B, k) where ``chosen``, which must be masked slots; (B, k) the same tokens, -1 elsewhere."""
        self.tokens, self.masked = torch.where(chosen, tokens, self.tokens), self.masked ^ chosen
        return torch.where(chosen, tokens, -1)


class OpenBlocks(DeviceBlocks):
    """``logit_tokens`` (B): how many slots a block has. The first block begins right after each prompt. The fed segments are
    made once.
    """

    def __init__(self, prompt_lengths: Sequence[int], block_size: int, mask_id: int, device: torch.device) -> None:
        self._size = block_size
        self._masks = self.tokens = torch.full((len(prompt_lengths), block_size), mask_id, device=device)
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
            finished.tokens, finished.positions = self.tokens, block.positions
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
            self.tokens = self._masks
        else:
            anew = upload(opened, self._masks.device)[:, None]
            self.tokens = torch.where(anew, self._masks, self.tokens)

    def ask_for(self, masked: Sequence[Sequence[bool]]) -> None:
        """Replace the slots that are to be decided."""
        everything = all(map(all, masked))
        self.masked = self._everything if everything else upload(masked, self._masks.device)

    def feed(self, active: Sequence[bool]) -> Fed:
        """The blocks, in their first pass after the blocks before them. A row that is not ``active`` waits or has ended: its
        block is fed again and nothing of it is read.
        """
        fed, self._next = self._next, self._alone
        self._block.tokens, self._block.read = self.tokens, active
        return fed


class BlockRow(EndingRow):
    """The state of one batch row. ``slots``: the block's tokens, the mask id where one is not known. ``masked``: the slots
    still to be decided: not known, not after a stop, not past the length limit; ``deciding``: whether any is. ``decided``: the
    slots that the last pass decided; ``cut``: it took others out of the masked set. The first block begins with the tokens
    ``given`` of the prompt.
    """

    def __init__(self, stop: StopRule, max_new_tokens: int, block_size: int, mask_id: int, given: Sequence[int] = ()) -> None:
        super().__init__(stop, max_new_tokens)
        self._mask_id = mask_id
        self._given = given
        self.slots = [mask_id] * block_size
        self.masked = [False] * block_size
        self.deciding = False
        self._opened = False

    def open_block(self) -> int:
        """Start the next block; a row that has ended gets one with nothing to decide. Returns the size of the block before,
        which is to be committed (0: no block).
        """
        size, given = len(self.slots), len(self._given)
        finished = size if self._opened else 0
        self._opened = True
        self.slots = [*self._given, *[self._mask_id] * (size - given)]
        self._given = ()
        self._before_block = len(self.output) - given  # output before the block, less the slots that are given
        # Slots at or after it can never be output.
        self._limit = 0 if self.ended else min(size, given + self.left)
        self.masked = [False] * given + [True] * (self._limit - given) + [False] * (size - self._limit)
        self.deciding = self._limit > 0
        return finished

    def decide(self, tokens: Sequence[int]) -> int:
        """Take the tokens of one pass (-1: not decided); returns how many output tokens became final by it.

        Raises:
            NoTokenError: the logits of a chosen slot name no token, or no slot was decided.
        """
        slots, masked, stops = self.slots, self.masked, self._stop.token_ids
        limit, decided = self._limit, []
        for slot, token in enumerate(tokens):
            if token >= 0:
                decided.append(slot)
                slots[slot], masked[slot] = token, False
                if token in stops and slot < limit:
                    limit = slot + 1
            elif token == NO_TOKEN:
                raise NoTokenError(NO_NUMBERS)
        if self.deciding and not decided:
            raise NoTokenError(NO_NUMBERS)
        self.decided = tuple(decided)
        final = self._advance(limit)
        self.cut = False
        if limit < self._limit or self.ended:
            self._limit, end = limit, 0 if self.ended else limit
            self.cut = True in masked[end:]
            masked[end:] = [False] * (len(masked) - end)
        self.deciding = True in masked
        return final

    def _advance(self, limit: int) -> int:
        """Move the known prefix of the block to the output, up to the first stop; slots at or after ``limit`` do not count."""
        output = self.output
        before = len(output)
        first = known = before - self._before_block
        while known < limit and not self.masked[known]:
            known += 1
        if known == first or self.ended:
            return 0
        output += self.slots[first:known]
        stop = self._stop.stops_at(output, before)
        if stop is not None:
            del output[stop + 1 :]
            self._reason = "stop"
        elif len(output) == self._max_new_tokens:
            self._reason = "length"
        return len(output) - before
