"""The NVML meters and fingerprint through the real pynvml, on a C library that behaves as nvml.h documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.meters.available import bandwidth_by_dcgm
from harness.meters.dcgm import DCGM
from harness.meters.environment import snapshot
from harness.meters.environment_gpu import gpu_readers
from harness.meters.nvml import find_nvml
from harness.meters.window import Absent, Windows
from tests.helpers.fake_libnvml import NO_PERMISSION, NOT_SUPPORTED, FakeLibrary, install


@pytest.fixture
def library(monkeypatch):
    """One GPU of 4 TB/s."""
    fake = FakeLibrary()
    install(monkeypatch, fake)
    return fake


def gpm_windows(library):
    """GPM alone, on the library's time."""
    meters, absent = find_nvml("1234", clock=lambda: library.now_s)
    assert {"energy_j"} == {name for one in absent for name in one.figures}, "this library has no energy counter"
    return Windows([meter for meter in meters if "dram_bandwidth_pct" in meter.figures])


def test_gpm_is_the_mean_between_its_two_snapshots(library):
    """Hand-worked: 3 TB in 2 s of 4 TB/s is 37.5 %; what moved before the window does not count, and nothing is polled."""
    windows = gpm_windows(library)
    for _ in range(2):
        library.stream(9e12, 5.0)
        windows.open()
        library.stream(3e12, 2.0)
        assert windows.close().values["dram_bandwidth_pct"] == pytest.approx(37.5)
    assert library.calls.count("nvmlGpmSampleGet") == 4 and library.calls.count("nvmlGpmSampleAlloc") == 2


def test_a_window_too_short_for_gpm_is_a_reason_and_nvml_is_not_asked(library):
    """1.99 s are not enough, 2 s are; the reason says how long the window was, what it takes, and why."""
    windows = gpm_windows(library)
    windows.open()
    library.stream(1e9, 1.99)
    found = windows.close()
    assert found.values == {} and set(found.reasons) == set(windows.figures)
    assert "lasted 1.99 s" in found.reasons["dram_bandwidth_pct"] and "nvmlGpmMetricsGet" not in library.calls
    assert "every 100 ms, and below 2 s it is off by up to 30 %" in found.reasons["dram_bandwidth_pct"]
    windows.open()
    library.stream(1e9, 2.0)
    assert windows.close().values["dram_bandwidth_pct"] > 0


def test_a_metric_that_gpm_refuses_is_no_figure(library):
    """Each metric's own code decides: the value beside an error is not a value."""
    library.refused_metrics = {10: NOT_SUPPORTED}
    windows = gpm_windows(library)
    windows.open()
    library.stream(1e12, 2.0)
    found = windows.close()
    assert "dram_bandwidth_pct" in found.reasons and "sm_util_pct" in found.values
    library.refused_metrics = dict.fromkeys((10, 2, 5), NOT_SUPPORTED)
    windows.open()
    library.stream(1e12, 2.0)
    assert windows.close().reasons["dram_bandwidth_pct"] == "GPM answered no metric: Not Supported"


def test_a_gpm_that_is_forbidden_later_costs_its_figures_only(library):
    """Insufficient rights are a normal outcome, in the library's words."""
    windows = gpm_windows(library)
    library.refused = {"nvmlGpmSampleGet": NO_PERMISSION}
    windows.open()
    assert "Insufficient Permissions" in windows.close().reasons["dram_bandwidth_pct"]


def test_dcgm_takes_gpms_place_only_where_there_is_no_gpm(library):
    """On an Ampere: the one figure comes from DCGM, the other two stay absent; with both missing both reasons are said."""
    asked = []

    class Meter:
        figures = DCGM

    def found(uuid):
        asked.append(uuid)
        return Meter

    meters, absent = find_nvml("1234")
    assert bandwidth_by_dcgm("1234", meters, absent, found) == (meters, absent) and asked == []
    library.gpm = False
    meters, absent = find_nvml("1234")
    with_dcgm, rest = bandwidth_by_dcgm("1234", meters, absent, found)
    assert with_dcgm == [*meters, Meter] and asked == ["1234"]
    missing = {name for one in rest for name in one.figures}
    assert {"sm_util_pct", "tensor_util_pct"} <= missing and "dram_bandwidth_pct" not in missing

    none = Absent(figures=tuple(DCGM), reason="there is no dcgmi here", remedy="install DCGM")
    same, rest = bandwidth_by_dcgm("1234", meters, absent, lambda uuid: none)
    [one] = [one for one in rest if "dram_bandwidth_pct" in one.figures]
    assert same == meters and one.figures == ("dram_bandwidth_pct",) and one.remedy == "install DCGM"
    assert one.reason == "by NVML: this GPU has no GPM; by DCGM: there is no dcgmi here"


