"""A clock that passes by ticks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class FakeClock:
    """Time that passes only by ``tick``: durations in tests are exact numbers."""

    time_s: float = 0.0
    tick_s: float = 1.0
    synchronised: int = field(default=0)

    def synchronise(self) -> None:
        """Count the call."""
        self.synchronised += 1

    def now_s(self) -> float:
        """Advance by one tick and return the new time."""
        self.time_s += self.tick_s
        return self.time_s

    def mark(self) -> float:
        """Like now_s."""
        return self.now_s()

    def spans_s(self, marks: Sequence[tuple[float, float]]) -> list[float]:
        """Differences of fake times."""
        return [end - start for start, end in marks]
