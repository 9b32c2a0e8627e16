"""Meters of the host: disturbance and memory of a process during a window, graphs made in it, and energy of CPU packages.

HostMeter counts how often the process was taken off its core, and the time that the hypervisor took. GraphMeter counts what is
compiled or captured: that takes seconds, so a window with some is no measurement of decoding. KernelMeter times a fixed piece
of work before and after every window. If it takes longer than usual, the machine was disturbed, and the times of that window
say nothing about the program. RaplMeter reads energy by RAPL, where Linux lets this user: root only since 5.10, absent in most
virtual machines.
"""

from __future__ import annotations

import math
import os
import resource
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from harness.meters.environment_host import field_of, steal_ticks
from harness.meters.window import Absent, CounterMeter, MeterFigure, Unreadable


class HostMeter(CounterMeter):
    """Involuntary context switches of this process, all threads, and the machine's stolen time."""

    figures: Mapping[str, MeterFigure] = {
        "involuntary_switches": MeterFigure(unit="count", source="getrusage ru_nivcsw"),
        "steal_s": MeterFigure(unit="s", source="/proc/stat, all cores"),
    }

    def __init__(
        self,
        proc: Path = Path("/proc"),
        switches: Callable[[], int] = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw,
        ticks_per_s: float | None = None,
    ) -> None:
        self._proc = proc
        self._switches = switches
        self.counts_per_unit = {"steal_s": ticks_per_s or os.sysconf("SC_CLK_TCK")}

    def counters(self) -> Mapping[str, int]:
        """The switches, and the ticks stolen from all cores since boot where this kernel counts them."""
        found = {"involuntary_switches": self._switches()}
        with suppress(OSError, Unreadable):
            found["steal_s"] = steal_ticks(self._proc)
        return found


class HostMemoryMeter:
    """Largest resident set during the window: Linux resets the mark on request."""

    figures: Mapping[str, MeterFigure] = {"peak_memory_bytes": MeterFigure(unit="bytes", source="VmHWM of /proc/self/status")}
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
        peak = field_of(self._process / "status", "VmHWM")
        if peak is None:
            raise Unreadable("/proc/self/status has no VmHWM")
        return {"peak_memory_bytes": 1024.0 * int(peak.split()[0])}


@dataclass(slots=True)
class GraphCount:
    """How many graphs were captured, and kernels compiled by Triton, or loaded from its cache; nobody else counts them."""

    made: int = 0

    def note(self, **told: Any) -> None:
        """Triton has compiled a kernel."""
        self.made += 1


CAPTURES = GraphCount()


class GraphMeter(CounterMeter):
    """Counts graphs made by torch.compile (``counters``: torch._dynamo's own tally, or a fake of it), captured ones, and
    kernels in Triton.
    """

    figures: Mapping[str, MeterFigure] = {
        "compiled_graphs": MeterFigure(
            unit="graphs", source="torch._dynamo counters, captures counted by the session, kernels that Triton compiled"
        )
    }

    def __init__(self, counters: Any = None) -> None:
        self._counted = counters
        if find_spec("triton"):
            from triton import knobs

            knobs.compilation.listener = CAPTURES.note

    def counters(self) -> Mapping[str, int]:
        """How many there are."""
        counted = torch._dynamo.utils.counters if self._counted is None else self._counted
        return {"compiled_graphs": counted["stats"]["unique_graphs"] + CAPTURES.made}


WARM_UP_S = 0.3
"""How long a GPU is kept busy before a figure counts: its clocks have risen, its caches and libraries are filled."""


class KernelMeter:
    """``run`` does the work once and returns its seconds; the best of three counts, because noise only adds."""

    figures: Mapping[str, MeterFigure] = {
        "kernel_before_s": MeterFigure(unit="s", source="fixed calibration kernel"),
        "kernel_after_s": MeterFigure(unit="s", source="fixed calibration kernel"),
    }

    def __init__(self, run: Callable[[], float]) -> None:
        self._run = run

    def open(self) -> None:
        """Time it before the region."""
        self._before_s = self._best()

    def close(self) -> Mapping[str, float]:
        """Time it after the region."""
        return {"kernel_before_s": self._before_s, "kernel_after_s": self._best()}

    def _best(self) -> float:
        return min(self._run() for _ in range(3))


def warm_up(run: Callable[[], object], clock: Callable[[], float]) -> None:
    """Call ``run``, which waits for what it starts, until WARM_UP_S have passed."""
    start_s = clock()
    while clock() - start_s < WARM_UP_S:
        run()


def timed_piece(
    piece: Callable[[], object], wait: Callable[[], None], least_s: float, clock: Callable[[], float] = time.perf_counter
) -> Callable[[], float]:
    """A function that times a ``piece`` of work: its mean seconds over so many in a row that they take ``least_s``, 0 for one.

    The host learns some 0.1 ms late, with variation, that a device is done: of 2 ms that is a tenth, of 20 ms nothing. The
    number of pieces is fixed here, once, after a warm-up.
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


class RaplMeter:
    """The sum over packages; a counter that ran past its end is unwound once."""

    figures: Mapping[str, MeterFigure] = {
        "cpu_energy_j": MeterFigure(unit="J", source="RAPL packages, /sys/class/powercap/*/energy_uj")
    }

    def __init__(self, packages: tuple[Path, ...]) -> None:
        self._packages = packages

    def open(self) -> None:
        """Read every package's counter (µJ)."""
        self._before = [_read(package, "energy_uj") for package in self._packages]

    def close(self) -> Mapping[str, float]:
        """Joules since."""
        total = 0
        for package, before in zip(self._packages, self._before, strict=True):
            grown = _read(package, "energy_uj") - before
            total += grown if grown >= 0 else grown + _read(package, "max_energy_range_uj")
        return {"cpu_energy_j": total / 1e6}


def find_rapl(root: Path = Path("/sys/class/powercap")) -> RaplMeter | Absent:
    """The meter, or why it is absent."""
    packages = tuple(sorted(p for p in root.glob("*rapl:*") if p.name.count(":") == 1 and (p / "energy_uj").exists()))
    reason, remedy = f"{root} lists no RAPL package", "use a machine whose kernel exposes RAPL (bare metal)"
    if packages:
        meter = RaplMeter(packages)
        try:
            meter.open()
        except OSError as error:
            reason = f"RAPL is there but cannot be read: {error.strerror}"
            remedy = f"run as root, or let this user read {packages[0]}/energy_uj"
        else:
            return meter
    return Absent(figures=tuple(RaplMeter.figures), reason=reason, remedy=remedy)


def _read(package: Path, name: str) -> int:
    return int((package / name).read_text())
