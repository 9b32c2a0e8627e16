"""Which meters this machine has for a device, and what it cannot tell: for runs, and for `sbd doctor`.

A counter in percent says nothing in bytes until it is compared with known bytes, which are streamed for some seconds under its
window. Buffers are far larger than the cache, so all of them come from memory.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal

import torch
from pydantic import ValidationError

from harness.frozen import frozen
from harness.hardware.counter_scale import BandwidthScale, MemoryInterface, Streamed
from harness.meters.clock import clock_of
from harness.meters.dcgm import DcgmMeter, find_dcgm
from harness.meters.host import GraphMeter, HostMemoryMeter, HostMeter, KernelMeter, find_rapl, timed_piece, warm_up
from harness.meters.nvml import ENERGY, find_nvml
from harness.meters.window import Absent, Meter, MeterFigure, Unreadable, Windows, words

COUNTED = "dram_bandwidth_pct"
Streaming = Literal["copy", "read"]
BUFFER_BYTES = 2**31
BEYOND_CACHE = 16
"""Buffers of so many caches: at most a sixteenth of a pass over one can come out of the cache."""
STREAM_S = 2.5
"""More than the counter needs (nvml.GPM_SHORTEST_S), also where the runs are faster than the trial."""
TRIAL_RUNS, MOST_RUNS = 5, 10_000

# Some milliseconds of work either way: 0.27 GFLOP on a few cores, 137 GFLOP on a GPU, where less would time the launch, and
# where it is repeated until waiting for the device counts for nothing.
_KERNEL_SIZE = {"cpu": 256, "cuda": 2048}
_KERNEL_PRODUCTS = 8
_KERNEL_LEAST_S = {"cpu": 0.0, "cuda": 0.02}


@frozen
class Available:
    """The meters of a device, as windows, and the figures that stay unknown.

    ``scale``: what one percent of ``dram_bandwidth_pct`` is worth, calibrated in this process, or why that is not known.
    """

    windows: Windows
    absent: tuple[Absent, ...]
    scale: BandwidthScale | str = "no counter of memory bandwidth can be read here"


class DeviceMemoryMeter:
    """Largest allocation of torch on a CUDA device during the window."""

    figures: Mapping[str, MeterFigure] = {"peak_device_memory_bytes": MeterFigure(unit="bytes", source="torch.cuda allocator")}

    def __init__(self, device: str) -> None:
        self._device = device

    def open(self) -> None:
        """Put the mark back to what is allocated now."""
        torch.cuda.reset_peak_memory_stats(self._device)

    def close(self) -> Mapping[str, float]:
        """Read the mark."""
        return {"peak_device_memory_bytes": float(torch.cuda.max_memory_allocated(self._device))}


def find_meters(device: str, ranks: int = 1) -> Available:
    """All meters that work here for a part on ``device`` (cpu, cuda, cuda:1); ``ranks``: how many it is split over, this one
    first. Where the device counts its memory traffic, known bytes are streamed for 6 s to learn what the counter's percent
    means.
    """
    meters: list[Any] = [KernelMeter(fixed_kernel(device)), HostMeter(), HostMemoryMeter(), GraphMeter()]
    absent: list[Absent] = []
    rapl = find_rapl()
    if isinstance(rapl, Absent):
        absent.append(rapl)
    else:
        meters.append(rapl)
    if not device.startswith("cuda"):
        [nvml] = find_nvml(None)[1]
        memory = replace(nvml, figures=tuple(DeviceMemoryMeter.figures))
        return Available(windows=Windows(meters), absent=(*absent, memory, nvml))
    uuid = "" if torch.version.hip else str(torch.cuda.get_device_properties(device).uuid)
    found, missing = bandwidth_by_dcgm(uuid, *find_nvml(uuid))
    if ranks > 1:
        found, missing = without_energy(found, missing, ranks)
    meters += [DeviceMemoryMeter(device), *found]
    here = Available(windows=Windows(meters), absent=(*absent, *missing))
    counter = next((meter for meter in found if COUNTED in meter.figures), None)
    return here if counter is None else replace(here, scale=find_scale(device, counter))


def bandwidth_by_dcgm(
    uuid: str, meters: list[Any], absent: list[Absent], find: Callable[[str], DcgmMeter | Absent] = find_dcgm
) -> tuple[list[Any], list[Absent]]:
    """Meters and absences with DCGM's memory bandwidth in place of GPM's where the GPU has no GPM; else as they were."""
    without = next((absence for absence in absent if COUNTED in absence.figures), None)
    if without is None or ENERGY.keys() & without.figures:  # NVML says nothing at all, and why
        return meters, absent
    rest = [absence for absence in absent if absence is not without]
    rest.append(replace(without, figures=tuple(name for name in without.figures if name != COUNTED)))
    found = find(uuid)
    if isinstance(found, Absent):
        reason = f"by NVML: {without.reason.removeprefix('NVML: ')}; by DCGM: {found.reason}"
        return meters, [*rest, replace(found, reason=reason)]
    return [*meters, found], rest


def without_energy(meters: list[Any], absent: list[Absent], ranks: int) -> tuple[list[Any], list[Absent]]:
    """Meters and absences of one GPU of several that share a model: what it alone consumes is not what a token costs."""
    reason = f"the model is split over {ranks} GPUs, and the counter is that of the first one"
    told = Absent(figures=tuple(ENERGY), reason=reason, remedy="none yet: the others' counters are not read")
    metered = [meter for meter in meters if not ENERGY.keys() & meter.figures.keys()]
    return metered, absent if len(metered) == len(meters) else [*absent, told]


def fixed_kernel(device: str) -> Callable[[], float]:
    """Seconds of the same matrix products every time, in float32 on the device."""
    kind = torch.device(device).type
    left = torch.ones(_KERNEL_SIZE[kind], _KERNEL_SIZE[kind], device=device)

    def products() -> None:
        for _ in range(_KERNEL_PRODUCTS):
            left @ left

    return timed_piece(products, clock_of(device).synchronise, _KERNEL_LEAST_S[kind])


class TorchStreams:
    """Two buffers of random float32 values on a CUDA device; ``cuda`` is torch.cuda or a fake of it.

    Raises:
        Unreadable: too little memory is free for buffers that no cache can hold.
    """

    def __init__(self, device: str, cuda: Any) -> None:
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
