"""The emulated GPU itself: it refuses what CUDA refuses, computes what the CPU computes, and hides no memory that is gone."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.emulated

GLOBAL, RELAXED = 0, 2
"""cudaStreamCaptureMode."""
NON_BLOCKING = 1
UNSUPPORTED, INVALIDATED, UNMATCHED, UNJOINED, ISOLATION, IMPLICIT, CAPTURED_EVENT = 900, 901, 903, 904, 905, 906, 907
"""cudaErrorStreamCapture..., cudaErrorCapturedEvent."""


class Cuda:
    """The runtime's calls as a C program makes them, without torch."""

    def __init__(self, device: Any) -> None:
        self._runtime = device.runtime()

    def __getattr__(self, name: str) -> Callable[..., int]:
        return getattr(self._runtime, name)

    def made(self, call: str, *more: Any) -> ctypes.c_void_p:
        """What a call writes to where its first argument points."""
        found = ctypes.c_void_p()
        assert getattr(self._runtime, call)(ctypes.byref(found), *more) == 0
        return found

    def stream(self, flags: int = NON_BLOCKING) -> ctypes.c_void_p:
        """A stream; by default one that the legacy stream does not wait for, as torch's are."""
        return self.made("cudaStreamCreateWithPriority", flags, 0)

    def event(self, on: ctypes.c_void_p | None) -> ctypes.c_void_p:
        """An event that has been recorded."""
        event = self.made("cudaEventCreate")
        assert self._runtime.cudaEventRecord(event, on) == 0
        return event


@pytest.fixture
def cuda(device: Any) -> Iterator[Cuda]:
    """The runtime; its last error is not left to torch."""
    yield Cuda(device)
    device.runtime().cudaGetLastError()


def allocate(cuda: Cuda, stream: Any) -> int:
    return cuda.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(64))


def lock_pages(cuda: Cuda, stream: Any) -> int:
    return cuda.cudaHostAlloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(64), 0)


def wait_for_device(cuda: Cuda, stream: Any) -> int:
    return cuda.cudaDeviceSynchronize()


def wait_for_stream(cuda: Cuda, stream: Any) -> int:
    return cuda.cudaStreamSynchronize(stream)


def wait_for_event(cuda: Cuda, stream: Any) -> int:
    return cuda.cudaEventSynchronize(cuda.event(stream))


def ask_captured_event(cuda: Cuda, stream: Any) -> int:
    return cuda.cudaEventQuery(cuda.event(stream))


def ask_other_event(cuda: Cuda, stream: Any) -> int:
    return cuda.cudaEventQuery(cuda.event(cuda.stream()))


def wait_for_work_outside(cuda: Cuda, stream: Any) -> int:
    return cuda.cudaStreamWaitEvent(stream, cuda.event(cuda.stream()), 0)


@pytest.mark.parametrize(
    ("does", "error"),
    [
        (allocate, UNSUPPORTED),
        (lock_pages, UNSUPPORTED),
        (wait_for_device, UNSUPPORTED),
        (wait_for_stream, UNSUPPORTED),
        (wait_for_event, CAPTURED_EVENT),
        (ask_captured_event, CAPTURED_EVENT),
        (ask_other_event, UNSUPPORTED),
        (wait_for_work_outside, ISOLATION),
    ],
)
def test_what_a_capture_prohibits_is_refused_and_ends_it(does: Callable[..., int], error: int, cuda: Cuda, device: Any) -> None:
    """With CUDA's own error; a program sees it at the latest when the capture ends."""
    stream, before = cuda.stream(), len(device.faults())
    assert cuda.cudaStreamBeginCapture(stream, GLOBAL) == 0
    assert does(cuda, stream) == error
    assert cuda.cudaStreamEndCapture(stream, ctypes.byref(ctypes.c_void_p())) == INVALIDATED
    assert len(device.faults()) == before + 2


