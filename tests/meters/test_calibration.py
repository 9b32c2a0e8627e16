"""Calibration on a fake machine with planted rates, the torch bench with a fake clock and a fake CUDA, and the cache."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from harness.engine.cuda_graphs import CudaGraphs
from harness.engine.sessions import stepping
from harness.errors import UserError
from harness.hardware.profile import Calibration
from harness.kernels.library import why_not_built
from harness.meters import calibration as module
from harness.meters import torch_bench
from harness.meters.calibration import FOUR_GIB, cached_or_measured, measure
from harness.meters.torch_bench import PRODUCT_TOKENS, RESIDENT_TIMES, Kernel, Stepping, TorchBench
from harness.models import ModelShape
from harness.paths import cache_dir
from harness.roofline.ceilings import Ceilings, ceilings_from_calibration
from harness.roofline.operation import describe_pass
from harness.roofline.pricing import price_pass
from tests.helpers.fake_bench import GIB, MODEL, FakeBench
from tests.helpers.fake_clock import FakeClock
from tests.helpers.fake_cuda import FakeCuda
from tests.helpers.pass_bytes import pass_bytes

RESIDENT_POINTS = len(module.RESIDENT_TOKENS)
STEPPING = Stepping(engine="none", eager=True, steps=lambda model: model, attend=lambda query, keys, values: query)


@pytest.fixture(autouse=True)
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What else runs during the next measurements; nothing once the list is empty."""
    found: list[str] = []
    monkeypatch.setattr(module, "OtherLoad", lambda: SimpleNamespace(words=found.pop(0) if found else None))
    return found


def test_planted_rates_come_back():
    """Bandwidth, rates, overlap, fixed costs and sampler of the fake machine are found, disturbed runs notwithstanding."""
    found = measure(FakeBench(), "bfloat16", MODEL)
    roof = ceilings_from_calibration(found, "bfloat16")
    assert [point.bytes_ for point in found.read_bandwidth] == [MODEL, FOUR_GIB]
    assert {point.kernel for point in found.read_bandwidth} == {"fast"}
    assert roof.bandwidth_bytes_per_s == pytest.approx(20e9)
    assert roof.matrix_flops_per_s(16) == pytest.approx(4e11)
    assert roof.attention_flops_per_s(4, 4) == pytest.approx(8e10)
    assert (roof.overlap, roof.stall) == (pytest.approx(0.4), pytest.approx(1))
    assert roof.fixed_s_per_pass == pytest.approx(0.001)
    assert roof.fixed_s_per_layer == pytest.approx(0.0002)
    assert roof.sampler_s_per_logit == pytest.approx(1e-9)
    assert found.dram_bound is True
    assert roof.share_claimable
    assert Calibration.model_validate_json(found.model_dump_json()) == found


class LaunchBound(FakeBench):
    """Attention there takes no longer than launching it."""

    def resident_attention(self, queries: int) -> None:
        return None


def test_where_attention_cannot_be_timed_it_goes_at_the_matrix_rate():
    """Of the tokens of a row: 1e11 * sqrt(4) for 4 tokens, whatever shares a KV head."""
    found = measure(LaunchBound(), "bfloat16", MODEL)
    assert found.rates["bfloat16"].attention is None
    assert ceilings_from_calibration(found, "bfloat16").attention_flops_per_s(4, 8) == pytest.approx(2e11)


def test_cached_model_is_not_called_memory_bound():
    """A model that reads faster than 4 GiB do comes out of a cache: no share is claimed, and both rates are told."""
    found = measure(FakeBench(cache_bytes=GIB), "bfloat16", MODEL)
    roof = ceilings_from_calibration(found, "bfloat16")
    assert found.dram_bound is False
    assert not roof.share_claimable
    assert "60.0 GB/s" in found.dram_bound_reason and "20.0 GB/s" in found.dram_bound_reason
    assert roof.bandwidth_bytes_per_s == pytest.approx(60e9)


