"""Wall time: the host clock for claims, a device clock for per-pass times without synchronising inside the loop; and a session
with a clock at its forward calls and readbacks, which gives the times of forward, sampler and the rest of a pass.

A Clock hands out marks; spans between marks become seconds only when asked for, after the work is done. CUDA's own clock
records event pairs into the stream and reads them once, after the last synchronisation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any


class HostClock:
    """For devices whose calls return when the work is done (a CPU). ``mark``: a point on its timeline, recorded without
    a wait. ``spans_s``: seconds between the marks of each pair, asked for after a synchronisation.
    """

    def synchronise(self) -> None:
        """Nothing is ever pending."""

    def now_s(self) -> float:
        """Seconds from an arbitrary start, monotonic."""
        return time.perf_counter()

    mark = staticmethod(time.perf_counter)
    """The host time without a wrapper of ours, because every pass asks for it."""

    def spans_s(self, marks: Sequence[tuple[float, float]]) -> list[float]:
        """Differences of host times."""
        return [end - start for start, end in marks]


def cuda_index(device: str) -> int:
    """Which GPU a device is: N of ``cuda:N``; plain ``cuda`` is the first one, whichever is current."""
    return int(device.partition(":")[2] or 0)


class CudaClock:
    """Host time after a device synchronisation for claims, events for single passes. ``cuda`` is the torch.cuda module (or a
    fake with synchronize and Event).
    """

    def __init__(self, device: str, cuda: Any = None) -> None:
        if cuda is None:
            import torch

            cuda = torch.cuda
        self._cuda = cuda
        self._device = device

    def synchronise(self) -> None:
        """Wait for the device."""
        self._cuda.synchronize(self._device)

    def now_s(self) -> float:
        """Host seconds from an arbitrary start, monotonic."""
        return time.perf_counter()

    def mark(self) -> Any:
        """An event recorded into the current stream."""
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def spans_s(self, marks: Sequence[tuple[Any, Any]]) -> list[float]:
        """Event differences; CUDA reports milliseconds."""
        return [float(start.elapsed_time(end)) / 1000 for start, end in marks]


Clock = HostClock | CudaClock


def clock_of(device: str) -> Clock:
    """The clock of a device (cpu, cuda, cuda:1)."""
    return CudaClock(device) if device.startswith("cuda") else HostClock()


class MeteredSession:
    """Passes every call on to ``session`` and marks three points of each pass: its forward's start and end, and the sampler's
    end. Knows nothing of models. A decode may take several sessions, a draft model's beside the target's: those of ``beside``
    share one list of durations. ``seen`` is told the logits of every forward of its own.
    """

    def __init__(self, session: Any, clock: Clock, seen: Callable[[Any], object] | None = None) -> None:
        self._session = session
        self._seen = seen
        self._clock = clock
        self._mark = clock.mark
        # The session's own method: after a forward the caches are empty, and every call costs microseconds.
        self.keep: Callable[[Sequence[int]], None] = session.keep
        self.drop: Callable[[Sequence[int]], None] = session.drop
        self._forwards: list[tuple[Any, Any]] = []
        self._reads: list[tuple[int, Any]] = []  # after how many forwards, and when
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
        if self._seen is not None:
            self._seen(logits)
        return logits

    def read(self, tokens: Any) -> list[list[int]]:
        """As the session, after a mark."""
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
