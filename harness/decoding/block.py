"""One row's progress through its blocks: which slots are known, which count, where it stopped. Plain integers only."""

from __future__ import annotations

from collections.abc import Sequence

from harness.decoding.stopping import EndingRow, StopRule


class BlockRow(EndingRow):
    """The state of one batch row. ``slots`` holds the block's tokens, the mask id where a token is not known yet;
    ``masked`` says which of them are still to be decided: not known, not behind a stop, not past the length limit;
    ``decided``: the slots that the last pass decided; ``cut``: it took others out of the masked set.
    """

    def __init__(self, stop: StopRule, max_new_tokens: int, block_size: int, mask_id: int) -> None:
        self._stop = stop
        self._max_new_tokens = max_new_tokens
        self._mask_id = mask_id
        self.slots = [mask_id] * block_size
        self.masked = [False] * block_size
        self.decided: tuple[int, ...] = ()
        self.cut = False
        self._limit = 0  # slots at or behind it can never be output; no block is open yet
        self.output: list[int] = []
        self._before_block = 0
        self._opened = False

    @property
    def deciding(self) -> bool:
        """Whether any slot of the open block is still to be decided."""
        return True in self.masked

    def open_block(self) -> int:
        """Start the next block; a row that has ended gets one with nothing to decide. Returns the size of the block before,
        which is to be committed (0: there is none).
        """
        size = len(self.slots)
        finished = len(self.slots) if self._opened else 0
        self._opened = True
        self.slots = [self._mask_id] * size
        self._before_block = len(self.output)
        self._limit = 0 if self.ended else min(size, self._max_new_tokens - len(self.output))
        self.masked = [slot < self._limit for slot in range(size)]
        return finished

    def decide(self, tokens: Sequence[int]) -> int:
        """Take the tokens of one pass (-1: not decided); returns how many output tokens became final by it."""
        slots, masked, stops = self.slots, self.masked, self._stop.token_ids
        self.decided = tuple([slot for slot, token in enumerate(tokens) if token >= 0])
        for slot in self.decided:
            slots[slot], masked[slot] = tokens[slot], False
            if tokens[slot] in stops:
                self._limit = min(self._limit, slot + 1)
        final = self._advance()
        behind = 0 if self.ended else self._limit
        self.cut = True in masked[behind:]
        if self.cut:
            masked[behind:] = [False] * (len(tokens) - behind)
        return final

    def _advance(self) -> int:
        """Move the known prefix of the block to the output, as far as the first stop."""
        before = len(self.output)
        if self.ended:
            return 0
        first = before - self._before_block
        known = self.masked.index(True, first) if True in self.masked[first:] else len(self.masked)
        self.output += self.slots[first : min(known, self._limit)]
        stop = self._stop.stops_at(self.output, before)
        if stop is not None:
            del self.output[stop + 1 :]
            self._reason = "stop"
        elif len(self.output) == self._max_new_tokens:
            self._reason = "length"
        return len(self.output) - before
