"""How far a check agrees with a draft, replayed from a record: for weights whose next-token head agrees with nothing yet.

Everything is fed, computed and read back as in a check of its own; only the verdicts' tokens are put in the place of others,
so a replayed run costs what a real one of the same agreement would cost. Plain integers only.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from harness.decoding.draft_check import NextTokenCheck
from harness.decoding.sampling import refuse_no_token

STAND_INS = (0, 1, 2)
"""One of these tokens is neither the draft nor the mask, so it stands for a verdict that differs."""


class ReplayedCheck(NextTokenCheck):
    """Agrees with the drafts of a block one by one until it does not. ``misses``: the chance of that at each of the k-1 drafts,
    given that all before it were right. Every row has a random stream of its own.
    """

    def __init__(self, misses: Sequence[float], mask_id: int, seed: int) -> None:
        super().__init__(mask_id)
        self._misses = misses
        self._seed = seed
        self._streams: dict[int, random.Random] = {}

    def heard(self, row: int, slots: Sequence[int], verdicts: Sequence[int]) -> list[int]:
        """The drafts as far as the check agrees, a token that differs from the next one, then whatever was said.

        Raises:
            NoTokenError: what others are put in the place of names no token.
        """
        stream = self._streams.get(row)
        if stream is None:
            stream = self._streams[row] = random.Random(f"check/{self._seed}/{row}")
        drafts = [*slots[1:], self._mask_id]
        drafts = drafts[: drafts.index(self._mask_id)]  # behind the answer's end nothing was drafted
        chances = enumerate(self._misses[: len(drafts)])
        agreed = next((at for at, chance in chances if stream.random() < chance), len(drafts))
        for token in verdicts[: agreed + 1]:
            refuse_no_token(token)
        if agreed == len(drafts):
            return [*drafts, *verdicts[agreed:]]
        differs = next(token for token in STAND_INS if token not in (drafts[agreed], self._mask_id))
        return [*drafts[:agreed], differs, *verdicts[agreed + 1 :]]
