"""DCGM's field 1005 through a program that stands in for dcgmi: values, windows, and every way it can fail."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from harness.meters.dcgm import DcgmMeter, find_dcgm
from harness.meters.window import Absent, Unreadable
from tests.helpers.fake_dcgmi import HEAD, FakeDcgmi
from tests.helpers.running import is_running

PATIENCE_S = 30.0


@pytest.fixture
def dcgmi(tmp_path):
    """A dcgmi whose script is still empty."""
    return FakeDcgmi(tmp_path)


class Clock:
    """Seconds that pass when told to; while dmon is awaited the real ones do."""

    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


def started(dcgmi, clock):
    """The meter after dmon's first value."""
    dcgmi.script(f"out {HEAD.strip()}".replace("\n", "|"), *dcgmi.rows("N/A", "0.111"))
    meter = DcgmMeter([str(dcgmi.path), "dmon"], clock=clock)
    meter.await_value(PATIENCE_S)
    return meter


def printed(dcgmi, *lines):
    """Let dcgmi print these lines, and wait until it has."""
    dcgmi.script(*lines)
    wanted = len((dcgmi.folder / "script").read_text().splitlines())
    until = time.monotonic() + PATIENCE_S
    while int((dcgmi.folder / "done").read_text() or 0) < wanted:
        assert time.monotonic() < until
        time.sleep(0.005)


def test_the_mean_is_that_of_the_rows_wholly_inside_the_window(dcgmi):
    """Hand-worked: the first two rows may speak of the time before; of 0.4, 0.5, N/A, 0.6 the mean is 50 %."""
    clock = Clock()
    meter = started(dcgmi, clock)
    try:
        printed(dcgmi, *dcgmi.rows("0.999"))
        meter.open()
        printed(dcgmi, *dcgmi.rows("0.900", "0.800", "0.400"), f"out {HEAD.strip()}".replace("\n", "|"))
        printed(dcgmi, *dcgmi.rows("0.500", "N/A", "0.600"))
        clock.now_s += 0.65
        assert meter.close() == {"dram_bandwidth_pct": pytest.approx(50.0)}
        meter.open()
        printed(dcgmi, *dcgmi.rows("0.900", "0.800", "0.250"))
        clock.now_s += 0.35
        assert meter.close() == {"dram_bandwidth_pct": pytest.approx(25.0)}, "nothing is left over from the window before"
    finally:
        meter.stop()


def test_a_window_too_short_or_with_rows_missing_is_a_reason(dcgmi):
    """299 ms hold no row that is wholly inside; and a dmon that stands still is noticed."""
    clock = Clock()
    meter = started(dcgmi, clock)
    try:
        meter.open()
        printed(dcgmi, *dcgmi.rows("0.500", "0.500"))
        clock.now_s += 0.299
        with pytest.raises(Unreadable, match=r"lasted 299\.0 ms; DCGM needs more than 300 ms"):
            meter.close()
        meter.open()
        printed(dcgmi, *dcgmi.rows("0.500", "0.500", "0.500"))
        clock.now_s += 2.0
        with pytest.raises(Unreadable, match="printed 1 values where the window has room for 18"):
            meter.close()
    finally:
        meter.stop()


def test_a_host_engine_that_goes_away_costs_this_window_and_says_so(dcgmi):
    """dmon ends in the middle: its own words and status."""
    clock = Clock()
    meter = started(dcgmi, clock)
    meter.open()
    dcgmi.script(*dcgmi.rows("0.5"), "out Error getting values information. Return -21: gone", "exit 235")
    meter._process.wait(PATIENCE_S)
    clock.now_s += 1.0
    with pytest.raises(Unreadable, match=r"status 235: Error getting values information\. Return -21"):
        meter.close()
    meter.stop()


