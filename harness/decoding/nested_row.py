"""One row of nested drafts: the block as it stands, the guesses at its next states, and how far they were right."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

from harness.decoding.block import BlockRow
from harness.decoding.stopping import StopRule
from harness.record.trace import StopReason


@dataclass(frozen=True, slots=True)
class Seen:
    """What a pass says of one state: ``order`` of its slots, the likeliest masked one first, and the token of every slot."""

    order: Sequence[int]
    tokens: Sequence[int]


class NestedRow:
    """The state of one batch row. ``states``: the open block as it stands, then guesses, each with one slot more; none once the
    row has ended. ``finished``: the block before, to be committed with the first pass of the open one, else nothing.
    """

    def __init__(self, stop: StopRule, max_new_tokens: int, block_size: int, mask_id: int, most_states: int) -> None:
        self.size = block_size
        self._most_states = most_states
        self._block = BlockRow(stop, max_new_tokens, block_size, mask_id)
        self._chain: list[BlockRow] = []
        self._guesses: list[tuple[int, int]] = []
        self.finished: list[int] = []
        self._open()

    @property
    def ended(self) -> bool:
        """True once every position up to the first stop, or to the length limit, is final."""
        return self._block.ended

    @property
    def stop_reason(self) -> StopReason:
        """Why the row ended."""
        return self._block.stop_reason

    @property
    def output(self) -> list[int]:
        """What is final."""
        return self._block.output

    @property
    def states(self) -> list[list[int]]:
        """Slots of every state to be fed."""
        return [one.slots for one in self._chain]

    @property
    def masked_states(self) -> list[list[bool]]:
        """Of every state, which slots are still to be decided."""
        return [one.masked for one in self._chain]

    def advance(self, seen: Sequence[Seen]) -> tuple[int, int]:
        """Go on as far as the guesses were right, and one step more; how many tokens became known by it, and how many final."""
        before, steps = len(self._block.output), [(one.order[0], one.tokens[one.order[0]]) for one in seen]
        right = 0
        while right < len(self._guesses) and self._guesses[right] == steps[right]:
            right += 1
        self._block = _step(self._chain[right], *steps[right])
        self.finished = []
        if self._block.deciding:
            self._guess(seen[right])
        else:
            self._open()
        return right + 1, len(self._block.output) - before

    def _open(self) -> None:
        """Begin the next block: nothing is known of it, so nothing is guessed; a row that has ended feeds nothing more."""
        slots = self._block.slots
        if not self._block.ended:
            self.finished = slots if self._block.open_block() else []
        self._chain, self._guesses = ([] if self._block.ended else [self._block]), []

    def _guess(self, seen: Seen) -> None:
        """Nested guesses from what was seen one step before: the slots that were likeliest behind the one just taken."""
        self._chain, self._guesses = [self._block], []
        for slot in seen.order[1:]:
            if len(self._chain) == self._most_states:
                break
            if self._chain[-1].masked[slot]:
                further = _step(self._chain[-1], slot, seen.tokens[slot])
                if not further.deciding:
                    break
                self._chain.append(further)
                self._guesses.append((slot, seen.tokens[slot]))


def _step(block: BlockRow, slot: int, token: int) -> BlockRow:
    """The block with one slot more decided; ``block`` stays as it is."""
    further = copy.copy(block)
    further.slots, further.masked, further.output = list(block.slots), list(block.masked), list(block.output)
    further.decide([token if one == slot else -1 for one in range(len(block.slots))])
    return further