def test_too_little_memory_leaves_the_question_open():
    """Where 4 GiB do not fit nothing large is allocated, and the flag is absent with its reason."""
    bench = FakeBench(free=4 * GIB)
    found = measure(bench, "bfloat16", MODEL)
    assert found.dram_bound is None
    assert "4.0 GiB are free" in found.dram_bound_reason
    assert bench.reserved == [MODEL]
    assert not ceilings_from_calibration(found, "bfloat16").share_claimable


def test_large_model_is_compared_with_twice_its_size():
    """The second buffer is max(4 GiB, twice the model)."""
    bench = FakeBench(free=100 * GIB)
    measure(bench, "bfloat16", 16 * GIB)
    assert bench.reserved == [32 * GIB]


def test_senseless_fixed_cost_is_absent_with_a_reason():
    """More layers that take no longer give no cost per layer rather than a wrong one."""
    found = measure(FakeBench(layer_s=-0.00001), "bfloat16", MODEL)
    assert (found.fixed_s_per_pass, found.fixed_s_per_layer) == (None, None)
    assert found.fixed_reason is not None
    assert "no straight cost" in found.fixed_reason


def test_other_dtype_is_refused():
    """A calibration in bf16 says nothing about float32."""
    found = measure(FakeBench(), "bfloat16", MODEL)
    with pytest.raises(UserError, match=r"covers bfloat16, not 'float32'"):
        ceilings_from_calibration(found, "float32")


def test_cache_is_keyed_by_machine_and_dtype(tmp_path: Path):
    """The same machine measures once; another dtype, size, name or thread count measures again."""
    first = FakeBench()
    kept = cached_or_measured(first, "bfloat16", MODEL, tmp_path)
    again = FakeBench()
    assert cached_or_measured(again, "bfloat16", MODEL, tmp_path) == kept
    assert again.runs == 0
    other = FakeBench()
    other.threads = 1
    for bench, dtype, size in (
        (FakeBench(), "float32", MODEL),
        (FakeBench(), "bfloat16", 2 * MODEL),
        (other, "bfloat16", MODEL),
    ):
        cached_or_measured(bench, dtype, size, tmp_path)
        assert bench.runs > 0
    assert len(list(tmp_path.glob("calibration-*.json"))) == len(list(tmp_path.iterdir())) == 4


def test_broken_cache_is_measured_again(tmp_path: Path):
    """Half a file or an old form is replaced, not trusted and not fatal."""
    kept = cached_or_measured(FakeBench(), "bfloat16", MODEL, tmp_path)
    (path,) = tmp_path.iterdir()
    for broken in (path.read_text(encoding="utf-8")[:100], '{"version": 99}'):
        path.write_text(broken, encoding="utf-8")
        bench = FakeBench()
        found = cached_or_measured(bench, "bfloat16", MODEL, tmp_path)
        assert bench.runs > 0
        assert found.rates == kept.rates


class DisturbedBench(FakeBench):
    """Another process holds the cores while the first ``disturbed`` products are timed: they take 40 times as long."""

    def __init__(self, disturbed: int) -> None:
        super().__init__()
        self.disturbed = disturbed

    def resident_linear(self, tokens: int) -> tuple[Kernel, int]:
        kernel, flops = super().resident_linear(tokens)
        self.disturbed -= 1
        if self.disturbed >= 0:
            self.planned[kernel] *= 40
        return kernel, flops


def test_a_calibration_that_contradicts_itself_is_measured_again_and_never_kept(tmp_path: Path):
    """Layers streamed from memory cannot be many times faster than their arithmetic out of the cache: nobody prices on that."""
    bench = DisturbedBench(RESIDENT_POINTS)
    found = cached_or_measured(bench, "bfloat16", MODEL, tmp_path)
    assert bench.disturbed == -RESIDENT_POINTS, "measured once more"
    assert ceilings_from_calibration(found, "bfloat16").overlap == pytest.approx(0.4)
    assert len(list(tmp_path.iterdir())) == 1
    other = tmp_path / "other"
    found = cached_or_measured(DisturbedBench(1000), "bfloat16", MODEL, other)
    with pytest.raises(UserError, match=r"contradicts itself.*when it is quiet"):
        ceilings_from_calibration(found, "bfloat16")
    assert not other.exists()


