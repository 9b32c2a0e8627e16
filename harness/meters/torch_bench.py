"""The calibration's kernels and clock on torch: CPU by the wall clock, CUDA by events around replayed graphs. Called one
by one, small kernels take as long as their launches.

Weights are laid out as a transformer has them (matrices of a few MiB, used one after the other). So streaming them meets the
same caches and prefetchers as decoding does. This module decides no sizes and keeps no results.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Any, Self

from harness.errors import UserError
from harness.frozen import frozen
from harness.meters.clock import Clock, CudaClock, HostClock, cuda_index
from harness.meters.environment_host import available_host_bytes, cpu_name, last_level_cache_bytes, total_host_bytes

Kernel = Callable[[], object]
# Lines x columns of one weight matrix: 8 MiB in bf16 on a CPU, 64 MiB on a GPU, typical of the models timed there.
CPU_MATRIX = (4096, 1024)
CUDA_MATRIX = (8192, 4096)
# Small enough for the L2 cache of one CPU core, or of a GPU; large enough to keep the units busy.
CPU_RESIDENT = (512, 1024)
CUDA_RESIDENT = (4096, 2048)
ATTENTION = (8, 512, 64)  # KV heads x keys x head width
RESIDENT_TIMES = 16  # runs of a kernel whose operands stay in the cache: enough to outlast the clock's own cost
FIXED_COST_WIDTH = 64
PRODUCT_TOKENS = 64  # more are a prompt's, which torch reads in every engine


@frozen
class Stepping:
    """The engine that is measured: its name in words, its one-token passes of a model, and its attention. Query (B, G, m, D),
    keys and values (B, G, W, D). ``eager``: the host launches every kernel by itself. ``product``: of inputs (m, in) and
    weights (out, in), for m up to PRODUCT_TOKENS. ``sample``: of logits (n, V). None: as torch does it. ``capture``: makes what
    turns a kernel into its replay on a GPU.
    """

    engine: str
    eager: bool
    steps: Callable[[Any], Kernel]
    attend: Callable[[Any, Any, Any], Any]
    product: Callable[[Any, Any], Kernel] | None = None
    sample: Callable[[Any], object] | None = None
    capture: Callable[[], Callable[[Any], Kernel]] | None = None


class TorchBench:
    """Kernels on ``cpu``, ``cuda`` or ``cuda:N``; a context manager that gives back threads, memory and the current device.
    Buffers are bytes of weights in ``dtype``.

    ``clock`` and ``cuda`` (the module ``torch.cuda``) are handed in by tests.

    Raises:
        UserError: torch has no such dtype, or CUDA is asked for and not there.
    """

    def __init__(
        self, device: str, dtype: str, threads: int | None, stepping: Stepping, clock: Clock | None = None, cuda: Any = None
    ) -> None:
        import torch

        self._stepping = stepping
        self.engine = stepping.engine
        self._torch = torch
        self._cuda = torch.cuda if cuda is None else cuda
        found = getattr(torch, dtype, None)
        if not isinstance(found, torch.dtype):
            raise UserError(f"torch has no dtype {dtype!r}; use float32, bfloat16, float16 or float64")
        self._dtype, self._element_bytes = found, found.itemsize
        self.on_cuda = device.startswith("cuda")
        self._matrix = CUDA_MATRIX if self.on_cuda else CPU_MATRIX
        if self.on_cuda and not self._cuda.is_available():
            raise UserError(
                f"device {device!r} was asked for and torch sees no CUDA device; use device cpu, or check the driver"
            )
        self.device, self._index = device, cuda_index(device)
        self._clock = clock or (CudaClock(f"cuda:{self._index}", self._cuda) if self.on_cuda else HostClock())
        self.device_name = self._cuda.get_device_name(self._index) if self.on_cuda else cpu_name()
        self.torch_version = str(torch.__version__)
        self.fixed_hidden = self.on_cuda and stepping.eager  # what is captured launches nothing that could be waited for
        self._threads_before = torch.get_num_threads()
        self.threads = None if self.on_cuda else (threads or self._threads_before)
        self._buffer: Any = None

    def __enter__(self) -> Self:
        if self.on_cuda:  # events are recorded, and graphs captured, on the current one
            self._device_before = int(self._cuda.current_device())
            self._cuda.set_device(self._index)
        if self.threads is not None:
            self._torch.set_num_threads(self.threads)
        return self

    def __exit__(self, *_: object) -> None:
        self._torch.set_num_threads(self._threads_before)
        self._release()
        if self.on_cuda:
            self._cuda.set_device(self._device_before)

    def available_bytes(self) -> int:
        """Free memory of the device, or of the host (0 where the system does not tell: nothing large is tried)."""
        if self.on_cuda:
            return int(self._cuda.mem_get_info(self._index)[0])
        return available_host_bytes()

    def memory_bytes(self) -> int | None:
        """Memory of the device, or of the host; None where the system does not tell."""
        return int(self._cuda.mem_get_info(self._index)[1]) if self.on_cuda else total_host_bytes()

    def last_level_cache_bytes(self) -> int | None:
        """L2 of the device, or the host's last-level cache; None where the system does not tell."""
        if self.on_cuda:
            return int(getattr(self._cuda.get_device_properties(self._index), "L2_cache_size", 0)) or None
        return last_level_cache_bytes()

    def multiprocessors(self) -> int | None:
        """Of the GPU; None on a CPU."""
        return int(self._cuda.get_device_properties(self._index).multi_processor_count) if self.on_cuda else None

    def reserve(self, size_bytes: int) -> None:
        """The buffer that read and streaming kernels work on; replaces an earlier one. Random values, every page touched (an
        untouched page is read from one shared page of zeros).
        """
        self._release()
        elements = size_bytes // self._element_bytes
        pattern = self._random(min(elements, 1 << 20))
        self._buffer = self._torch.empty(elements, dtype=self._dtype, device=self.device)
        whole = elements // pattern.numel() * pattern.numel()
        self._buffer[:whole].view(-1, pattern.numel()).copy_(pattern)
        self._buffer[whole:].copy_(pattern[: elements - whole])

    def read_kernels(self, size_bytes: int) -> dict[str, Kernel]:
        """Kernels, by name, that read the first ``size_bytes`` of the buffer once: a sum over them seen as float32, and a
        matrix-vector product in the dtype itself.
        """
        torch, part = self._torch, self._buffer[: size_bytes // self._element_bytes]
        words = part[: part.numel() // 8 * 8].view(torch.float32)
        columns = min(self._matrix[1], part.numel())
        matrix = part[: part.numel() // columns * columns].view(-1, columns)
        vector = self._random(columns)
        product = partial(torch.mv, matrix, vector)
        return {"sum": self._replayed(words.sum), "matrix-vector": self._replayed(product)}

    def copy_kernel(self, size_bytes: int) -> Kernel:
        """The first ``size_bytes`` of the buffer, copied onto those after them."""
        count = size_bytes // self._element_bytes
        source, target = self._buffer[:count], self._buffer[count : 2 * count]
        return partial(target.copy_, source)

    def streaming_linear(self, size_bytes: int, tokens: int) -> tuple[Kernel, int]:
        """``tokens`` lines through every matrix of the buffer in turn; and the weight bytes that this reads."""
        lines, columns = self._matrix
        elements = min(size_bytes // self._element_bytes, self._buffer.numel())
        while lines > 64 and lines * columns > elements:  # a model smaller than one matrix
            lines //= 2
        count = max(1, elements // (lines * columns))
        columns = min(columns, elements // lines)
        weights = [self._buffer[i * lines * columns : (i + 1) * lines * columns].view(lines, columns) for i in range(count)]
        return self._products(tokens, weights), count * lines * columns * self._element_bytes

    def resident_linear(self, tokens: int) -> tuple[Kernel, int]:
        """The same small matrix again and again, so that it stays in the cache; and the flops."""
        lines, columns = CUDA_RESIDENT if self.on_cuda else CPU_RESIDENT
        weights = [self._random(lines, columns)] * RESIDENT_TIMES
        return self._products(tokens, weights), 2 * RESIDENT_TIMES * tokens * lines * columns

    def _products(self, tokens: int, weights: list[Any]) -> Kernel:
        """So many lines through one weight after the other."""
        own = self._stepping.product if tokens <= PRODUCT_TOKENS else None
        make = own or partial(partial, self._torch.nn.functional.linear)
        inputs = self._random(tokens, weights[0].shape[1])
        products = [make(inputs, weight) for weight in weights]

        def run() -> None:
            for product in products:
                product()

        return self._replayed(run)

    def resident_attention(self, queries: int) -> tuple[Kernel, int] | None:
        """The same few keys and values again and again, the queries of all heads that share a KV head together, without a mask;
        and the flops.

        None on a GPU, whose captured passes attend by another kernel.
        """
        if self.on_cuda:
            return None
        heads, keys, width = ATTENTION
        query, key, value = (self._random(1, heads, length, width) for length in (queries, keys, keys))
        attend = self._stepping.attend

        def run() -> None:
            for _ in range(RESIDENT_TIMES):
                attend(query, key, value)

        return run, 4 * RESIDENT_TIMES * heads * queries * keys * width

    def sampler(self, rows: int, vocab: int) -> Kernel:
        """What a decoder does with logits: probabilities, entropy in nats, argmax."""
        if self._stepping.sample is not None:
            return partial(self._stepping.sample, self._random(rows, vocab))
        torch = self._torch
        logits = torch.randn(rows, vocab, device=self.device)

        def run() -> None:
            log_probabilities = torch.log_softmax(logits, dim=-1)
            torch.linalg.vecdot(log_probabilities.exp(), log_probabilities)
            logits.argmax(dim=-1)

        return self._replayed(run)

    def decode_step_times_s(self, layers: int, steps: int) -> list[float]:
        """One-token forwards of a Llama of width 64 with a growing context, timed one by one by the host's clock."""
        from transformers import LlamaConfig, LlamaForCausalLM

        torch = self._torch
        config = LlamaConfig(
            hidden_size=FIXED_COST_WIDTH,
            intermediate_size=2 * FIXED_COST_WIDTH,
            num_hidden_layers=layers,
            num_attention_heads=2,
            num_key_value_heads=1,
            vocab_size=2 * FIXED_COST_WIDTH,
            max_position_embeddings=4096,
        )
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            model: Any = LlamaForCausalLM(config)
            step = self._stepping.steps(model.to(device=self.device, dtype=self._dtype).eval())
            for _ in range(5):
                step()
            times = []
            for _ in range(steps):
                self._clock.synchronise()
                start = self._clock.now_s()
                step()
                self._clock.synchronise()
                times.append(self._clock.now_s() - start)
            return times

    def seconds(self, kernel: Kernel, repeats: int, warm_up: bool = True) -> list[float]:
        """Duration of each of ``repeats`` runs, with ``warm_up`` after one run that is not counted: by CUDA events where there
        is a GPU, else by the host's clock.
        """
        with self._torch.inference_mode():
            if warm_up:
                kernel()
            self._clock.synchronise()
            if self.on_cuda:  # the device is busy while the host hands it the first mark and the runs
                kernel()
            marks = []
            for _ in range(repeats):
                start = self._clock.mark()
                kernel()
                marks.append((start, self._clock.mark()))
            self._clock.synchronise()
        return self._clock.spans_s(marks)

    def _replayed(self, kernel: Kernel) -> Kernel:
        """Each with a capture of its own, since kernels come and go and torch ends a pool with the last of its graphs."""
        return self._stepping.capture()(kernel) if self.on_cuda and self._stepping.capture else kernel

    def _random(self, *shape: int) -> Any:
        return self._torch.randn(shape, device=self.device).to(self._dtype)

    def _release(self) -> None:
        self._buffer = None
        gc.collect()
        if self.on_cuda:
            self._cuda.empty_cache()
