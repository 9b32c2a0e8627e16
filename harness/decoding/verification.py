"""One row that drafts a block and lets the next-token head check it: what is drafted, what counts, where it stopped.

Every token that counts is the next-token head's own, so drafts decide how fast a row is and never what it writes. A
NextTokenCheck compares a drafted block with what the next-token head says after every slot. ReplayedCheck replays from a
record how far a check agrees with a draft, for weights whose next-token head agrees with nothing yet. It feeds, computes and
reads back as a real check and replaces the verdicts' tokens only. So a replayed run costs what a real one of the same
agreement would cost. Rows hold plain integers. Axes: B rows, k slots of a block, V vocabulary.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from harness.decoding.request import Checked, EndingRow, StopRule
from harness.decoding.session import NO_NUMBERS, refuse_no_token
from harness.decoding.solvers import BlockView
from harness.errors import NoTokenError


class VerifiedRow(EndingRow):
    """The state of one batch row. ``slots``: the open block: first the newest final token, whose KV is not kept yet, then the
    drafts, the mask id in undrafted slots. ``masked``: the slots still to be drafted.

    Slots that can never count are not drafted: those past the length limit and those after a drafted stop. If that stop is
    wrong, so is all after it. ``end``: slots worth checking; a draft that is the mask says that the block ends before it.
    """

    KNOWN = 1
    """Slots of a block that are final when it is opened."""
    slots: list[int]
    masked: list[bool]
    end: int

    def __init__(self, stop: StopRule, max_new_tokens: int, block_size: int, mask_id: int) -> None:
        super().__init__(stop, max_new_tokens)
        self._mask_id = mask_id
        self._size = block_size

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
        """The slots to be drafted of the block after this one, if all of this one is right: none where it would end."""
        stops = self._stop.token_ids.intersection(self.slots[self.KNOWN : self.end])
        return self._to_draft(0 if stops else self.left - self.end)

    def start(self, token: int) -> None:
        """Take the first token, which the prompt's own logits gave, where it is final; and open the first block."""
        if self.KNOWN:
            self.write(token)
        self._open()

    def draft(self, tokens: Sequence[int]) -> bool:
        """Take the drafts of one pass (-1: none); whether that took other slots out of the masked set (after a stop).

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
        end = min(self.end, min(stops, default=self._size) + 1)
        cut = True in self.masked[end:]
        self.masked[end:] = [False] * len(self.masked[end:])
        return cut

    def known(self, drafts: Sequence[int]) -> int:
        """How many tokens a pass drafted (-1 and the mask are none)."""
        return len(drafts) - drafts.count(-1) - drafts.count(self._mask_id)

    def check(self, verdicts: Sequence[int]) -> Checked:
        """Take what the next-token head says after every slot, see ``accept``; then open a new block. The KV of one slot is
        kept for each token that becomes final: the newest token has no KV yet.
        """
        checked = self.accept(self.slots[1:], verdicts)
        self._open()
        return checked

    def _open(self) -> None:
        """Begin a block, with the newest token if that is known; a row that has ended has nothing to draft."""
        self.end = self._size
        self.slots = self.output[-1:] * self.KNOWN + [self._mask_id] * (self._size - self.KNOWN)
        self.masked = self._to_draft(0 if self.ended else self.left)

    def _to_draft(self, left: int) -> list[bool]:
        """The slots worth drafting where ``left`` tokens may follow those that are known. The last of them needs no draft: the
        next-token head writes it.
        """
        return [self.KNOWN <= slot < left for slot in range(self._size)]


@dataclass
class NextTokenCheck:
    """Told every distribution that drafts are drawn from, asked for those that decide which of the drafts count. This one takes
    the next-token head's own token, however the drafts were drawn: without loss.

    If a block is wrong somewhere, the drafts after that slot are lost and the next block's masks stand in the wrong place. A
    block that ends before its first doubtful slot, of ``least_confidence`` or less, is right more often. Its ``mask_id`` stands
    where it ends; at 0 it never ends early.
    """

    mask_id: int = -1
    least_confidence: float = 0.0

    def drafted(self, logits: Tensor) -> None:
        """(B, k, V): what the masked head says of the blocks that a pass drafts. How a draft was found does not matter here."""

    def worth(self, view: BlockView, tokens: Tensor) -> Tensor:
        """(B, k): the drafts, the mask where one is not sure enough to be checked; the block then ends before it."""
        if self.least_confidence == 0:
            return tokens
        return torch.where(view.confidence > self.least_confidence, tokens, self.mask_id)

    def verdicts(self, of_head: Tensor) -> Tensor:
        """(B, k, V) from the next-token head's ``of_head``, after every slot of the checked blocks: as they are."""
        return of_head

    def heard(self, row: int, slots: Sequence[int], verdicts: Sequence[int]) -> Sequence[int]:
        """The tokens that a row uses for the drawn ``verdicts``, after every slot of its block: what was drawn."""
        return verdicts


STAND_INS = (0, 1, 2)
"""One of these tokens is neither the draft nor the mask, so it stands for a verdict that differs."""


class ReplayedCheck(NextTokenCheck):
    """Agrees with the drafts of a block one by one until it does not. ``misses``: the probability of that at each of the k-1
    drafts, given that all before it were right. Every row has its own random stream.
    """

    def __init__(self, misses: Sequence[float], mask_id: int, seed: int) -> None:
        super().__init__(mask_id)
        self._misses = misses
        self._stream_of = cache(lambda row: random.Random(f"check/{seed}/{row}"))

    def heard(self, row: int, slots: Sequence[int], verdicts: Sequence[int]) -> list[int]:
        """The drafts as far as the check agrees, a token that differs from the next one, then the given verdicts.

        Raises:
            NoTokenError: a replaced verdict names no token.
        """
        stream: random.Random = self._stream_of(row)
        drafts = [*slots[1:], self.mask_id]
        drafts = drafts[: drafts.index(self.mask_id)]  # after the answer's end nothing was drafted
        chances = enumerate(self._misses[: len(drafts)])
        agreed = next((at for at, chance in chances if stream.random() < chance), len(drafts))
        for token in verdicts[: agreed + 1]:
            refuse_no_token(token)
        if agreed == len(drafts):
            return [*drafts, *verdicts[agreed:]]
        differs = next(token for token in STAND_INS if token not in (drafts[agreed], self.mask_id))
        return [*drafts[:agreed], differs, *verdicts[agreed + 1 :]]
