"""A fixed piece of work, timed before and after every window: if it takes longer than usual, the machine was disturbed,
and whatever was timed beside it says nothing about the program.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from harness.meters.window import Figure

WARM_UP_S = 0.3
"""So long a GPU is kept busy before a figure counts: its clocks have risen, its caches and libraries are filled."""


class KernelMeter:
    """``run`` does the work once and returns its seconds; the best of ``runs`` counts, because noise only adds."""

    figures: Mapping[str, Figure] = {
        "kernel_before_s": Figure(unit="s", source="fixed calibration kernel"),
        "kernel_after_s": Figure(unit="s", source="fixed calibration kernel"),
    }

    def __init__(self, run: Callable[[], float], runs: int = 3) -> None:
        self._run = run
        self._runs = runs
        self._before_s = 0.0

    def open(self) -> None:
        """Time it before the region."""
        self._before_s = self._best()

    def close(self) -> Mapping[str, float]:
        """Time it after the region."""
        return {"kernel_before_s": self._before_s, "kernel_after_s": self._best()}

    def _best(self) -> float:
        return min(self._run() for _ in range(self._runs))


def warm_up(run: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> None:
    """Call ``run``, which waits for what it starts, until WARM_UP_S have passed."""
    start_s = clock()
    while clock() - start_s < WARM_UP_S:
        run()


def timed_piece(
    piece: Callable[[], object], wait: Callable[[], None], least_s: float, clock: Callable[[], float] = time.perf_counter
) -> Callable[[], float]:
    """What times a ``piece`` of work: its mean seconds over so many in a row that they take ``least_s``, 0 for just one.

    The host learns some 0.1 ms late that a device is done, now sooner, now later: of 2 ms that is a tenth, of 20 ms nothing.
    How many there are is settled here, once, behind a warm-up.
    """

    def timed(pieces: int) -> float:
        wait()
        start_s = clock()
        for _ in range(pieces):
            piece()
        wait()
        return (clock() - start_s) / pieces

    if not least_s:
        return lambda: timed(1)
    warm_up(lambda: timed(1), clock)
    enough = max(1, math.ceil(least_s / timed(1)))
    return lambda: timed(enough)
