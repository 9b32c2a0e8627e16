"""A forward captured once and replayed: CUDA graphs, which take the host's launches out of a pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from harness.meters.graphs import CAPTURES

WARM_UPS = 3
Work = Callable[[], Tensor]
Capture = Callable[[Work], Work]
"""Takes work on tensors that stay where they are; returns the same work to be called again, writing the same result."""


def cuda_graphs(cuda: Any = torch.cuda) -> Capture:
    """Captures share one memory pool: what one returned is overwritten when any of them runs again. ``cuda`` may be a fake."""
    pool: list[Any] = []

    def capture(work: Work) -> Work:
        aside = cuda.Stream()
        aside.wait_stream(cuda.current_stream())
        with cuda.stream(aside):  # lazy initialisations must not be captured
            for _ in range(WARM_UPS):
                work()
        cuda.current_stream().wait_stream(aside)
        graph = cuda.CUDAGraph()
        with cuda.graph(graph, pool=pool[0] if pool else None):
            out = work()
        pool.append(graph.pool())
        CAPTURES.made += 1

        def replay() -> Tensor:
            graph.replay()
            return out

        return replay

    return capture


def by_calling_again(work: Work) -> Work:
    """No graph, the work itself: what a device without CUDA graphs does, with the same bookkeeping."""
    CAPTURES.made += 1
    held: list[Tensor] = []

    def again() -> Tensor:
        out = work()
        if not held:
            held.append(torch.empty_like(out))
        return held[0].copy_(out)

    return again
