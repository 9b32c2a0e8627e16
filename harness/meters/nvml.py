"""NVIDIA's management library: energy, clocks, throttling, foreign processes and GPM memory bandwidth of one GPU.

The only importer of ``pynvml``. Every meter takes the module as an argument, so that tests hand in a fake. Facts about
counters are from nvml.h and its documentation; none of this has run on a GPU of ours yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from harness.meters.window import Absent, CounterMeter, MeterFigure, Unreadable

ENERGY = {"energy_j": MeterFigure(unit="J", source="NVML total energy counter")}
STATE = {
    "sm_clock_mhz": MeterFigure(unit="MHz", source="NVML, at the end of the window"),
    "memory_clock_mhz": MeterFigure(unit="MHz", source="NVML, at the end of the window"),
    "temperature_c": MeterFigure(unit="°C", source="NVML, at the end of the window"),
    "power_limit_w": MeterFigure(unit="W", source="NVML enforced power limit"),
    "device_processes": MeterFigure(unit="count", source="NVML compute processes, at the end of the window"),
}
# Nanoseconds that a limit held the clocks down, since the driver was loaded (nvml.h, NVML_FI_DEV_CLOCKS_EVENT_REASON_*).
THROTTLE_FIELDS = {
    "throttle_power_cap_s": 74,
    "throttle_sync_boost_s": 76,
    "throttle_sw_thermal_s": 269,
    "throttle_hw_thermal_s": 270,
    "throttle_power_brake_s": 271,
}
THROTTLE = {name: MeterFigure(unit="s", source=f"NVML field {field}") for name, field in THROTTLE_FIELDS.items()}
GPM_METRICS = {"dram_bandwidth_pct": 10, "sm_util_pct": 2, "tensor_util_pct": 5}
GPM = {
    name: MeterFigure(unit="% of the device's maximum", source=f"NVML GPM metric {metric}")
    for name, metric in GPM_METRICS.items()
}
DRIVER = "install NVIDIA's driver, and let the container see it"
MIG = "the device is a MIG instance, and NVML counts energy, clocks and traffic of the whole GPU, its other instances included"
WITHOUT_MIG = "times and torch's memory are read as ever; for the rest use a GPU without MIG (as root: nvidia-smi -mig 0)"
GPM_SHORTEST_S = 2.0
"""GPM's counters move every 100 ms, at moments of their own: a shorter window is off by up to 30 %."""


@dataclass
class _GpuMeter:
    """Of the GPU of a handle, by the module pynvml or a fake of it."""

    _nvml: Any
    _handle: Any


class EnergyMeter(_GpuMeter, CounterMeter):
    """Joules since the window opened; the counter moves about every 100 ms, so short windows say little."""

    figures = ENERGY
    counts_per_unit: Mapping[str, float] = {"energy_j": 1000}

    def counters(self) -> Mapping[str, int]:
        """The counter (mJ)."""
        return {"energy_j": self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)}


class StateMeter(_GpuMeter):
    """Clocks, temperature and neighbours at the end of a window."""

    figures = STATE

    def open(self) -> None:
        """Nothing is counted from here."""

    def close(self) -> Mapping[str, float]:
        """Read what can be read; a figure that this driver refuses is left out."""
        nvml, handle = self._nvml, self._handle
        readers: dict[str, Callable[[], Any]] = {
            "sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "power_limit_w": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
            "device_processes": lambda: len(nvml.nvmlDeviceGetComputeRunningProcesses(handle)),
        }
        found: dict[str, float] = {}
        for name, read in readers.items():
            try:
                found[name] = float(read())
            except nvml.NVMLError:
                continue
        return found


class ThrottleMeter(_GpuMeter, CounterMeter):
    """Seconds of the window during which each limit held the clocks down."""

    figures = THROTTLE
    counts_per_unit: Mapping[str, float] = dict.fromkeys(THROTTLE, 1e9)

    def counters(self) -> Mapping[str, int]:
        """Those counters (ns) that can be read."""
        answers = self._nvml.nvmlDeviceGetFieldValues(self._handle, list(THROTTLE_FIELDS.values()))
        pairs = zip(THROTTLE_FIELDS, answers, strict=True)
        return {name: int(a.value.ullVal) for name, a in pairs if a.nvmlReturn == self._nvml.NVML_SUCCESS}