def described(library):
    """What the driver of one H100 says."""
    library.texts = {
        "nvmlSystemGetDriverVersion": b"580.65.06",
        "nvmlDeviceGetName": b"NVIDIA H100",
        "nvmlDeviceGetUUID": b"GPU-1234",
        "nvmlDeviceGetVbiosVersion": b"96.00.89.00.01",
    }
    library.numbers = {
        "nvmlDeviceGetCount_v2": (1,),
        "nvmlSystemGetCudaDriverVersion_v2": (13010,),
        "nvmlDeviceGetEccMode": (1, 0),
        "nvmlDeviceGetMigMode": (0, 1),
        "nvmlDeviceGetPersistenceMode": (1,),
        "nvmlDeviceGetArchitecture": (9,),
        "nvmlDeviceGetCudaComputeCapability": (9, 0),
        "nvmlDeviceGetEnforcedPowerLimit": (650_000,),
        "nvmlDeviceGetPowerManagementDefaultLimit": (700_000,),
        "nvmlDeviceGetComputeMode": (0,),
        "nvmlDeviceGetPowerManagementLimitConstraints": (200_000, 700_000),
        "nvmlDeviceGetMaxClockInfo": (1980,),
        "nvmlDeviceGetCurrPcieLinkGeneration": (4,),
        "nvmlDeviceGetMaxPcieLinkGeneration": (5,),
        "nvmlDeviceGetCurrPcieLinkWidth": (8,),
        "nvmlDeviceGetMaxPcieLinkWidth": (16,),
        "nvmlDeviceGetMemoryBusWidth": (5120,),
        "nvmlDeviceGetVirtualizationMode": (1,),
    }


def test_the_driver_describes_every_gpu(library, tmp_path: Path):
    """Units as named (mW become W), current apart from pending, numbers of an enumeration by their name."""
    described(library)
    found = snapshot(proc=tmp_path)
    assert found["nvidia_driver"] == "580.65.06" and found["cuda_driver"] == "13.1"
    [gpu] = found["nvidia_gpus"]
    wanted = {
        "name": "NVIDIA H100",
        "uuid": "GPU-1234",
        "vbios": "96.00.89.00.01",
        "architecture": "HOPPER",
        "compute_capability": "9.0",
        "ecc": True,
        "ecc_pending": False,
        "mig": False,
        "mig_pending": True,
        "persistence": True,
        "compute_mode": "DEFAULT",
        "power_limit_w": 650.0,
        "power_limit_default_w": 700.0,
        "power_limit_min_w": 200.0,
        "power_limit_max_w": 700.0,
        "pcie_generation": 4,
        "pcie_generation_max": 5,
        "pcie_width": 8,
        "pcie_width_max": 16,
        "memory_bus_bits": 5120,
        "max_sm_clock_mhz": 1980,
        "virtualization": "PASSTHROUGH",
    }
    assert {name: gpu[name] for name in wanted} == wanted
    assert gpu["gsp_firmware"] is None and gpu["reasons"]["gsp_firmware"] == "NVML: Function Not Found"
    assert {name for name, value in gpu.items() if value is None} == set(gpu["reasons"])


def test_what_the_driver_refuses_is_none_with_its_words(library, tmp_path: Path):
    """A container may hide one thing and tell the next."""
    described(library)
    library.refused = {"nvmlDeviceGetEccMode": NOT_SUPPORTED, "nvmlDeviceGetMigMode": NO_PERMISSION}
    [gpu] = gpu_readers(tmp_path)["nvidia_gpus"]()
    assert gpu["ecc"] is None and gpu["reasons"]["ecc"] == "NVML: Not Supported"
    assert gpu["mig"] is None and gpu["reasons"]["mig"] == "NVML: Insufficient Permissions"
    assert gpu["power_limit_w"] == 650.0


def test_no_driver_is_one_reason(monkeypatch, tmp_path: Path):
    """Where the library cannot be initialised every fact of it is absent, in its words."""
    fake = FakeLibrary()
    install(monkeypatch, fake)
    fake.refused = {"nvmlInitWithFlags": 9}
    found = snapshot(proc=tmp_path)
    assert found["nvidia_gpus"] is None and found["reasons"]["nvidia_gpus"] == "NVML: Driver Not Loaded"