def test_a_relaxed_thread_may_allocate_but_not_wait(cuda: Cuda) -> None:
    """torch's allocator is relaxed while it asks for memory."""
    stream, mode = cuda.stream(), ctypes.c_int(RELAXED)
    cuda.cudaStreamBeginCapture(stream, GLOBAL)
    cuda.cudaThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    assert allocate(cuda, stream) == 0
    assert wait_for_stream(cuda, stream) == UNSUPPORTED
    cuda.cudaThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    assert cuda.cudaStreamEndCapture(stream, ctypes.byref(ctypes.c_void_p())) == INVALIDATED


def test_a_large_copy_within_the_device_takes_memory_for_what_it_holds_alone(cuda: Cuda) -> None:
    """The caches of an 8B model are copied whole; pages that nobody wrote fill no memory of this machine."""
    size, places = 256 << 20, (0, 77_777_777, (256 << 20) - 1)
    source, target = (cuda.made("cudaMalloc", ctypes.c_size_t(size)) for _ in range(2))
    held = [(ctypes.c_char * size).from_address(block.value or 0) for block in (source, target)]
    for at in places:
        held[0][at] = b"x"
    held[1][1000] = b"y"  # what was there before is gone
    before = resident_bytes()
    assert cuda.cudaMemcpy(target, source, ctypes.c_size_t(size), 3) == 0
    assert resident_bytes() - before < 4 << 20
    assert [held[1][at] for at in places] == [b"x"] * 3 and held[1][1000] == held[1][places[1] + 1] == b"\0"
    assert not any(cuda.cudaFree(block) for block in (source, target))


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_the_legacy_stream_waits_for_blocking_streams_alone(cuda: Cuda, device: Any) -> None:
    """Its work ends the capture of one; beside another it is not captured, which is a fault where the same thread captures."""
    memory = cuda.made("cudaMalloc", ctypes.c_size_t(64))

    def filled(flags: int) -> tuple[int, int]:
        stream = cuda.stream(flags)
        cuda.cudaStreamBeginCapture(stream, GLOBAL)
        fill = cuda.cudaMemsetAsync(memory, 0, ctypes.c_size_t(64), None)
        return fill, cuda.cudaStreamEndCapture(stream, ctypes.byref(ctypes.c_void_p()))

    assert filled(0) == (IMPLICIT, INVALIDATED)
    assert filled(NON_BLOCKING) == (0, 0)
    assert "no replay does it" in device.faults()[-1]


def test_a_stream_that_took_part_must_be_waited_for(cuda: Cuda) -> None:
    """It joins by waiting for an event of the capture, and is joined by the same."""

    def ended(joined: bool) -> int:
        stream, other = cuda.stream(), cuda.stream()
        cuda.cudaStreamBeginCapture(stream, GLOBAL)
        assert cuda.cudaStreamWaitEvent(other, cuda.event(stream), 0) == 0
        assert cuda.cudaStreamEndCapture(other, ctypes.byref(ctypes.c_void_p())) == UNMATCHED
        if joined:
            cuda.cudaStreamWaitEvent(stream, cuda.event(other), 0)
        return cuda.cudaStreamEndCapture(stream, ctypes.byref(ctypes.c_void_p()))

    assert (ended(joined=True), ended(joined=False)) == (0, UNJOINED)


def captured(work: Callable[[], Any], stream: Any = None, fresh_workspaces: bool = True) -> tuple[Any, Any]:
    """A graph of the work, and what the work returned."""
    import torch

    stream, graph = stream or torch.cuda.Stream(), torch.cuda.CUDAGraph(keep_graph=True)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
    if fresh_workspaces:
        torch._C._cuda_clearCublasWorkspaces()
    with torch.cuda.graph(graph, stream=stream):
        out = work()
    return graph, out