def test_dcgmi_is_asked_for_this_gpu_alone_and_ended_afterwards(dcgmi):
    """Field 1005 every 100 ms, by UUID; the process does not outlive its meter."""
    dcgmi.script(f"out {HEAD.strip()}".replace("\n", "|"), *dcgmi.rows("0.000"))
    meter = find_dcgm("1234", str(dcgmi.path), PATIENCE_S)
    assert isinstance(meter, DcgmMeter)
    assert json.loads((dcgmi.folder / "asked").read_text()) == ["dmon", "-e", "1005", "-d", "100", "-i", "GPU-1234"]
    process = meter._process
    del meter
    assert process.poll() is not None


# What dcgmi prints (dcgmi/Command.cpp, dcgmi/DeviceMonitor.cpp, dcgm_structs.h; NVIDIA/DCGM issues 43, 50, 53, 132).
@pytest.mark.parametrize(
    ("lines", "status", "reason", "remedy"),
    [
        (
            (
                "out Error: unable to establish a connection to the specified host: localhost",
                "out Error: Unable to connect to host engine. Host engine connection invalid/disconnected.",
            ),
            235,
            "Unable to connect to host engine",
            "start DCGM's host engine",
        ),
        (
            (
                f"out {HEAD.strip()}".replace("\n", "|"),
                "err Error setting watches. Result: -33: This request is serviced by a module of DCGM that is not currently "
                "loaded",
            ),
            223,
            "not currently loaded",
            "as root, with DCGM's proprietary package",
        ),
        (
            (
                "err Error setting watches. Result: -29: Unable to watch one or more of the requested fields because doing so "
                "requires the host engine to be running as root.",
            ),
            227,
            "running as root",
            "--cap-add SYS_ADMIN",
        ),
        (
            ("err Error setting watches. Result: -37: The third-party Profiling module returned an unrecoverable error",),
            219,
            "unrecoverable error",
            "other profilers",
        ),
        (
            ("err Error setting watches. Result: -36: Profiling is not supported for this group of GPUs or GPU",),
            220,
            "not supported",
            "data-centre GPU",
        ),
        (("err Error: invalid entity: GPU-1234",), 254, "invalid entity", "DCGM 4"),
        ((), 1, "status 1: without a word", "by hand"),
    ],
)
def test_every_refusal_is_a_reason_with_its_remedy(dcgmi, lines, status, reason, remedy):
    """In dcgmi's own words; whichever stream they came on."""
    dcgmi.script(*lines, f"exit {status}")
    found = find_dcgm("GPU-1234", str(dcgmi.path), PATIENCE_S)
    assert isinstance(found, Absent) and found.figures == ("dram_bandwidth_pct",)
    assert reason in found.reason and f"status {status}" in found.reason
    assert remedy in found.remedy


def test_no_dcgmi_and_no_value_are_said(dcgmi, tmp_path):
    """Not installed; not a program that runs; and one that never prints a number (it is ended)."""
    found = find_dcgm("1234", str(tmp_path / "missing"))
    assert isinstance(found, Absent) and found.reason == "there is no dcgmi here" and "install DCGM" in found.remedy
    (tmp_path / "broken").write_text("#!/nowhere/at/all\n")
    (tmp_path / "broken").chmod(0o755)
    found = find_dcgm("1234", str(tmp_path / "broken"))
    assert isinstance(found, Absent) and "cannot be run" in found.reason
    dcgmi.script(*dcgmi.rows("N/A"))
    found = find_dcgm("1234", str(dcgmi.path), 1.0)
    assert isinstance(found, Absent) and found.reason in ("dcgmi printed only N/A in 1 s", "dcgmi printed no value in 1 s")


def test_dmon_dies_with_the_process_that_started_it(dcgmi):
    """Killed without a chance to clean up: the pipe breaks, and with the next row dmon ends, as any program does."""
    dcgmi.script(*dcgmi.rows("0.1"))
    program = (
        "import os, time; from harness.meters.dcgm import DcgmMeter; "
        f"meter = DcgmMeter([{str(dcgmi.path)!r}]); meter.await_value({PATIENCE_S}); print(meter._process.pid, flush=True); "
        "time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())
        parent.kill()
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        dcgmi.script(*dcgmi.rows("0.1"))
        if not is_running(child):
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    pytest.fail("dmon outlived the process that started it")
