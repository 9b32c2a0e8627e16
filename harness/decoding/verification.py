"""One row that drafts a block and lets the next-token head check it: what is drafted, what counts, where it stopped.

The draft is worth nothing by itself: every token that counts is the next-token head's own, so drafts decide how fast a row
is and never what it writes. Plain integers only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.decoding.sampling import NO_NUMBERS, refuse_no_token
from harness.decoding.stopping import EndingRow, StopRule
from harness.errors import NoTokenError


@dataclass(frozen=True, slots=True)
class Checked:
    """``final``: tokens that one check made final, as many as there are slots whose KV stays; ``agreed``: of these, how many
    had been drafted.
    """

    final: int
    agreed: int


class VerifiedRow(EndingRow):
    """The state of one batch row. ``slots`` holds the open block: first the newest final token, whose KV is not kept yet, then
    the drafts, the mask id where there is none; ``masked`` says which slots are still to be drafted.

    What can never count is not drafted: slots behind a drafted stop (were the stop wrong, so would be all behind it) and
    slots past the length limit. ``end``: slots worth checking; a draft that is the mask says that the block ends before it.
    """

    KNOWN = 1
    """Slots of a block that are final when it is opened."""

    def __init__(self, stop: StopRule, max_new_tokens: int, block_size: int, mask_id: int) -> None:
        self._stop = stop
        self._max_new_tokens = max_new_tokens
        self._mask_id = mask_id
        self._size = block_size
        self.output: list[int] = []
        self.slots: list[int] = []
        self.masked: list[bool] = []
        self.end = block_size

    @property
    def drafting(self) -> bool:
        """Whether any slot of the open block is still to be drafted."""
        return True in self.masked

    @property
    def checking(self) -> bool:
        """Whether the block is ready for the next-token head."""
        return not self.ended and not self.drafting

    @property
    def masked_next(self) -> list[bool]:
        """The slots to be drafted of the block behind this one, should all of this one be right: none where it would end."""
        stops = self._stop.token_ids.intersection(self.slots[self.KNOWN : self.end])
        return self._to_draft(0 if stops else self._left - self.end)

    def start(self, token: int) -> None:
        """Take the first token, which the prompt's own logits gave, where it is final; and open the first block."""
        if self.KNOWN:
            self._finish(token)
        self._open()

    def draft(self, tokens: Sequence[int]) -> bool:
        """Take the drafts of one pass (-1: none); whether that took other slots out of the masked set (behind a stop).

        Raises:
            NoTokenError: a slot was drafted whose logits name no token, or none of those to be drafted was.
        """
        before = self.masked.count(True)
        for slot, token in enumerate(tokens):
            if self.masked[slot] and token != -1:
                refuse_no_token(token)
                self.slots[slot], self.masked[slot] = token, False
                self.end = slot if token == self._mask_id and slot < self.end else self.end
        if before and self.masked.count(True) == before:
            raise NoTokenError(NO_NUMBERS)
        stops = [slot for slot in range(self.KNOWN, self._size) if self.slots[slot] in self._stop.token_ids]
        behind = min(self.end, min(stops, default=self._size) + 1)
        cut = True in self.masked[behind:]
        self.masked[behind:] = [False] * len(self.masked[behind:])
        return cut

    def known(self, drafts: Sequence[int]) -> int:
        """How many tokens a pass drafted (-1 and the mask are none)."""
        return len(drafts) - drafts.count(-1) - drafts.count(self._mask_id)

    def check(self, verdicts: Sequence[int]) -> Checked:
        """Take what the next-token head says behind every slot, as far as what it was fed was right; then open a new block.

        What it says behind a right slot is final, whether drafted or not; a draft that differs ends it. Slots of the draft
        are so kept one by one with the tokens that become final: the newest one has no KV yet.
        """
        final = agreed = 0
        for slot, token in enumerate(verdicts):
            self._finish(token)
            final += 1
            right = slot + 1 < self._size and self.slots[slot + 1] == token
            agreed += right
            if self.ended or not right:
                break
        self._open()
        return Checked(final, agreed)

    @property
    def _left(self) -> int:
        """Tokens that the row may still write."""
        return self._max_new_tokens - len(self.output)

    def _finish(self, token: int) -> None:
        refuse_no_token(token)
        self.output.append(token)
        self._reason = self._stop.ending(self.output, self._max_new_tokens)

    def _open(self) -> None:
        """Begin a block, with the newest token if that is known; a row that has ended has nothing to draft."""
        self.end = self._size
        self.slots = self.output[-1:] * self.KNOWN + [self._mask_id] * (self._size - self.KNOWN)
        self.masked = self._to_draft(0 if self.ended else self._left)

    def _to_draft(self, left: int) -> list[bool]:
        """The slots worth drafting where ``left`` tokens may follow those that are known: the last of them needs no draft to
        become final where the next-token head writes it.
        """
        return [self.KNOWN <= slot < left for slot in range(self._size)]