def test_a_replay_computes_what_the_cpu_computes_of_what_lies_there(values: None, device: Any) -> None:
    """Nothing before the first replay; then of the inputs of the capture, and of others at their place."""
    import torch

    left, right = torch.randn(8, 16, device="cuda"), torch.randn(16, 4, device="cuda")
    graph, out = captured(lambda: (left @ right).relu())
    for _ in range(2):
        graph.replay()
        assert torch.equal(out.cpu(), (left.cpu() @ right.cpu()).relu())
        left.normal_()
    product, relu = device.nodes(graph)
    assert product == "cublasSgemm_v2" and "launch_clamp" in relu


def test_a_graph_whose_input_was_freed_finds_no_values(values: None) -> None:
    """Those that share the memory by then keep theirs."""
    import torch

    held = [torch.ones(64, device="cuda"), torch.ones(64, device="cuda")]
    graph, out = captured(lambda: held[0] + 1 if held else None)
    graph.replay()
    assert out.tolist() == [2] * 64
    del held[0]
    graph.replay()
    assert out.isnan().all() and held[0].tolist() == [1] * 64


def test_a_graph_writes_to_a_workspace_that_torch_has_given_to_others(values: None) -> None:
    """pytorch#192061: what is captured with the stream's own workspace goes on writing there when torch has freed it."""
    import torch

    left, right = torch.ones(8, 16, device="cuda"), torch.ones(16, 4, device="cuda")
    stream = torch.cuda.Stream()
    graph, _ = captured(lambda: left @ right, stream, fresh_workspaces=False)
    torch._C._cuda_clearCublasWorkspaces()
    with torch.cuda.stream(stream):
        others = [torch.zeros(1 << 20, device="cuda") for _ in range(16)]
    graph.replay()
    assert any(one.isnan().any() for one in others)


ENDED = """
import torch
from tests.emulated_gpu import device
from tests.emulated_gpu.test_emulator import captured
memory = [torch.ones(1 << 23, device="cuda")]
graph, out = captured(lambda: memory[0] + 1 if memory else None)
graph.replay()
memory.clear()
torch.cuda.empty_cache()
for then in (graph.replay, torch.cuda.synchronize):
    try:
        then()
    except torch.AcceleratorError as error:
        print(str(error).splitlines()[0])
"""
WAITS = """
import torch
one, graph = torch.ones(4, device="cuda"), torch.cuda.CUDAGraph()
try:
    with torch.cuda.graph(graph):
        one.sum().item()
except torch.AcceleratorError as error:
    print(str(error).splitlines()[0])
"""


def test_a_graph_that_reads_what_the_device_took_back_ends_the_process(emulated: Any) -> None:
    """As an illegal access does: at the replay, and at every call behind it."""
    done = emulated("-c", ENDED)
    assert done.stdout.splitlines() == ["CUDA error: cudaErrorAssert"] * 2, done.stderr
    assert "the device has taken them back" in done.stderr


def test_torch_says_that_a_capture_waited(emulated: Any) -> None:
    """Host code alone is enough for that; values, and child processes with values, are where they are asked for."""
    done = emulated("-c", WAITS, values=False)
    assert done.stdout == "CUDA error: cudaErrorStreamCaptureInvalidated\n", done.stderr
    assert "cudaStreamSynchronize: cudaErrorStreamCaptureUnsupported" in done.stderr
    child = "import torch; print(torch.arange(3, device='cuda').add(1).tolist())"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    said = [emulated("-c", parent, values=with_values).stdout for with_values in (True, False)]
    assert said == ["[1, 2, 3]\n", "[0, 0, 0]\n"]


def test_random_numbers_follow_the_devices_seed(values: None) -> None:
    """They are those of the CPU with the same seed, whose own go on as if none had been drawn; a graph goes on drawing."""
    import torch

    torch.manual_seed(1)
    wanted = torch.rand(2, 4).tolist()
    torch.manual_seed(1)
    assert [torch.rand(4, device="cuda").tolist() for _ in range(2)] == torch.rand(2, 4).tolist() == wanted
    given = torch.Generator("cuda")
    assert torch.rand(2, 4, device="cuda", generator=given.manual_seed(1)).tolist() == wanted
    graph, out = captured(lambda: torch.rand(4, device="cuda"))
    graph.replay()
    first = out.tolist()
    graph.replay()
    assert first != out.tolist()


