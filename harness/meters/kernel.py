"""A fixed piece of work, timed before and after every window: if it takes longer than usual, the machine was disturbed,
and whatever was timed beside it says nothing about the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from harness.meters.window import Figure


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
