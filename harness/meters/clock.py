"""Wall time: the host clock for claims, a device clock for per-pass times without synchronising inside the loop.

A Clock hands out marks; spans between marks become seconds only when asked for, after the work is done. CUDA's own clock
records event pairs into the stream and reads them once, after the last synchronisation.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol


class Clock(Protocol):
    """A source of time around model calls."""

    def synchronise(self) -> None:
        """Wait until all work handed to the device is done."""

    def now_s(self) -> float:
        """Host time in seconds from an arbitrary start, monotonic."""

    def mark(self) -> Any:
        """A point on the device's timeline; recording it never waits."""

    def spans_s(self, marks: Sequence[tuple[Any, Any]]) -> list[float]:
        """Seconds between the marks of each pair; call after synchronise."""


class HostClock:
    """For devices whose calls return when the work is done (a CPU)."""

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