class GpmMeter(_GpuMeter):
    """Mean use of memory bandwidth over the window, in percent of the device's maximum (Hopper and newer).

    GPM samples are snapshots of counters: two of them bracket the region, nothing is polled. Over less than 2 s NVML is not
    asked.
    """

    figures = GPM

    def __init__(self, nvml: Any, handle: Any, clock: Callable[[], float]) -> None:
        super().__init__(nvml, handle)
        self._clock = clock
        self._samples = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()

    def open(self) -> None:
        """Take the first snapshot."""
        self._nvml.nvmlGpmSampleGet(self._handle, self._samples[0])
        self._opened_s = self._clock()

    def close(self) -> Mapping[str, float]:
        """Take the second and let NVML compute the means; each metric answers for itself."""
        nvml = self._nvml
        lasted_s = self._clock() - self._opened_s
        if lasted_s < GPM_SHORTEST_S:
            why = f"GPM moves every 100 ms, and below {GPM_SHORTEST_S:g} s it is off by up to 30 %"
            raise Unreadable(f"the window lasted {lasted_s:.2f} s; {why}")
        nvml.nvmlGpmSampleGet(self._handle, self._samples[1])
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version = nvml.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = len(GPM_METRICS)
        asked.sample1, asked.sample2 = self._samples
        for index, metric in enumerate(GPM_METRICS.values()):
            asked.metrics[index].metricId = metric
        nvml.nvmlGpmMetricsGet(asked)
        answers = zip(GPM_METRICS, asked.metrics, strict=False)
        found = {name: float(a.value) for name, a in answers if a.nvmlReturn == nvml.NVML_SUCCESS}
        if not found:
            raise Unreadable(f"GPM answered no metric: {nvml.NVMLError(asked.metrics[0].nvmlReturn)}")
        return found


def library() -> Any:
    """The module pynvml; it can be imported without a GPU and a driver."""
    import pynvml

    return pynvml


def find_nvml(
    uuid: str | None, nvml: Any = None, clock: Callable[[], float] = time.monotonic
) -> tuple[list[Any], list[Absent]]:
    """The meters of the GPU with this UUID (torch's, with or without "GPU-"), and what cannot be had, with the reason."""
    everything = (*ENERGY, *STATE, *THROTTLE, *GPM)
    if not uuid:
        remedy = "use one, by device: cuda"
        return [], [Absent(figures=everything, reason="the work runs on no NVIDIA GPU", remedy=remedy)]
    nvml = nvml or library()
    try:
        nvml.nvmlInit()
        handle = _whole_gpu(nvml, uuid.removeprefix("GPU-").removeprefix("MIG-"))
    except nvml.NVMLError as error:
        return [], [Absent(figures=everything, reason=f"NVML: {error}", remedy=DRIVER)]
    if handle is None:
        return [], [Absent(figures=everything, reason=MIG, remedy=WITHOUT_MIG)]
    meters: list[Any] = [StateMeter(nvml, handle), ThrottleMeter(nvml, handle)]
    absent: list[Absent] = []
    try:
        nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        meters.append(EnergyMeter(nvml, handle))
    except nvml.NVMLError as error:
        absent.append(Absent(figures=tuple(ENERGY), reason=f"NVML: {error}", remedy="needs Volta or newer, outside MIG"))
    try:
        supported = bool(nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
        reason = "this GPU has no GPM"
    except nvml.NVMLError as error:
        supported, reason = False, f"NVML: {error}"
    if supported:
        meters.append(GpmMeter(nvml, handle, clock))
    else:
        remedy = "GPM needs Hopper or newer; before it, DCGM field 1005 by a host engine"
        absent.append(Absent(figures=tuple(GPM), reason=reason, remedy=remedy))
    return meters, absent


def _whole_gpu(nvml: Any, uuid: str) -> Any:
    """The handle of the GPU; None: the UUID is that of a MIG instance, or of a GPU that is split into such."""
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except nvml.NVMLError:
        nvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")
        return None
    with suppress(nvml.NVMLError, AttributeError):
        if nvml.nvmlDeviceGetMigMode(handle)[0]:
            return None
    return handle
