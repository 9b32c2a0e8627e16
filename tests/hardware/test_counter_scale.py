"""What one percent of the memory counter is worth: known bytes under its window, and what is said where two scales differ."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from harness.engine.engine import LocalEngine
from harness.hardware.counter_scale import BandwidthScale, MemoryInterface, Streamed
from harness.meters import available
from harness.meters.available import TorchStreams, find_scale, measure_scale, memory_interface
from harness.meters.clock import HostClock
from harness.meters.nvml import find_nvml
from harness.meters.window import MeterFigure, Unreadable
from tests.helpers.fake_libnvml import NOT_SUPPORTED, FakeLibrary, install

PEAK, COPY_RATE, READ_RATE, SIZE = 4e12, 3.2e12, 3.6e12, 2**31
INTERFACE = MemoryInterface(clock_hz=2.5e9, bus_bits=6400, source="a datasheet")  # 2 x 2.5e9 x 6400 / 8 = 4e12


class FakeStreams:
    """Moves known bytes on the fake GPU at its copy and read rates; the device works only while it is waited for."""

    def __init__(self, library):
        self.library, self.pending = library, []

    def run(self, kernel):
        """Two buffers' worth for a copy."""
        moved = 2 * SIZE if kernel == "copy" else SIZE
        self.pending.append((moved, moved / (COPY_RATE if kernel == "copy" else READ_RATE)))
        return moved

    def synchronise(self):
        """Time passes here."""
        for moved, seconds in self.pending:
            self.library.stream(moved, seconds)
        self.pending = []


@pytest.fixture
def library(monkeypatch):
    """A GPU whose counter's 100 % is 4 TB/s."""
    fake = FakeLibrary(peak_bytes_per_s=PEAK)
    install(monkeypatch, fake)
    return fake


def gpm(library):
    """Its GPM meter, on its time."""
    meters, _ = find_nvml("1234", clock=lambda: library.now_s)
    return next(meter for meter in meters if "dram_bandwidth_pct" in meter.figures)


def clock_of(library):
    """The host's clock is the device's here."""
    return lambda: library.now_s


def test_known_bytes_give_the_scale_whatever_the_rate(library):
    """Hand-worked: copies run at 80 % and reads at 90 % of 4 TB/s; by either one percent is 40 GB/s, as by clock and bus."""
    found = measure_scale(FakeStreams(library), gpm(library), INTERFACE, clock_of(library))
    assert found.copied.percent == pytest.approx(80.0) and found.read.percent == pytest.approx(90.0)
    assert found.bytes_per_s_per_percent == pytest.approx(40e9)
    assert found.read.bytes_per_s_per_percent == pytest.approx(40e9)
    assert found.theoretical_bytes_per_s_per_percent == pytest.approx(40e9) and found.disagreement() is None
    assert found.counter == "NVML GPM metric 10"
    for streamed, rate in ((found.copied, COPY_RATE), (found.read, READ_RATE)):
        assert 2.5 <= streamed.seconds < 2.51 and streamed.bytes_ == pytest.approx(rate * streamed.seconds)


class ColdStreams(FakeStreams):
    """Takes ten times as long for either kernel until it has been at it for 0.2 s."""

    def __init__(self, library):
        super().__init__(library)
        self.busy_s = {"copy": 0.0, "read": 0.0}

    def run(self, kernel):
        """Slow while cold."""
        moved = super().run(kernel)
        _, seconds = self.pending.pop()
        seconds *= 10 if self.busy_s[kernel] < 0.2 else 1
        self.busy_s[kernel] += seconds
        self.pending.append((moved, seconds))
        return moved


def test_nothing_counts_before_the_device_is_warm(library):
    """The windows are as long and as fast as on a warm device, for the copy and for the read-only kernel."""
    found = measure_scale(ColdStreams(library), gpm(library), INTERFACE, clock_of(library))
    for streamed, rate in ((found.copied, COPY_RATE), (found.read, READ_RATE)):
        assert 2.5 <= streamed.seconds < 2.51 and streamed.bytes_ == pytest.approx(rate * streamed.seconds)


