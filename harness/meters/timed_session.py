"""A model session with a clock at its forward calls and readbacks: the times of forward, sampler and the rest of a pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from harness.meters.clock import Clock


class MeteredSession:
    """Passes every call on to ``session`` and marks three points of each pass: its forward's start and end, and the sampler's
    end. Knows nothing of models. A decode may take several sessions, a draft model's beside the target's: those of ``beside``
    share one list of durations.
    """

    def __init__(self, session: Any, clock: Clock) -> None:
        self._session = session
        self._clock = clock
        self._mark = clock.mark
        # The session's own method: behind a forward the caches are empty, and every call costs microseconds.
        self.keep: Callable[[Sequence[int]], None] = session.keep
        self.drop: Callable[[Sequence[int]], None] = session.drop
        self._forwards: list[tuple[Any, Any]] = []
        self._reads: list[tuple[int, Any]] = []  # behind how many forwards, and when
        self._forgets = True  # the lists are its own

    def beside(self, session: Any) -> MeteredSession:
        """Another session whose passes stand in the same list, in the order made; its reset forgets none of them."""
        other = MeteredSession(session, self._clock)
        other._forwards, other._reads, other._forgets = self._forwards, self._reads, False
        return other

    @property
    def context_tokens(self) -> tuple[int, ...]:
        """As the session."""
        context: tuple[int, ...] = self._session.context_tokens
        return context

    @property
    def context_width(self) -> int:
        """As the session."""
        width: int = self._session.context_width
        return width

    def reset(self, rows: int, capacity: int) -> None:
        """As the session; starts a new list of durations."""
        if self._forgets:
            self._forwards.clear()
            self._reads.clear()
        self._session.reset(rows, capacity)

    def forward(self, segments: Sequence[Any]) -> Any:
        """As the session, between two marks."""
        start = self._mark()
        logits = self._session.forward(segments)
        self._forwards.append((start, self._mark()))
        return logits

    def read(self, tokens: Any) -> list[list[int]]:
        """As the session, behind a mark."""
        self._reads.append((len(self._forwards), self._mark()))
        on_host: list[list[int]] = self._session.read(tokens)
        return on_host

    def forward_s(self) -> list[float]:
        """Seconds of every forward since reset, in order; call after the clock has synchronised."""
        return self._clock.spans_s(self._forwards)

    def sampler_s(self) -> list[float]:
        """Seconds from the end of every forward to its readback; 0 where nothing was read, because no sampler ran."""
        last = dict(self._reads)
        marks = [(self._forwards[n - 1][1], read) for n, read in last.items()]
        spans = dict(zip(last, self._clock.spans_s(marks), strict=True))
        return [spans.get(n, 0.0) for n in range(1, len(self._forwards) + 1)]
