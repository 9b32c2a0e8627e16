"""A model session with a clock around its forward calls: forward time apart from sampler and bookkeeping."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.meters.clock import Clock


class MeteredSession:
    """Passes every call on to ``session`` and marks the start and end of each forward. Knows nothing of models."""

    def __init__(self, session: Any, clock: Clock) -> None:
        self._session = session
        self._clock = clock
        self._marks: list[tuple[Any, Any]] = []

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
        self._marks = []
        self._session.reset(rows, capacity)

    def forward(self, segments: Sequence[Any]) -> Any:
        """As the session, between two marks."""
        start = self._clock.mark()
        logits = self._session.forward(segments)
        self._marks.append((start, self._clock.mark()))
        return logits

    def keep(self, tokens: Sequence[int]) -> None:
        """As the session."""
        self._session.keep(tokens)

    def forward_s(self) -> list[float]:
        """Seconds of every forward since reset, in order; call after the clock has synchronised."""
        return self._clock.spans_s(self._marks)