def test_the_record_holds_what_was_measured_and_the_scale_is_derived_on_reading(library):
    """Through JSON and back: raw bytes, seconds and percent; no derived figure among them."""
    found = measure_scale(FakeStreams(library), gpm(library), "not told", clock_of(library))
    written = json.loads(json.dumps(found.model_dump(mode="json")))
    assert set(written["copied"]) == {"kernel", "bytes_", "seconds", "percent"}
    again = BandwidthScale.model_validate(written)
    assert again == found and again.interface is None and again.interface_reason == "not told"
    assert again.theoretical_bytes_per_s_per_percent is None


def scale(copy=40e9, read=40e9, theoretical=40e9):
    """A calibration with these scales."""
    return BandwidthScale(
        taken_at=datetime(2026, 11, 20, tzinfo=UTC),
        counter="a counter",
        copied=Streamed(kernel="copy", bytes_=int(50 * copy), seconds=1.0, percent=50.0),
        read=None if read is None else Streamed(kernel="read", bytes_=int(50 * read), seconds=1.0, percent=50.0),
        interface=None if theoretical is None else MemoryInterface(clock_hz=50 * theoretical, bus_bits=8, source="torch"),
    )


def test_scales_more_than_ten_percent_apart_are_said_in_words():
    """9.9 % is the same scale, 10.1 % is not; each is named with its figure and its distance, the copy's is the one used."""
    assert scale(theoretical=40e9 * 1.099, read=40e9 * 0.901).disagreement() is None
    words = scale(theoretical=40e9 * 1.101).disagreement()
    assert "44.04 GB/s (+10 %) by the memory clock and bus width" in words and "read-only" not in words
    assert "one percent is 40 GB/s by a copy of known bytes, which is used" in words
    words = scale(read=30e9, theoretical=20e9).disagreement()
    assert "30 GB/s (-25 %) by a read-only reduction" in words and "20 GB/s (-50 %) by the memory" in words
    assert scale(read=None, theoretical=None).disagreement() is None


class Silent:
    """A counter that reads as told."""

    def __init__(self, *answers):
        self.figures = {"dram_bandwidth_pct": MeterFigure(unit="%", source="a silent counter")}
        self.answers = list(answers)

    def open(self):
        """Nothing."""

    def close(self):
        """The next answer."""
        return self.answers.pop(0)


def test_no_scale_comes_from_a_counter_that_reads_nothing(library):
    """No figure and 0 % are refusals with their words; a copy without a read-only check is still a scale."""
    for answer, words in (({}, "gave no figure over 2.5"), ({"dram_bandwidth_pct": 0.0}, "read 0 % over 2.5")):
        with pytest.raises(Unreadable, match=words):
            measure_scale(FakeStreams(library), Silent(answer, answer), INTERFACE, clock_of(library))
    found = measure_scale(FakeStreams(library), Silent({"dram_bandwidth_pct": 80.0}, {}), INTERFACE, clock_of(library))
    assert found.bytes_per_s_per_percent == pytest.approx(40e9) and found.read is None
    assert "a silent counter gave no figure" in found.read_reason


def told_by_an_engine(meters):
    """What the engine of these meters puts into the record."""
    model = SimpleNamespace(shape=None, tokenizer=None, mask_id=None)
    return LocalEngine(model, None, "cpu", HostClock(), meters, None, None, None).meters