@pytest.mark.parametrize(("busy", "kept"), [(1, 1), (2, 0)])
def test_a_calibration_beside_other_programs_is_measured_again_and_not_kept(
    tmp_path: Path, loads: list[str], busy: int, kept: int
):
    """A quiet second one is kept; one that is disturbed too is returned with the reason, and the next run measures."""
    loads.extend(["other programs used 1.0 cores"] * busy)
    found = cached_or_measured(FakeBench(), "bfloat16", MODEL, tmp_path)
    assert not loads and len(list(tmp_path.iterdir())) == kept
    assert found.disturbed == (None if kept else "other programs used 1.0 cores")
    again = FakeBench()
    assert cached_or_measured(again, "bfloat16", MODEL, tmp_path).disturbed is None
    assert (again.runs == 0) == bool(kept)


def test_unwritable_cache_is_survived(tmp_path: Path):
    """Where nothing can be cached the calibration is still returned."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert cached_or_measured(FakeBench(), "bfloat16", MODEL, blocked / "sbd").dram_bound is True


def test_cache_dir_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """XDG_CACHE_HOME wins over the home directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "sbd"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert cache_dir() == tmp_path / ".cache" / "sbd"


def test_cuda_branch_times_by_events():
    """Each run lies between two events, in seconds, with a synchronisation before the first and after the last."""
    cuda = FakeCuda()
    with TorchBench("cuda:0", "bfloat16", None, STEPPING, cuda=cuda) as bench:

        def kernel() -> None:
            cuda.now_ms += 2.0

        assert bench.seconds(kernel, 3) == pytest.approx([0.002] * 3)
        assert len(cuda.synchronized) == 2
        assert cuda.now_ms == 10.0  # one warm-up, one run that keeps the device busy, and three
        assert (bench.device_name, bench.threads, bench.fixed_hidden) == ("Fake H200", None, True)
        assert bench.available_bytes() == 7 * GIB


class LaunchedGpu(FakeCuda):
    """Launching a product takes 5 µs, the product 1 µs. What is captured launches nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.recording, self.captures = False, 0
        self.recorded_ms = 0.0

    def product(self, inputs: Any, weight: Any) -> Kernel:
        """The engine's own."""

        def run() -> None:
            if self.recording:
                self.recorded_ms += 0.001
            else:
                self.now_ms += 0.005

        return run

    def capture(self) -> Any:
        """One that is used once, as the pool of a dropped graph is gone."""
        used: list[Kernel] = []

        def captured(kernel: Kernel) -> Kernel:
            assert not used, "a pool of which no graph is left may not be named again"
            used.append(kernel)
            self.captures, self.recording, self.recorded_ms = self.captures + 1, True, 0.0
            kernel()
            self.recording, taken_ms = False, self.recorded_ms
            return lambda: setattr(self, "now_ms", self.now_ms + taken_ms)

        return captured


def test_a_gpu_is_timed_by_replays_and_not_by_launches(monkeypatch: pytest.MonkeyPatch):
    """16 products of a matrix in its cache take 16 µs, not the 80 of their launches; 8 from memory 8. No CPU captures."""
    monkeypatch.setattr(torch_bench, "CUDA_MATRIX", (64, 32))
    gpu = LaunchedGpu()
    engine = replace(STEPPING, product=gpu.product, capture=gpu.capture)
    with TorchBench("cuda", "bfloat16", None, engine, cuda=gpu) as bench:
        bench.device = "cpu"  # where its tensors are here
        size = 8 * 2 * 64 * 32
        bench.reserve(size)
        for (kernel, _), products in ((bench.resident_linear(1), RESIDENT_TIMES), (bench.streaming_linear(size, 4), 8)):
            assert bench.seconds(kernel, 2) == pytest.approx([1e-6 * products] * 2)
        bench.read_kernels(size)
        bench.sampler(2, 50)
    assert gpu.captures == 5, "and each way of reading, and the sampler"
    with TorchBench("cpu", "bfloat16", 1, engine, clock=FakeClock()) as bench:
        bench.resident_linear(1)
    assert gpu.captures == 5


def test_every_engine_tells_how_it_captures():
    """An eager one too: its host's launches are its fixed cost, and not the rate of the device."""
    for execution in ("eager", "graphs", "compiled"):
        assert stepping("static", "sdpa", execution).capture is CudaGraphs


