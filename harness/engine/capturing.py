"""A forward captured once and replayed: CUDA graphs, which take the host's launches out of a pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from harness.meters.graphs import CAPTURES

WARM_UPS = 3
Work = Callable[[], Tensor]


class Capture(Protocol):
    """Takes work on tensors that stay where they are; returns the same work to be called again, writing the same result."""

    def __call__(self, work: Work) -> Work:
        """Capture; what is returned runs on the stream that is current when it is called."""

    def release(self) -> None:
        """Told that all that was captured so far has been let go."""


class CudaGraphs:
    """Captures share one memory pool: what one returned is overwritten when any of them runs again. ``cuda`` may be a fake.

    Warm-ups and captures run on one side stream, so that what a stream sets up when it is first used is there before a capture.
    """

    def __init__(self, cuda: Any = torch.cuda) -> None:
        self._cuda = cuda
        self._aside: Any = None
        self._pool: Any = None

    def __call__(self, work: Work) -> Work:
        """See Capture."""
        cuda = self._cuda
        self._aside = self._aside or cuda.Stream()
        self._pool = self._pool or cuda.graph_pool_handle()
        self._aside.wait_stream(cuda.current_stream())
        with cuda.stream(self._aside):  # lazy initialisations must not be captured
            for _ in range(WARM_UPS):
                work()
        cuda.current_stream().wait_stream(self._aside)
        graph = cuda.CUDAGraph()
        with cuda.graph(graph, pool=self._pool, stream=self._aside):
            out = work()
        CAPTURES.made += 1

        def replay() -> Tensor:
            graph.replay()
            return out

        return replay

    def release(self) -> None:
        """A pool dies with the last of its graphs, and torch asserts that no later capture names it again."""
        self._pool = None


class CallingAgain:
    """No graph, the work itself: what a device without CUDA graphs does, with the same bookkeeping."""

    def __call__(self, work: Work) -> Work:
        """See Capture."""
        CAPTURES.made += 1
        held: list[Tensor] = []

        def again() -> Tensor:
            out = work()
            if not held:
                held.append(torch.empty_like(out))
            return held[0].copy_(out)

        return again

    def release(self) -> None:
        """Nothing is held."""


by_calling_again = CallingAgain()
