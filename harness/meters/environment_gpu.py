"""Facts of NVIDIA's driver about the GPUs that do not change during a run: versions, modes, limits, links.

Creates no CUDA context. ``nvml`` is the module pynvml or a fake of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from harness.meters.environment_host import Reading, field_of
from harness.meters.nvml import library

POWER_SMOOTHING_FIELD = 251
"""NVML_FI_PWR_SMOOTHING_ENABLED (nvml.h)."""
Asked = Callable[[Any, Any], Any]


def _plain(function: str, nvml: Any, gpu: Any) -> Any:
    return getattr(nvml, function)(gpu)


_OF_SYSTEM: dict[str, Callable[[Any], Any]] = {
    "nvidia_driver": lambda nvml: nvml.nvmlSystemGetDriverVersion(),
    "nvml": lambda nvml: nvml.nvmlSystemGetNVMLVersion(),
    "cuda_driver": lambda nvml: _cuda(nvml.nvmlSystemGetCudaDriverVersion_v2()),
    "confidential_computing": lambda nvml: bool(nvml.nvmlSystemGetConfComputeState().ccFeature),
}
_PLAIN = {
    "name": "nvmlDeviceGetName",
    "uuid": "nvmlDeviceGetUUID",
    "vbios": "nvmlDeviceGetVbiosVersion",
    "memory_bus_bits": "nvmlDeviceGetMemoryBusWidth",
    "pcie_generation": "nvmlDeviceGetCurrPcieLinkGeneration",
    "pcie_generation_max": "nvmlDeviceGetMaxPcieLinkGeneration",
    "pcie_width": "nvmlDeviceGetCurrPcieLinkWidth",
    "pcie_width_max": "nvmlDeviceGetMaxPcieLinkWidth",
}
"""Facts that a function of the driver tells as they are kept."""
_OF_GPU: dict[str, Asked] = {name: partial(_plain, function) for name, function in _PLAIN.items()} | {
    "pci_bus_id": lambda nvml, gpu: _text(nvml.nvmlDeviceGetPciInfo(gpu).busId),
    "gsp_firmware": lambda nvml, gpu: _text(nvml.nvmlDeviceGetGspFirmwareVersion(gpu)),
    "architecture": lambda nvml, gpu: _named(nvml, "NVML_DEVICE_ARCH_", nvml.nvmlDeviceGetArchitecture(gpu)),
    "compute_capability": lambda nvml, gpu: ".".join(map(str, nvml.nvmlDeviceGetCudaComputeCapability(gpu))),
    "max_sm_clock_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "max_memory_clock_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_MEM),
    "application_sm_clock_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetApplicationsClock(gpu, nvml.NVML_CLOCK_SM),
    "ecc": lambda nvml, gpu: bool(nvml.nvmlDeviceGetEccMode(gpu)[0]),
    "ecc_pending": lambda nvml, gpu: bool(nvml.nvmlDeviceGetEccMode(gpu)[1]),
    "mig": lambda nvml, gpu: bool(nvml.nvmlDeviceGetMigMode(gpu)[0]),
    "mig_pending": lambda nvml, gpu: bool(nvml.nvmlDeviceGetMigMode(gpu)[1]),
    "persistence": lambda nvml, gpu: bool(nvml.nvmlDeviceGetPersistenceMode(gpu)),
    "compute_mode": lambda nvml, gpu: _named(nvml, "NVML_COMPUTEMODE_", nvml.nvmlDeviceGetComputeMode(gpu)),
    "power_limit_w": lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000,
    "power_limit_default_w": lambda nvml, gpu: nvml.nvmlDeviceGetPowerManagementDefaultLimit(gpu) / 1000,
    "power_limit_min_w": lambda nvml, gpu: nvml.nvmlDeviceGetPowerManagementLimitConstraints(gpu)[0] / 1000,
    "power_limit_max_w": lambda nvml, gpu: nvml.nvmlDeviceGetPowerManagementLimitConstraints(gpu)[1] / 1000,
    "power_smoothing": lambda nvml, gpu: _field(nvml, gpu, POWER_SMOOTHING_FIELD),
    "nvlink_version": lambda nvml, gpu: nvml.nvmlDeviceGetNvLinkVersion(gpu, 0),
    "virtualization": lambda nvml, gpu: _named(
        nvml, "NVML_GPU_VIRTUALIZATION_MODE_", nvml.nvmlDeviceGetVirtualizationMode(gpu)
    ),
}


def gpu_readers(proc: Path) -> dict[str, Callable[[], Reading]]:
    """What reads each fact, by name; ``nvidia_gpus`` is a list with one entry, and its reasons, per GPU of the driver."""
    of_driver = _OF_SYSTEM | {"nvidia_gpus": lambda driver: [gpu_facts(driver, gpu) for gpu in _gpus(driver)]}
    readers: dict[str, Callable[[], Reading]] = {name: partial(_with_driver, ask) for name, ask in of_driver.items()}
    readers["profiling_for_admin_only"] = partial(_profiling_rights, proc)
    return readers


def gpu_facts(nvml: Any, gpu: Any) -> dict[str, Any]:
    """Every fact of one GPU; what its driver refuses is None, with the driver's words under ``reasons``."""
    found: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for name, ask in _OF_GPU.items():
        try:
            found[name] = ask(nvml, gpu)
        except (nvml.NVMLError, AttributeError) as error:  # an old pynvml lacks the function
            found[name], reasons[name] = None, f"NVML: {error}"
    return {**found, "reasons": reasons}


def _with_driver(ask: Callable[[Any], Any]) -> Reading:
    nvml = library()
    try:
        nvml.nvmlInit()
        try:
            return ask(nvml), None
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        return None, f"NVML: {error}"


def _gpus(nvml: Any) -> list[Any]:
    return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]


def _profiling_rights(proc: Path) -> Reading:
    """Whether the driver keeps its performance counters for root: RmProfilingAdminOnly."""
    file = proc / "driver/nvidia/params"
    if not file.exists():
        return None, f"{file} does not exist: no NVIDIA driver runs here, or the container hides it"
    value = field_of(file, "RmProfilingAdminOnly")
    return (None, f"{file} has no RmProfilingAdminOnly") if value is None else (value == "1", None)


def _cuda(version: int) -> str:
    """13010 is 13.1."""
    return f"{version // 1000}.{version % 1000 // 10}"


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _named(nvml: Any, prefix: str, value: int) -> str:
    """The end of the constant that has this value: ``HOPPER``; the number if no constant has it."""
    names = [name.removeprefix(prefix) for name in sorted(vars(nvml)) if name.startswith(prefix)]
    return next((name for name in names if getattr(nvml, prefix + name) == value), str(value))


def _field(nvml: Any, gpu: Any, field: int) -> int:
    answer = nvml.nvmlDeviceGetFieldValues(gpu, [field])[0]
    if answer.nvmlReturn != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(answer.nvmlReturn)
    return int(answer.value.uiVal)