def test_what_a_gpu_kept_of_launches_is_not_taken_for_replays(tmp_path: Path):
    """Its file has another name; a CPU's has the one it had."""
    names = []
    for device in ("cpu", "cuda"):
        bench = FakeBench()
        bench.device = device
        cached_or_measured(bench, "bfloat16", MODEL, tmp_path / device)
        [file] = (tmp_path / device).iterdir()
        key: list[Any] = [2, bench.device_name, device, bench.engine, bench.threads, bench.torch_version, "bfloat16", MODEL]
        names.append(file.name == f"calibration-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]}.json")
    assert names == [True, False]


class TwoGpus(FakeCuda):
    """Two time lines: work goes to that of the GPU it is for, an event to that of the current one."""

    def __init__(self) -> None:
        super().__init__()
        self.lines_ms = [0.0, 0.0]

    def Event(self, enable_timing: bool) -> Any:
        event = super().Event(enable_timing)
        event.record = lambda: setattr(event, "at", self.lines_ms[self.current])
        return event


@pytest.mark.parametrize(("device", "index"), [("cuda", 0), ("cuda:0", 0), ("cuda:1", 1)])
def test_events_lie_on_the_gpu_that_works(device: str, index: int):
    """Whichever was current before, and will be again afterwards; on another GPU's time line nothing happens meanwhile."""
    for before in (0, 1):
        cuda = TwoGpus()
        cuda.current = before

        def kernel(cuda: TwoGpus = cuda) -> None:
            cuda.lines_ms[index] += 2.0

        with TorchBench(device, "bfloat16", None, STEPPING, cuda=cuda) as bench:
            assert bench.seconds(kernel, 3) == pytest.approx([0.002] * 3)
        assert cuda.current == before


@pytest.mark.parametrize(
    ("device", "execution", "expected_s"),
    [("cuda", "eager", 4.0e-3), ("cuda", "graphs", 6.7e-3), ("cuda", "compiled", 6.7e-3), ("cpu", "eager", 6.7e-3)],
)
def test_fixed_costs_hide_behind_the_work_of_a_gpu_only_where_the_host_launches_it(
    device: str, execution: str, expected_s: float
):
    """By hand: a pass reads weights for 4.0 ms, and its fixed cost is 2.7 ms. A host that launches ahead is hidden; what lies
    between the kernels of a graph is not, and leaving it out would be 40 % low.
    """
    bench = TorchBench(device, "bfloat16", None, stepping("static", "sdpa", execution), cuda=FakeCuda())
    forward_pass = describe_pass("decide", 1, 1, 0, logits=1)
    shape = ModelShape(
        name="s",
        architecture="llama",
        layers=27,
        hidden=64,
        intermediate=128,
        heads=4,
        kv_heads=2,
        head_dim=16,
        vocab=256,
        tied_embeddings=False,
    )
    ceilings = Ceilings(
        rung="calibrated",
        device_name="a GPU",
        dtype="bfloat16",
        overlap=1.0,
        matrix_rates=((1, 1e30),),
        bandwidth_bytes_per_s=pass_bytes(shape, "bfloat16", forward_pass) / 4.0e-3,
        fixed_s_per_layer=1e-4,
        fixed_hidden=bench.fixed_hidden,
    )
    assert price_pass(shape, "bfloat16", forward_pass, ceilings).forward_s == pytest.approx(expected_s)


def test_missing_cuda_and_wrong_dtype_are_refused():
    """No silent fall back to the CPU, and no attribute of torch taken for a dtype."""
    with pytest.raises(UserError, match="no CUDA device"):
        TorchBench("cuda", "bfloat16", None, STEPPING, cuda=FakeCuda(present=False))
    with pytest.raises(UserError, match="no dtype 'nn'"):
        TorchBench("cpu", "nn", None, STEPPING)


