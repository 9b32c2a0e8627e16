"""A bench whose survey is known."""

from __future__ import annotations

from typing import Any

from harness.hardware.figures import MeasuredCeilings
from harness.meters.survey import survey
from harness.meters.torch_bench import Kernel
from harness.progress import Progress
from tests.helpers.fake_bench import GIB, FakeBench

MIB = 1 << 20


class SurveyedBench(FakeBench):
    """The fake machine of the calibration tests; it also copies at 5 GB/s (10 GB/s of traffic)."""

    def __init__(
        self, free: int = 40 * GIB, cache: int | None = 32 * MIB, memory: int = 64 * GIB, processors: int | None = None
    ) -> None:
        super().__init__(free=free)
        self.cache, self.memory, self.processors = cache, memory, processors

    def __enter__(self) -> SurveyedBench:
        return self

    def __exit__(self, *_: object) -> None: ...

    def memory_bytes(self) -> int | None:
        return self.memory

    def last_level_cache_bytes(self) -> int | None:
        return self.cache

    def multiprocessors(self) -> int | None:
        return self.processors

    def copy_kernel(self, size_bytes: int) -> Kernel:
        return self._kernel(size_bytes / 5e9)


def surveyed(bench: SurveyedBench | None = None, **options: Any) -> MeasuredCeilings:
    """A survey of a fake machine in bf16."""
    chosen = bench or SurveyedBench()
    return survey(lambda dtype: chosen, ["bfloat16"], options.get("budget_s", 60.0), options.get("progress", Progress()))
