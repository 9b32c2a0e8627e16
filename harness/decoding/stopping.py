"""When a row has said enough, in token ids. Decoders are handed a rule and know no tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.record.trace import StopReason


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


class EndingRow:
    """What every batch row has: an end, and why it ended."""

    _reason: StopReason | None = None

    @property
    def ended(self) -> bool:
        """True once the stop, or the last token that fits, is final."""
        return self._reason is not None

    @property
    def stop_reason(self) -> StopReason:
        """Why the row ended."""
        assert self._reason is not None, "asked for the stop reason of a row that has not ended"
        return self._reason


NEVER = StopRule()