@pytest.mark.parametrize(
    ("dtype", "size", "element"), [("float32", 3_000_000, 4), ("bfloat16", 50_000_000, 2), ("float64", 40_000, 8)]
)
def test_cpu_kernels_read_what_they_say(dtype: str, size: int, element: int):
    """Linear kernels run over as many weight bytes as they state, within one matrix of the size asked for."""
    before = torch.get_num_threads()
    with TorchBench("cpu", dtype, 1, STEPPING, clock=FakeClock()) as bench:
        assert torch.get_num_threads() == 1
        bench.reserve(size)
        kernel, weight_bytes = bench.streaming_linear(size, 3)

        with FlopCounterMode(display=False) as counter:
            kernel()
        assert counter.get_total_flops() == 2 * 3 * weight_bytes // element
        assert 0.5 * size < weight_bytes <= size
        resident, flops = bench.resident_linear(2)
        with FlopCounterMode(display=False) as counter:
            resident()
        assert counter.get_total_flops() == flops
        assert set(bench.read_kernels(size)) == {"sum", "matrix-vector"}
        for read in bench.read_kernels(size).values():
            assert bench.seconds(read, 2) == [1.0, 1.0]
        bench.sampler(2, 50)()
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_native_products_and_samplers_are_what_native_forwards_compute(dtype: str):
    """Up to PRODUCT_TOKENS inputs, normed as by a model's last norm, times a matrix as the kernels pack it; more, as torch does
    it. The sampler is the kernels' walk over logits in the model's own dtype.
    """
    if why_not_built() is not None:
        pytest.skip("no C++ compiler")
    engine, asked = stepping("static", "sdpa", "native"), []
    pair = 2 if dtype == "bfloat16" else 1
    for tokens in (1, 5, PRODUCT_TOKENS):
        weight, inputs = torch.randn(48, 32).to(getattr(torch, dtype)), torch.randn(tokens, 32).to(getattr(torch, dtype))
        packed = weight.view(3, 16, 32 // pair, pair).transpose(1, 2).reshape(48, 32).contiguous()
        normed = torch.nn.functional.rms_norm(inputs.double(), (32,)).to(inputs.dtype).double()
        found = engine.product(inputs, packed)()
        torch.testing.assert_close(found.double(), normed @ weight.double().T, rtol=1e-2, atol=1e-2 if pair == 2 else 1e-5)
    engine = replace(engine, product=lambda inputs, weight: asked.append(len(inputs)) or (lambda: None))
    with TorchBench("cpu", dtype, 1, engine, clock=FakeClock()) as bench:
        bench.reserve(40_000)
        for tokens in (1, PRODUCT_TOKENS, PRODUCT_TOKENS + 1):
            bench.streaming_linear(40_000, tokens)[0]()
        assert set(asked) == {1, PRODUCT_TOKENS}
        tokens, *_ = bench.sampler(2, 50)()
        assert tokens.shape == (2,) and bench.decode_step_times_s(2, 3) == [1.0] * 3


def test_attention_counts_the_flops_of_what_it_attends_to():
    """Two products of every query with every key, summed over what the engine's own attention is really handed."""
    seen: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = []
    engine = replace(STEPPING, attend=lambda q, k, v: seen.append((q.shape, k.shape, v.shape)))
    with TorchBench("cpu", "float32", 1, engine, clock=FakeClock()) as bench:
        kernel, flops = bench.resident_attention(3)
        kernel()
    assert seen and all(key == value and key[:2] == query[:2] and query[2] == 3 for query, key, value in seen)
    assert flops == sum(2 * 2 * math.prod(query) * key[2] for query, key, _ in seen)


def test_decode_steps_use_the_clock_once_a_step():
    """The narrow model runs one token at a time, each between two readings."""
    for session in ("plain", "static"):
        engine = stepping(session, "sdpa", "eager")
        with TorchBench("cpu", "float32", 1, engine, clock=FakeClock(tick_s=0.5)) as bench:
            assert bench.decode_step_times_s(2, 3) == [0.5] * 3
            assert bench.engine == f"{session}, eager"


def test_calibration_touches_no_torch():
    """Reading a cached calibration and importing the module need no torch."""
    import subprocess
    import sys

    code = (
        "import sys, harness.meters.calibration, harness.roofline.step, harness.roofline.paper;import harness.hardware.profile;"
    )
    code += "print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"
