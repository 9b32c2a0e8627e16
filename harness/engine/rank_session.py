"""What timing and decoding have to know of other ranks: readbacks on which all agree, and a clock that waits for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from harness.decoding.session import ModelSession, Segment
from harness.engine.rank_group import RankGroup
from harness.meters.clock import Clock


class RankSession:
    """Passes every call on to ``session``; what is read must be what rank 0 reads."""

    def __init__(self, session: ModelSession, group: RankGroup) -> None:
        self._session = session
        self._group = group

    @property
    def context_tokens(self) -> tuple[int, ...]:
        """As the session."""
        return self._session.context_tokens

    @property
    def context_width(self) -> int:
        """As the session."""
        return self._session.context_width

    def reset(self, rows: int, capacity: int) -> None:
        """As the session."""
        self._session.reset(rows, capacity)

    def forward(self, segments: Sequence[Segment]) -> Tensor:
        """As the session."""
        return self._session.forward(segments)

    def keep(self, tokens: Sequence[int]) -> None:
        """As the session."""
        self._session.keep(tokens)

    def drop(self, tokens: Sequence[int]) -> None:
        """As the session."""
        self._session.drop(tokens)

    def read(self, tokens: Tensor) -> list[list[int]]:
        """As the session.

        Raises:
            InvariantError: rank 0 reads something else.
        """
        return self._group.read(tokens)


class RankClock:
    """A clock by which nothing has begun before all ranks are there, and nothing has ended before all are done."""

    def __init__(self, clock: Clock, group: RankGroup) -> None:
        self._clock = clock
        self._group = group

    def synchronise(self) -> None:
        """Wait for the device, then for the other ranks."""
        self._clock.synchronise()
        self._group.barrier()

    def now_s(self) -> float:
        """As the clock."""
        return self._clock.now_s()

    def mark(self) -> Any:
        """As the clock: single passes are not waited for, their collectives keep the ranks together."""
        return self._clock.mark()

    def spans_s(self, marks: Sequence[tuple[Any, Any]]) -> list[float]:
        """As the clock."""
        return self._clock.spans_s(marks)