def test_every_generator_goes_on_where_it_was(values: None) -> None:
    """Each of two, drawn from in turn, wherever Python objects happen to lie meanwhile."""
    import torch

    given, others = ([torch.Generator(kind).manual_seed(seed) for seed in (3, 4)] for kind in ("cuda", "cpu"))
    held = []
    for _ in range(3):
        for one, other in zip(given, others, strict=True):
            drawn = torch.empty(8, device="cuda").exponential_(generator=one).tolist()
            assert drawn == torch.empty(8).exponential_(generator=other).tolist()
            held += [torch.Generator() for _ in range(64)]  # where an object made for the draw has been


def test_a_kernel_in_triton_is_compiled_once_and_computed_within_graphs(values: None, device: Any) -> None:
    """The walk over the vocabulary; for logits of another type it is compiled anew."""
    import torch

    from harness.decoding.fused_walk import walk
    from harness.decoding.sampling import TorchFigures

    def loaded() -> list[str]:
        return [name for name in device.compiled() if name in ("_tile", "_merge")]

    logits = torch.randn(2, 3, 160, device="cuda")
    graph, (tokens, entropy, *_) = captured(lambda: walk(logits, 1.0, True))
    before = len(loaded())
    assert before and device.nodes(graph) == ["_tile", "_merge"]
    for _ in range(2):
        graph.replay()
        wanted = TorchFigures(logits.cpu(), 1.0)
        assert torch.equal(tokens.cpu(), wanted.tokens)
        torch.testing.assert_close(entropy.cpu(), wanted.entropy)
        logits.normal_()
    walk(logits, 1.0, True)
    assert len(loaded()) == before
    walk(logits.half(), 1.0, True)
    assert len(loaded()) > before


@pytest.mark.filterwarnings("ignore:TensorFloat32")
def test_what_torch_compile_writes_is_computed_within_graphs(values: None, device: Any) -> None:
    """A norm, a product and an activation: two kernels of its own around cuBLAS's."""
    import torch
    from torch.nn.functional import rms_norm, silu

    def forward(hidden: Any, weight: Any, scale: Any) -> Any:
        gate, up = (rms_norm(hidden, (64,), scale) @ weight).chunk(2, dim=-1)
        return silu(gate) * up

    shapes = ((3, 64), (64, 96), (64,))
    for dtype, most in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2)):
        given = [torch.randn(shape, dtype=dtype, device="cuda") for shape in shapes]
        compiled = torch.compile(forward, dynamic=False)
        graph, out = captured(partial(compiled, *given))
        first, product, last = device.nodes(graph)
        assert product.startswith("cublas") and "triton" in first and "triton" in last
        for _ in range(2):
            graph.replay()
            wanted = forward(*(one.cpu().double() for one in given))
            assert float((out.cpu() - wanted).norm() / wanted.norm()) < most
            given[0].normal_()


def test_the_management_library_answers_as_an_h100s() -> None:
    """GPM too: two samples as far apart as the meter asks for."""
    from harness.meters.nvml import GpmMeter, library

    nvml = library()
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetName(handle) == "NVIDIA H100 80GB HBM3"
    assert [one.pid for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle)] == [os.getpid()]
    meter = GpmMeter(nvml, handle, time.monotonic)
    meter.open()
    time.sleep(2.05)
    assert meter.close()["dram_bandwidth_pct"] == 61.5


def test_values_are_there_where_torch_was_looked_for_first(emulated):
    """As transformers does before it imports it."""
    looked = "from importlib.util import find_spec; find_spec('torch')"
    words = f"{looked}; import torch; print(torch.ones(6, device='cuda').sum().item())"
    assert emulated("-c", words).stdout == "6.0\n"
