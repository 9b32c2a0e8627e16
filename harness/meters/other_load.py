"""How many cores other programs used while something was measured here; Linux only, elsewhere it is not known."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

MOST_CORES = 0.25
"""More than that of one core, and what was measured beside it is not kept."""
LEAST_S = 1.0
"""Shorter than that, the ticks of /proc/stat say nothing."""
IDLE = (3, 4)
"""Places of idle and iowait in the first line of /proc/stat (proc(5)); the guest times are within user and nice."""
COUNTED = 8


def busy_s() -> float | None:
    """Seconds that all cores have worked since boot, with those that the hypervisor gave to others (steal)."""
    with suppress(OSError, ValueError):
        ticks = [int(one) for one in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]]
        return sum(one for at, one in enumerate(ticks[:COUNTED]) if at not in IDLE) / os.sysconf("SC_CLK_TCK")
    return None


def own_s() -> float:
    """Seconds of processor time of this process and of its children that have ended."""
    return sum(os.times()[:4])


class OtherLoad:
    """Begun when it is made; ``cores`` and ``words`` are about the time since then. The readings are replaceable for tests."""

    def __init__(
        self,
        busy: Callable[[], float | None] = busy_s,
        own: Callable[[], float] = own_s,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._busy, self._own, self._clock = busy, own, clock
        self._begun = busy(), own(), clock()

    @property
    def cores(self) -> float | None:
        """Cores that others used on average; None where it is not known."""
        busy, own, at_s = self._begun
        now, wall_s = self._busy(), self._clock() - at_s
        if busy is None or now is None or wall_s < LEAST_S:
            return None
        return max(0.0, (now - busy) - (self._own() - own)) / wall_s

    @property
    def words(self) -> str | None:
        """Why what was measured is not to be kept; None where it may be."""
        cores = self.cores
        if cores is None or cores <= MOST_CORES:
            return None
        return f"other programs used {cores:.1f} cores meanwhile (at most {MOST_CORES:g} are let pass)"