def test_a_gpus_counter_is_calibrated_and_the_scale_reaches_the_record(library, monkeypatch):
    """find_meters hands the GPM meter of this very device to the calibration; the engine's meters carry it as plain JSON."""
    asked = []

    def calibrate(device, meter):
        asked.append((device, "dram_bandwidth_pct" in meter.figures))
        return scale()

    monkeypatch.setattr(available.torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="1234"))
    monkeypatch.setattr(available, "fixed_kernel", lambda device: lambda: 0.0)
    monkeypatch.setattr(available, "find_scale", calibrate)
    found = available.find_meters("cuda:0")
    assert asked == [("cuda:0", True)] and "dram_bandwidth_pct" in found.windows.figures
    event = json.loads(json.dumps(told_by_an_engine(found)))
    assert BandwidthScale.model_validate(event["bandwidth_scale"]) == scale() and event["bandwidth_scale_reason"] is None

    library.gpm = False
    monkeypatch.setattr("harness.meters.dcgm.shutil.which", lambda name: None)
    found = available.find_meters("cuda:0")
    assert len(asked) == 1, "nothing is streamed where nothing counts"
    [why] = [one.reason for one in found.absent if "dram_bandwidth_pct" in one.figures]
    assert "no GPM" in why and "no dcgmi" in why
    event = told_by_an_engine(found)
    assert event["bandwidth_scale"] is None and event["bandwidth_scale_reason"]


def test_amds_gpu_is_not_asked_of_nvidias_driver(library, monkeypatch):
    """No driver of NVIDIA's and no DCGM is the remedy there, and no tool of theirs is looked for."""
    monkeypatch.setattr(available.torch.version, "hip", "6.4.43482")
    monkeypatch.setattr(available.torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="1234"))
    monkeypatch.setattr(available, "fixed_kernel", lambda device: lambda: 0.0)
    found = available.find_meters("cuda:0")
    [told] = [one for one in found.absent if "dram_bandwidth_pct" in one.figures]
    assert told.reason == "the work runs on no NVIDIA GPU" and "energy_j" in told.figures and not library.calls
    assert "driver" not in told.remedy and "DCGM" not in told.remedy


def fake_cuda(free_bytes, cache_bytes, **properties):
    """torch.cuda of a device with so much free memory and cache; tensors are the CPU's."""
    told = SimpleNamespace(L2_cache_size=cache_bytes, **properties)
    return SimpleNamespace(
        get_device_properties=lambda device: told,
        mem_get_info=lambda device: (free_bytes, free_bytes),
        synchronize=lambda device: None,
        empty_cache=Mock(),
    )


def test_the_kernels_move_the_bytes_that_are_counted():
    """A copy reads one buffer and writes the other, a sum reads one; the buffers are a quarter of what is free."""
    streams = TorchStreams("cpu", fake_cuda(free_bytes=2**20, cache_bytes=2**14))
    assert streams.run("copy") == 2 * 2**18 and streams.run("read") == 2**18
    assert torch.equal(streams._source, streams._target) and streams._source.std() > 0.1, "random data, not zeros"


def test_buffers_that_a_cache_could_hold_are_refused_and_memory_is_given_back(library):
    """Sixteen caches are the least; the reason tells what is free, and the run goes on."""
    cuda = fake_cuda(free_bytes=2**20, cache_bytes=2**14 + 1)
    found = find_scale("cpu", gpm(library), cuda)
    assert "too little for buffers of 16 times its cache" in found and cuda.empty_cache.call_count == 1
    library.refused = {"nvmlGpmSampleGet": NOT_SUPPORTED}
    found = find_scale("cpu", gpm(library), fake_cuda(2**20, 2**10), clock=iter(range(1000)).__next__)
    assert found == "NVMLError_NotSupported: Not Supported"


def test_memory_clock_and_bus_width_come_from_torch_or_not_at_all():
    """B200's 3996 MHz and 8192 bit are 8.184 TB/s (measurement notes, section 1); an older torch tells neither."""
    cuda = fake_cuda(0, 0, memory_clock_rate=3_996_000, memory_bus_width=8192)
    assert memory_interface("cuda", cuda).bytes_per_s == pytest.approx(8.184e12, rel=1e-3)
    assert "tells no memory clock" in memory_interface("cuda", fake_cuda(0, 0))
