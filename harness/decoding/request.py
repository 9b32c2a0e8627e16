"""What a decoder is asked to do, when a row stops, and what a decoder returns: its passes, and the output of each row.

Stops are in token ids, because decoders know no tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harness.decoding.session import refuse_no_token
from harness.record.trace import ForwardPass, Generation, StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """A row stops at the first of ``token_ids``, or where ``ends_text`` says that its ids complete a stop string."""

    token_ids: frozenset[int] = frozenset()
    ends_text: Callable[[Sequence[int]], bool] | None = None

    def stops_at(self, output: Sequence[int], start: int) -> int | None:
        """Index of the first stop at or after ``start`` in a row's known output, or None."""
        if self.ends_text is None and self.token_ids.isdisjoint(output[start:]):
            return None
        for index in range(start, len(output)):
            if output[index] in self.token_ids:
                return index
            if self.ends_text is not None and self.ends_text(output[: index + 1]):
                return index
        return None

    def ending(self, output: Sequence[int], most: int) -> StopReason | None:
        """Why a row that may write ``most`` tokens ends at its newest one, or None."""
        if self.stops_at(output, len(output) - 1) is not None:
            return "stop"
        return "length" if len(output) == most else None


@dataclass(frozen=True, slots=True)
class Checked:
    """``final``: tokens that one check made final, as many as there are slots whose KV stays; ``agreed``: of these, how many
    had been drafted.
    """

    final: int
    agreed: int


NOT_CHECKED = Checked(final=0, agreed=0)


class EndingRow:
    """What every batch row has, in plain integers: what it has written, its end, and why it ended."""

    def __init__(self, stop: StopRule, max_new_tokens: int) -> None:
        self._stop = stop
        self._max_new_tokens = max_new_tokens
        self._reason: StopReason | None = None
        self.output: list[int] = []

    @property
    def ended(self) -> bool:
        """True once the stop, or the last token that fits, is final."""
        return self._reason is not None

    @property
    def stop_reason(self) -> StopReason:
        """Why the row ended."""
        assert self._reason is not None, "asked for the stop reason of a row that has not ended"
        return self._reason

    @property
    def left(self) -> int:
        """Tokens that the row may still write."""
        return self._max_new_tokens - len(self.output)

    def write(self, token: int) -> None:
        """A token is final.

        Raises:
            NoTokenError: it is none.
        """
        refuse_no_token(token)
        self.output.append(token)
        self._reason = self._stop.ending(self.output, self._max_new_tokens)

    def accept(self, drafts: Sequence[int], verdicts: Sequence[int]) -> Checked:
        """Take what the checking model says after the newest token and after every draft, as far as what it was fed was
        right. What it says after a right token is final, whether drafted or not; a draft that differs ends it.
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


NEVER = StopRule()


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeRequest:
    """One batch of prompts. ``suppressed_ids`` can never be emitted (the mask token among them); ``figures``: a
    harness.decoding.sampling.FiguresOf that reads logits, None for their device's own.
    """

    prompts: tuple[tuple[int, ...], ...]
    max_new_tokens: int
    stop: StopRule
    suppressed_ids: tuple[int, ...]
    temperature: float
    generator: torch.Generator
    device: torch.device
    figures: Callable[[Tensor, float], Any] | None = None

    def never_written(self, *also: int) -> Tensor:
        """(s,) ids that no token may have: the suppressed ones, and those given (the mask)."""
        return torch.tensor(sorted({*self.suppressed_ids, *also}), dtype=torch.long, device=self.device)


def finished(request: DecodeRequest, rows: Sequence[EndingRow], passes: Sequence[ForwardPass]) -> Generation:
    """The whole decode, once every row has ended."""
    return Generation(
        passes=tuple(passes),
        prompt_tokens=tuple(map(len, request.prompts)),
        output_ids=tuple(tuple(row.output) for row in rows),
        stop_reasons=tuple(row.stop_reason for row in rows),
    )
