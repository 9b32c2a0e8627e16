"""What can be read of the emulated GPU: the doctor's table, a window of the meters, the counter's scale, the calibration."""

from __future__ import annotations

import json
import time

import pytest

pytestmark = pytest.mark.emulated
ALWAYS = {"peak_device_memory_bytes", "sm_clock_mhz", "memory_clock_mhz", "temperature_c", "device_processes", "power_limit_w"}
COUNTED = "dram_bandwidth_pct"


def examined(emulated, **more):
    """The doctor's figures by name, and all it says."""
    done = emulated("-m", "harness", "doctor", "--device", "cuda", "--json", values=False, **more)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    return {one["figure"]: one for one in found["figures"]}, found


def test_the_doctor_reads_what_an_h100_tells(emulated):
    """Energy, clocks, GPM's counters with their scale, and the kernel that attends at the shapes of an 8B model."""
    figures, found = examined(emulated)
    assert {name for name in (*ALWAYS, "energy_j", COUNTED) if figures[name]["value"] is None} == set()
    # Copies that take no time end before the counter has moved.
    assert found["bandwidth_scale"] or "GPM" in found["bandwidth_scale_reason"]
    assert [one["backend"] for one in found["attention"] if not one["masked"]] == ["flash_attention"] * 2
    assert all(one["reason"] is None for one in found["attention"])
    [gpu] = found["environment"]["gpus"]
    assert gpu["name"] == "NVIDIA H100 80GB HBM3" and gpu["multiprocessors"] == 132


@pytest.mark.parametrize(
    ("more", "absent", "words"),
    [
        ({"EMULATED_GPU_GPM": "no"}, COUNTED, "no GPM"),
        pytest.param({"EMULATED_GPU_GPM": "denied"}, COUNTED, "ermission", marks=pytest.mark.full),
        ({"EMULATED_GPU_MIG": "1"}, "energy_j", "MIG"),
    ],
)
def test_the_doctor_says_why_a_figure_is_absent(emulated, more, absent, words):
    """With what to do; the rest is read all the same."""
    figures, found = examined(emulated, **more)
    one = figures[absent]
    assert one["value"] is None and words in one["reason"] and (one["remedy"] or found["bandwidth_scale_reason"])
    assert figures["peak_device_memory_bytes"]["value"] is not None
    assert found["bandwidth_scale"] is None and found["bandwidth_scale_reason"]


def test_a_window_has_every_figure_that_is_promised(device):
    """Or its reason; nothing is captured or refused meanwhile."""
    from harness.meters.available import find_meters

    before = device.faults()
    available = find_meters("cuda")
    available.windows.open()
    time.sleep(2.2)  # GPM's shortest window
    found = available.windows.close()
    assert found.values.keys() | found.reasons.keys() == available.windows.figures.keys()
    assert found.values.keys() >= ALWAYS | {COUNTED, "energy_j", "kernel_before_s", "compiled_graphs"}
    assert found.values["throttle_hw_thermal_s"] == 0 < found.values["throttle_power_cap_s"], "heat would void every time"
    assert found.values["compiled_graphs"] == 0 and 0 < found.values[COUNTED] <= 100 and device.faults() == before


@pytest.mark.parametrize("execution", ["graphs", pytest.param("compiled", marks=pytest.mark.full)])
def test_a_calibration_times_what_is_replayed(monkeypatch, tmp_path, device, execution):
    """Its passes are captured as the engine's are, nothing is refused, and ceilings follow from what it measures."""
    torch = pytest.importorskip("torch")
    from harness.engine.sessions import stepping
    from harness.meters.calibration import load_or_calibrate
    from harness.roofline.ceilings import ceilings_from_calibration

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before, replays = device.faults(), []
    replay = torch.cuda.CUDAGraph.replay
    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", lambda graph: replays.append(graph) or replay(graph))
    found = load_or_calibrate("cuda", "bfloat16", None, 2**25, stepping("static", "sdpa", execution))
    assert found.device_name == "NVIDIA H100 80GB HBM3" and not found.fixed_hidden and execution in found.engine
    assert replays and device.faults() == before
    assert ceilings_from_calibration(found, "bfloat16")


def test_a_calibration_serves_the_next_run(monkeypatch, tmp_path, device):
    """What was measured on a quiet machine is found again, and no kernel runs for it."""
    pytest.importorskip("torch")
    from harness.engine.sessions import stepping
    from harness.meters import calibration

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked = "cuda", "bfloat16", None, 2**22, stepping("static", "sdpa", "graphs")
    measured = calibration.load_or_calibrate(*asked)
    kept = calibration.cached_calibration(*asked)
    assert (kept is None) == (measured.disturbed is not None) and kept in (None, measured)
