"""A bench of kernels with known durations."""

from __future__ import annotations

from harness.meters.torch_bench import Kernel

GIB = 1 << 30
MODEL = 500_000_000


class FakeBench:
    """A machine that reads 20 GB/s (60 GB/s below ``cache_bytes``), multiplies at 1e11 * m^0.5, and overlaps by 0.4."""

    device_name, device, engine, threads, torch_version, fixed_hidden = "Fake 9000", "cpu", "fake, eager", 2, "2.0", False

    def __init__(self, free: int = 20 * GIB, cache_bytes: int = 0, layer_s: float = 0.0002) -> None:
        self.free, self.cache_bytes, self.layer_s = free, cache_bytes, layer_s
        self.planned: dict[Kernel, float] = {}
        self.reserved: list[int] = []
        self.runs = 0

    def _kernel(self, duration_s: float) -> Kernel:
        def run() -> None: ...

        self.planned[run] = duration_s
        return run

    def available_bytes(self) -> int:
        return self.free

    def reserve(self, size_bytes: int) -> None:
        self.reserved.append(size_bytes)

    def _bandwidth(self, size_bytes: int) -> float:
        return 60e9 if size_bytes <= self.cache_bytes else 20e9

    def read_kernels(self, size_bytes: int) -> dict[str, Kernel]:
        seconds = size_bytes / self._bandwidth(size_bytes)
        return {"slow": self._kernel(2 * seconds), "fast": self._kernel(seconds)}

    def streaming_linear(self, size_bytes: int, tokens: int) -> tuple[Kernel, int]:
        sides = (size_bytes / 20e9, size_bytes * tokens / (1e11 * tokens**0.5))
        return self._kernel(max(sides) + 0.6 * min(sides)), size_bytes

    def resident_linear(self, tokens: int) -> tuple[Kernel, int]:
        return self._kernel(1e9 * tokens / (1e11 * tokens**0.5)), 1_000_000_000 * tokens

    def resident_attention(self, queries: int) -> tuple[Kernel, int]:
        return self._kernel(1e9 * queries / (4e10 * queries**0.25)), 1_000_000_000 * queries

    def sampler(self, rows: int, vocab: int) -> Kernel:
        return self._kernel(rows * vocab * 1e-9)

    def decode_step_times_s(self, layers: int, steps: int) -> list[float]:
        return [0.001 + layers * self.layer_s] * (steps - 1) + [9.0]

    def seconds(self, kernel: Kernel, repeats: int, warm_up: bool = True) -> list[float]:
        """Every fifth run is disturbed and takes four times as long: medians and minima must not see it."""
        self.runs += repeats
        return [self.planned[kernel] * (4 if (self.runs - i) % 5 == 0 else 1) for i in range(repeats)]
