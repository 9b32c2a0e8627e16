"""What one percent of a memory counter is worth here: known bytes are streamed for some seconds under its window.

A counter in percent says nothing in bytes until it is compared with known bytes. Buffers are far larger than the cache, so all
of them come from memory. Knows no vendor: it is handed a meter of ``dram_bandwidth_pct``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal

import torch
from pydantic import ValidationError

from harness.hardware.counter_scale import BandwidthScale, MemoryInterface, Streamed
from harness.meters.host import warm_up
from harness.meters.window import Meter, Unreadable, words

COUNTED = "dram_bandwidth_pct"
Streaming = Literal["copy", "read"]
BUFFER_BYTES = 2**31
BEYOND_CACHE = 16
"""Buffers of so many caches: at most a sixteenth of a pass over one can come out of the cache."""
STREAM_S = 2.5
"""More than the counter needs (nvml.GPM_SHORTEST_S), also where the runs are faster than the trial."""
TRIAL_RUNS, MOST_RUNS = 5, 10_000


class TorchStreams:
    """Two buffers of random float32 values on a CUDA device; ``cuda`` is torch.cuda or a fake of it.

    Raises:
        Unreadable: too little memory is free for buffers that no cache can hold.
    """

    def __init__(self, device: str, cuda: Any = torch.cuda) -> None:
        self._device, self._cuda = device, cuda
        cache_bytes = int(cuda.get_device_properties(device).L2_cache_size)
        free_bytes = int(cuda.mem_get_info(device)[0])
        size = min(BUFFER_BYTES, free_bytes // 4)
        if size < BEYOND_CACHE * cache_bytes:
            raise Unreadable(
                f"{free_bytes / 1e9:.1f} GB are free on {device}, too little for buffers of "
                f"{BEYOND_CACHE} times its cache ({cache_bytes / 1e6:.0f} MB)"
            )
        self._source = torch.rand(size // 4, device=device)
        self._target = torch.zeros_like(self._source)

    def run(self, kernel: Streaming) -> int:
        """Hand the device a copy from one buffer to the other, which reads and writes, or a sum, which only reads, without
        waiting; the bytes that it moves to or from memory.
        """
        if kernel == "copy":
            self._target.copy_(self._source)
            return 2 * self._source.nbytes
        self._source.sum()
        return self._source.nbytes

    def synchronise(self) -> None:
        """Wait until all runs are done."""
        self._cuda.synchronize(self._device)


def find_scale(
    device: str, meter: Meter, cuda: Any = torch.cuda, clock: Callable[[], float] = time.perf_counter
) -> BandwidthScale | str:
    """The scale of ``meter`` on a CUDA device, or why it has none; the buffers are given back."""
    try:
        interface = memory_interface(device, cuda)
        return measure_scale(TorchStreams(device, cuda), meter, interface, clock)
    except Exception as error:  # a vendor library may raise anything, memory may run out: the run goes on without a scale
        return words(error)
    finally:
        cuda.empty_cache()


def measure_scale(
    streams: TorchStreams, meter: Meter, interface: MemoryInterface | str, clock: Callable[[], float]
) -> BandwidthScale:
    """Stream copies, then reads, with the meter's window around each.

    Raises:
        Unreadable: the counter gave nothing, or nothing above 0, for the copies.
    """
    copied, read = _stream(streams, meter, "copy", clock), _stream(streams, meter, "read", clock)
    if isinstance(copied, str):
        raise Unreadable(copied)
    return BandwidthScale(
        taken_at=datetime.now(UTC),
        counter=meter.figures[COUNTED].source,
        copied=copied,
        read=None if isinstance(read, str) else read,
        read_reason=read if isinstance(read, str) else None,
        interface=None if isinstance(interface, str) else interface,
        interface_reason=interface if isinstance(interface, str) else None,
    )


def _stream(streams: TorchStreams, meter: Meter, kernel: Streaming, clock: Callable[[], float]) -> Streamed | str:
    """As many runs as take about 2.5 s, timed together on a warm device; or why the counter says nothing about them."""
    warm_up(lambda: _timed(streams, kernel, TRIAL_RUNS, clock), clock)
    trial_s, _ = _timed(streams, kernel, TRIAL_RUNS, clock)
    runs = min(MOST_RUNS, max(1, math.ceil(STREAM_S * TRIAL_RUNS / max(trial_s, 1e-9))))
    meter.open()
    seconds, moved = _timed(streams, kernel, runs, clock)
    percent = meter.close().get(COUNTED)
    if percent is None:
        return f"{meter.figures[COUNTED].source} gave no figure over {seconds:.2f} s of {kernel}"
    try:
        return Streamed(kernel=kernel, bytes_=moved, seconds=seconds, percent=percent)
    except ValidationError:
        return f"{meter.figures[COUNTED].source} read {percent:g} % over {seconds:.2f} s of {kernel}"


def _timed(streams: TorchStreams, kernel: Streaming, runs: int, clock: Callable[[], float]) -> tuple[float, int]:
    streams.synchronise()
    start = clock()
    moved = sum(streams.run(kernel) for _ in range(runs))
    streams.synchronise()
    return clock() - start, moved


def memory_interface(device: str, cuda: Any) -> MemoryInterface | str:
    """Memory clock and bus width as torch tells them, or why not."""
    properties = cuda.get_device_properties(device)
    clock_khz, bus_bits = getattr(properties, "memory_clock_rate", 0), getattr(properties, "memory_bus_width", 0)
    if not clock_khz or not bus_bits:
        return "torch tells no memory clock and bus width of this device"
    source = "torch.cuda device properties: peak memory clock and bus width"
    return MemoryInterface(clock_hz=1000.0 * clock_khz, bus_bits=bus_bits, source=source)
