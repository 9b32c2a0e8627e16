"""CUDA's own clock: event pairs recorded into the stream, read once after the last synchronisation. The only importer of
torch.cuda among the meters.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any


def cuda_index(device: str) -> int:
    """Which GPU a device is: N of ``cuda:N``; plain ``cuda`` is the first one, whichever is current."""
    return int(device.partition(":")[2] or 0)


class CudaClock:
    """Host time after a device synchronisation for the claim, events for single passes.

    ``cuda`` is the torch.cuda module (or a fake with synchronize and Event).
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
