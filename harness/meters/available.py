"""Which meters this machine has for a device, and what it cannot tell: for runs, and for `sbd doctor`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from harness.hardware.counter_scale import BandwidthScale
from harness.meters.clock import clock_of
from harness.meters.counter_calibration import COUNTED, find_scale
from harness.meters.dcgm import DcgmMeter, find_dcgm
from harness.meters.host import GraphMeter, HostMemoryMeter, HostMeter, KernelMeter, find_rapl, timed_piece
from harness.meters.nvml import ENERGY, find_nvml
from harness.meters.window import Absent, MeterFigure, Windows

# Some milliseconds of work either way: 0.27 GFLOP on a few cores, 137 GFLOP on a GPU, where less would time the launch, and
# where it is repeated until waiting for the device counts for nothing.
_KERNEL_SIZE = {"cpu": 256, "cuda": 2048}
_KERNEL_PRODUCTS = 8
_KERNEL_LEAST_S = {"cpu": 0.0, "cuda": 0.02}


@dataclass(frozen=True, slots=True, kw_only=True)
class Available:
    """The meters of a device, as windows, and the figures that stay unknown.

    ``scale``: what one percent of ``dram_bandwidth_pct`` is worth, calibrated in this process, or why that is not known.
    """

    windows: Windows
    absent: tuple[Absent, ...]
    scale: BandwidthScale | str = "no counter of memory bandwidth can be read here"


class DeviceMemoryMeter:
    """Largest allocation of torch on a CUDA device during the window. ``cuda`` is torch.cuda or a fake of it."""

    figures: Mapping[str, MeterFigure] = {"peak_device_memory_bytes": MeterFigure(unit="bytes", source="torch.cuda allocator")}

    def __init__(self, device: str, cuda: Any = torch.cuda) -> None:
        self._device = device
        self._cuda = cuda

    def open(self) -> None:
        """Put the mark back to what is allocated now."""
        self._cuda.reset_peak_memory_stats(self._device)

    def close(self) -> Mapping[str, float]:
        """Read the mark."""
        return {"peak_device_memory_bytes": float(self._cuda.max_memory_allocated(self._device))}


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
    without = next((one for one in absent if COUNTED in one.figures), None)
    if without is None or ENERGY.keys() & without.figures:  # NVML says nothing at all, and why
        return meters, absent
    rest = [one for one in absent if one is not without]
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
