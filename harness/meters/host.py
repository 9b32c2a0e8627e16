"""What the host did to a process during a window: taken off its core, robbed by the hypervisor, how much memory it touched."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Mapping
from pathlib import Path

from harness.meters.window import Figure, Unreadable


class HostMeter:
    """Involuntary context switches of this process, all threads, and the machine's stolen time."""

    figures: Mapping[str, Figure] = {
        "involuntary_switches": Figure(unit="count", source="getrusage ru_nivcsw"),
        "steal_s": Figure(unit="s", source="/proc/stat, all cores"),
    }

    def __init__(
        self,
        proc: Path = Path("/proc"),
        switches: Callable[[], int] = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw,
        ticks_per_s: float | None = None,
    ) -> None:
        self._proc = proc
        self._switches = switches
        self._ticks_per_s = ticks_per_s or os.sysconf("SC_CLK_TCK")
        self._before: tuple[int, int | None] = (0, None)

    def open(self) -> None:
        """Read both counters."""
        self._before = self._switches(), self._steal_ticks()

    def close(self) -> Mapping[str, float]:
        """Their growth."""
        found = {"involuntary_switches": float(self._switches() - self._before[0])}
        before, after = self._before[1], self._steal_ticks()
        if before is not None and after is not None:
            found["steal_s"] = (after - before) / self._ticks_per_s
        return found

    def _steal_ticks(self) -> int | None:
        """The eighth figure of the first line of /proc/stat; None where this kernel counts no steal time."""
        try:
            fields = (self._proc / "stat").read_text().splitlines()[0].split()
        except OSError:
            return None
        return int(fields[8]) if len(fields) > 8 else None


class HostMemoryMeter:
    """Largest resident set during the window: Linux resets the mark when told to."""

    figures: Mapping[str, Figure] = {"peak_memory_bytes": Figure(unit="bytes", source="VmHWM of /proc/self/status")}
    _RESET_PEAK = "5"

    def __init__(self, process: Path = Path("/proc/self")) -> None:
        self._process = process

    def open(self) -> None:
        """Put the mark back to what is resident now."""
        try:
            (self._process / "clear_refs").write_text(self._RESET_PEAK)
        except OSError as error:
            raise Unreadable(f"the peak cannot be reset ({error.strerror}), so it would be that of another window") from error

    def close(self) -> Mapping[str, float]:
        """Read the mark."""
        for line in (self._process / "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return {"peak_memory_bytes": 1024.0 * int(line.split()[1])}
        raise Unreadable("/proc/self/status has no VmHWM")
