"""One row whose drafts another model makes and the target checks: what it has written, and how much is worth drafting.

Plain integers only.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.decoding.request import DecodeRequest
from harness.decoding.sampling import refuse_no_token
from harness.decoding.stopping import EndingRow
from harness.decoding.verification import Checked


class DraftedRow(EndingRow):
    """The state of one batch row. ``sequence``: its prompt and its output, of which the target holds all KV but the newest
    token's.
    """

    def __init__(self, prompt: Sequence[int], request: DecodeRequest) -> None:
        self._request = request
        self._prompt_tokens = len(prompt)
        self.sequence = list(prompt)

    @property
    def output(self) -> list[int]:
        """What it has written."""
        return self.sequence[self._prompt_tokens :]

    @property
    def worth_drafting(self) -> int:
        """Drafts that can become final: one fewer than the tokens that fit, for the target adds one of its own."""
        return 0 if self.ended else self._request.max_new_tokens - len(self.output) - 1

    def write(self, token: int) -> None:
        """A token is final."""
        refuse_no_token(token)
        self.sequence.append(token)
        self._reason = self._request.stop.ending(self.output, self._request.max_new_tokens)

    def up_to_a_stop(self, drafts: Sequence[int]) -> list[int]:
        """The drafts less those behind an id that stops: were it wrong, so would be all behind it."""
        ids = self._request.stop.token_ids
        end = next((i + 1 for i, token in enumerate(drafts) if token in ids), len(drafts))
        return list(drafts[: min(end, self.worth_drafting)])

    def check(self, drafts: Sequence[int], verdicts: Sequence[int]) -> Checked:
        """Take what the target says behind the newest token and behind every draft, as far as what it was fed was right.

        What it says behind a right token is final, whether drafted or not; a draft that differs ends it.
        """
        final = agreed = 0
        for index, token in enumerate(verdicts):
            self.write(token)
            final += 1
            right = index < len(drafts) and drafts[index] == token
            agreed += right
            if self.ended or not right:
                break
        return Checked(final, agreed)
