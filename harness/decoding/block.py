"""One row's progress through its blocks: which slots are known, which count, where it stopped. Plain integers only."""

from __future__ import annotations

from collections.abc import Sequence

from harness.decoding.sampling import NO_NUMBERS, NO_TOKEN
from harness.decoding.stopping import EndingRow, StopRule
from harness.errors import NoTokenError


class BlockRow(EndingRow):
    """The state of one batch row. ``slots`` holds the block's tokens, the mask id where a token is not known yet;
    ``masked`` says which of them are still to be decided: not known, not behind a stop, not past the length limit;
    ``deciding``: whether any is; ``decided``: the slots that the last pass decided; ``cut``: it took others out of the masked
    set.
    """

    def __init__(self, stop: StopRule, max_new_tokens: int, block_size: int, mask_id: int) -> None:
        self._stop = stop
        self._max_new_tokens = max_new_tokens
        self._mask_id = mask_id
        self.slots = [mask_id] * block_size
        self.masked = [False] * block_size
        self.deciding = False
        self.decided: tuple[int, ...] = ()
        self.cut = False
        self._room = block_size  # slots of the next block; fewer where it begins with what is given
        self._limit = 0  # slots at or behind it can never be output; no block is open yet
        self.output: list[int] = []
        self._before_block = 0
        self._opened = False

    def open_block(self) -> int:
        """Start the next block; a row that has ended gets one with nothing to decide. Returns the size of the block before,
        which is to be committed (0: there is none).
        """
        size = len(self.slots)
        finished = len(self.slots) if self._opened else 0
        self._opened = True
        self.slots = [self._mask_id] * size
        self._before_block = len(self.output)
        self._limit = 0 if self.ended else min(self._room, self._max_new_tokens - len(self.output))
        self.masked = [True] * self._limit + [False] * (size - self._limit)
        self.deciding = self._limit > 0
        return finished

    def decide(self, tokens: Sequence[int]) -> int:
        """Take the tokens of one pass (-1: not decided); returns how many output tokens became final by it.

        Raises:
            NoTokenError: a slot was chosen whose logits name no token, or none of those to be decided was.
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
            self._limit = limit
            self._cut_behind(0 if self.ended else limit)
        self.deciding = True in masked
        return final

    def _cut_behind(self, limit: int) -> None:
        """Nothing at or behind it is asked for any more."""
        self.cut = True in self.masked[limit:]
        self.masked[limit:] = [False] * (len(self.masked) - limit)

    def _advance(self, limit: int) -> int:
        """Move the known prefix of the block to the output, as far as the first stop; slots at or behind ``limit`` are none."""
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
