"""Facts of NVIDIA's driver about the GPUs that do not change during a run: versions, modes, limits, links.

Creates no CUDA context. ``nvml`` is the module pynvml or a fake of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from harness.meters.environment_host import field_of, known
from harness.meters.nvml import library
from harness.meters.window import Unreadable

POWER_SMOOTHING_FIELD = 251
"""NVML_FI_PWR_SMOOTHING_ENABLED (nvml.h)."""
Convert = Callable[[Any], Any]


def _fact(function: str, convert: Convert | None = None, *constants: str) -> Callable[[Any, Any], Any]:
    """Asks the driver by a function nvmlDeviceGet..., with some of its constants after the GPU."""

    def ask(nvml: Any, gpu: Any) -> Any:
        answer = getattr(nvml, f"nvmlDeviceGet{function}")(gpu, *(getattr(nvml, f"NVML_{constant}") for constant in constants))
        return answer if convert is None else convert(answer)

    return ask


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _current(modes: Any) -> bool:
    return bool(modes[0])


def _pending(modes: Any) -> bool:
    return bool(modes[1])


def _watts(milliwatts: Any) -> float:
    return float(milliwatts / 1000)


def _named(prefix: str, value: int) -> str:
    """The end of the constant that has this value: ``HOPPER``; the number if no constant has it."""
    constants = vars(library())
    names = [name for name in sorted(constants) if name.startswith(prefix) and constants[name] == value]
    return names[0].removeprefix(prefix) if names else str(value)


_OF_SYSTEM: dict[str, Convert] = {
    "nvidia_driver": lambda nvml: nvml.nvmlSystemGetDriverVersion(),
    "nvml": lambda nvml: nvml.nvmlSystemGetNVMLVersion(),
    "cuda_driver": lambda nvml: _cuda(nvml.nvmlSystemGetCudaDriverVersion_v2()),
    "confidential_computing": lambda nvml: bool(nvml.nvmlSystemGetConfComputeState().ccFeature),
}
_OF_GPU = {
    "name": _fact("Name"),
    "uuid": _fact("UUID"),
    "vbios": _fact("VbiosVersion"),
    "memory_bus_bits": _fact("MemoryBusWidth"),
    "pcie_generation": _fact("CurrPcieLinkGeneration"),
    "pcie_generation_max": _fact("MaxPcieLinkGeneration"),
    "pcie_width": _fact("CurrPcieLinkWidth"),
    "pcie_width_max": _fact("MaxPcieLinkWidth"),
    "pci_bus_id": _fact("PciInfo", lambda info: _text(info.busId)),
    "gsp_firmware": _fact("GspFirmwareVersion", _text),
    "architecture": _fact("Architecture", partial(_named, "NVML_DEVICE_ARCH_")),
    "compute_capability": _fact("CudaComputeCapability", lambda version: ".".join(map(str, version))),
    "max_sm_clock_mhz": _fact("MaxClockInfo", None, "CLOCK_SM"),
    "max_memory_clock_mhz": _fact("MaxClockInfo", None, "CLOCK_MEM"),
    "application_sm_clock_mhz": _fact("ApplicationsClock", None, "CLOCK_SM"),
    "ecc": _fact("EccMode", _current),
    "ecc_pending": _fact("EccMode", _pending),
    "mig": _fact("MigMode", _current),
    "mig_pending": _fact("MigMode", _pending),
    "persistence": _fact("PersistenceMode", bool),
    "compute_mode": _fact("ComputeMode", partial(_named, "NVML_COMPUTEMODE_")),
    "power_limit_w": _fact("EnforcedPowerLimit", _watts),
    "power_limit_default_w": _fact("PowerManagementDefaultLimit", _watts),
    "power_limit_min_w": _fact("PowerManagementLimitConstraints", lambda limits: _watts(limits[0])),
    "power_limit_max_w": _fact("PowerManagementLimitConstraints", lambda limits: _watts(limits[1])),
    "power_smoothing": lambda nvml, gpu: _field(nvml, gpu, POWER_SMOOTHING_FIELD),
    "nvlink_version": lambda nvml, gpu: nvml.nvmlDeviceGetNvLinkVersion(gpu, 0),
    "virtualization": _fact("VirtualizationMode", partial(_named, "NVML_GPU_VIRTUALIZATION_MODE_")),
}


def gpu_readers(proc: Path) -> dict[str, Callable[[], Any]]:
    """What reads each fact, by name; ``nvidia_gpus`` is a list with one entry, and its reasons, per GPU of the driver."""
    of_driver = _OF_SYSTEM | {"nvidia_gpus": lambda driver: [gpu_facts(driver, gpu) for gpu in _gpus(driver)]}
    readers = {name: partial(_with_driver, ask) for name, ask in of_driver.items()}
    return {**readers, "profiling_for_admin_only": partial(_profiling_rights, proc)}


def gpu_facts(nvml: Any, gpu: Any) -> dict[str, object]:
    """Every fact of one GPU; what its driver refuses is None, with the driver's words under ``reasons``."""
    found: dict[str, object] = {}
    reasons: dict[str, str] = {}
    for name, ask in _OF_GPU.items():
        try:
            found[name] = ask(nvml, gpu)
        except (nvml.NVMLError, AttributeError) as error:  # an old pynvml lacks the function
            found[name], reasons[name] = None, f"NVML: {error}"
    return {**found, "reasons": reasons}


def _with_driver(ask: Convert) -> Any:
    nvml = library()
    try:
        nvml.nvmlInit()
        try:
            return ask(nvml)
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        raise Unreadable(f"NVML: {error}") from error


def _gpus(nvml: Any) -> list[Any]:
    return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]


def _profiling_rights(proc: Path) -> bool:
    """Whether the driver keeps its performance counters for root: RmProfilingAdminOnly."""
    file = proc / "driver/nvidia/params"
    if not file.exists():
        raise Unreadable(f"{file} does not exist: no NVIDIA driver runs here, or the container hides it")
    return known(field_of(file, "RmProfilingAdminOnly"), f"{file} has no RmProfilingAdminOnly") == "1"


def _cuda(version: int) -> str:
    """13010 is 13.1."""
    return f"{version // 1000}.{version % 1000 // 10}"


def _field(nvml: Any, gpu: Any, field: int) -> int:
    answer = nvml.nvmlDeviceGetFieldValues(gpu, [field])[0]
    if answer.nvmlReturn != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(answer.nvmlReturn)
    return int(answer.value.uiVal)
