"""DCGM field 1005 (DCGM_FI_PROF_DRAM_ACTIVE, now ..._DRAM_UTIL_RATIO): memory bandwidth of data-centre GPUs before Hopper.

The meter reads ``dcgmi dmon``, NVIDIA's documented tool, whose table has kept its form since DCGM 2. DCGM's Python bindings
come with DCGM's own packages, not from PyPI, and break with its versions. One dmon runs beside the work and prints a line every
100 ms into a pipe; it ends with this process. The pipe is read at the window's ends only. Facts about dmon are from
dcgmi/DeviceMonitor.cpp in NVIDIA/DCGM 4.6; none of this has run on a GPU of ours yet.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from harness.meters.window import Absent, MeterFigure, Unreadable

DCGM = {
    "dram_bandwidth_pct": MeterFigure(
        unit="% of the device's maximum", source="DCGM field 1005 (share of cycles that move data)"
    )
}
FIELD, INTERVAL_S = 1005, 0.1
ROWS_ACROSS = 2
"""Rows at a window's beginning that may cover the time before it: one is in progress, its sample an interval old."""
START_S = 10.0
NONE_YET = "N/A"
_PIPE_BYTES = 2**20
_VALUE = re.compile(r"^GPU(?:-C?I)? \d+\s+(\d+\.\d+|N/A)\s*$", re.MULTILINE)
_FAULT = re.compile(r"^.*(?:error|unable|no data).*$", re.MULTILINE | re.IGNORECASE)
# What dmon says -> what to do about it. Codes: dcgm_structs.h.
_REMEDIES = (
    ("unable to connect", "start DCGM's host engine: systemctl start nvidia-dcgm, or nv-hostengine"),
    ("unable to establish", "start DCGM's host engine: systemctl start nvidia-dcgm, or nv-hostengine"),
    ("root", "start nv-hostengine as root (in a container: with --cap-add SYS_ADMIN)"),
    ("permission", "start nv-hostengine as root (in a container: with --cap-add SYS_ADMIN)"),
    ("not currently loaded", "start nv-hostengine as root, with DCGM's proprietary package; a data-centre GPU is needed"),
    ("unrecoverable", "stop other profilers of this GPU; start nv-hostengine as root (in a container: --cap-add SYS_ADMIN)"),
    ("not supported", "profiling needs a data-centre GPU (Volta or newer)"),
    ("entit", "use DCGM 4 or newer, which takes a GPU's UUID"),
)


class DcgmMeter:
    """Mean of the rows that lie in the window, as a percentage."""

    figures = DCGM

    def __init__(self, command: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        assert self._process.stdout is not None
        self._pipe = self._process.stdout.fileno()
        os.set_blocking(self._pipe, False)
        with suppress(OSError):  # room for an hour of rows; where it is refused, close() notices that rows are missing
            fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self.stop = weakref.finalize(self, _end, self._process)

    def await_value(self, patience_s: float) -> None:
        """Wait until dmon has printed a number.

        Raises:
            Unreadable: it ended instead, with what it said; or it printed none in so many seconds.
        """
        until, text, values = self._clock() + patience_s, "", list[str]()
        while self._clock() < until:
            text += self._drain()
            values = _VALUE.findall(text)
            if any(value != NONE_YET for value in values):
                return
            if self._process.poll() is not None:
                raise Unreadable(_said(text + self._drain(), self._process.returncode))
            time.sleep(0.02)
        raise Unreadable(f"dcgmi printed {f'only {NONE_YET}' if values else 'no value'} in {patience_s:g} s")

    def open(self) -> None:
        """Throw away the rows of the time before."""
        self._drain()
        self._opened_s = self._clock()

    def close(self) -> Mapping[str, float]:
        """The mean of the rows since, less those that may cover the time before the window."""
        lasted_s, text = self._clock() - self._opened_s, self._drain()
        if self._process.poll() is not None:
            raise Unreadable(_said(text, self._process.returncode))
        shares = [float(value) for value in _VALUE.findall(text)[ROWS_ACROSS:] if value != NONE_YET]
        expected = int(lasted_s / INTERVAL_S) - ROWS_ACROSS
        if expected < 1:
            shortest_ms = 1000 * (ROWS_ACROSS + 1) * INTERVAL_S
            raise Unreadable(f"the window lasted {1000 * lasted_s:.1f} ms; DCGM needs more than {shortest_ms:.0f} ms")
        if len(shares) < 0.5 * expected:
            raise Unreadable(f"dcgmi printed {len(shares)} values where the window has room for {expected}")
        return {"dram_bandwidth_pct": 100 * sum(shares) / len(shares)}

    def _drain(self) -> str:
        parts = []
        with suppress(BlockingIOError):
            while part := os.read(self._pipe, 1 << 16):
                parts.append(part)
        return b"".join(parts).decode(errors="replace")


def find_dcgm(uuid: str, dcgmi: str = "dcgmi", patience_s: float = START_S) -> DcgmMeter | Absent:
    """The meter of the GPU with this UUID (torch's, with or without "GPU-"), or why it has none and what to do."""
    program = shutil.which(dcgmi)
    if program is None:
        return _absent("there is no dcgmi here", "install DCGM (datacenter-gpu-manager) and start its host engine")
    entity = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
    delay_ms = str(int(1000 * INTERVAL_S))
    try:
        meter = DcgmMeter([program, "dmon", "-e", str(FIELD), "-d", delay_ms, "-i", entity])
    except OSError as error:
        return _absent(f"dcgmi cannot be run: {error.strerror}", "let this user run dcgmi")
    try:
        meter.await_value(patience_s)
    except Unreadable as unreadable:
        meter.stop()
        return _absent(str(unreadable), _remedy(str(unreadable)))
    return meter


def _absent(reason: str, remedy: str) -> Absent:
    return Absent(figures=tuple(DCGM), reason=reason, remedy=remedy)


def _remedy(said: str) -> str:
    lowered = said.lower()
    return next((do for sign, do in _REMEDIES if sign in lowered), "run dcgmi dmon -e 1005 by hand and see DCGM's log")


def _said(text: str, code: int | None) -> str:
    """dmon's own words, in one line."""
    faults = [line.strip() for line in _FAULT.findall(text)] or text.split("\n")[-2:]
    return f"dcgmi ended with status {code}: {' '.join(faults).strip() or 'without a word'}"


def _end(process: subprocess.Popen[bytes]) -> None:
    with process:  # which closes its pipe and waits
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=2)
        process.kill()  # no effect on an ended process
