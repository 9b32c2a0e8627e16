"""A stand-in for libnvidia-ml: C functions by name, called by the real pynvml with its own ctypes arguments.

One GPU whose memory moves bytes and whose time passes only when told to. Behaves as nvml.h documents: return codes, output
by reference, GPM samples as opaque snapshots of counters, each metric with a code of its own. A function it lacks is, to
pynvml, one that the installed driver lacks.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pynvml

OK, INVALID, NOT_SUPPORTED, NO_PERMISSION = 0, 2, 3, 4
UUID, DRAM_BW_UTIL = b"GPU-1234", 10


class FakeLibrary:
    """``numbers`` and ``texts``: what the getter of that name yields; ``refused``: the code a function returns instead."""

    def __init__(self, peak_bytes_per_s: float = 4e12, gpm: bool = True) -> None:
        self.peak_bytes_per_s, self.gpm = peak_bytes_per_s, gpm
        self.now_s, self.moved_bytes = 0.0, 0.0
        self.refused: dict[str, int] = {}
        self.refused_metrics: dict[int, int] = {}
        self.calls: list[str] = []
        self.numbers: dict[str, tuple[int, ...]] = {}
        self.texts: dict[str, bytes] = {}
        self._snapshots: dict[int, tuple[float, float]] = {}
        self._buffers: list[Any] = []

    def stream(self, bytes_: float, seconds: float) -> None:
        """Let the GPU move so many bytes in so much time."""
        self.moved_bytes += bytes_
        self.now_s += seconds

    def __getattr__(self, name: str) -> Callable[..., int]:
        own = getattr(type(self), f"_{name}", None)
        if not name.startswith("nvml") or (own is None and name not in self.numbers and name not in self.texts):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if name in self.refused:
                return self.refused[name]
            if own is not None:
                return own(self, *arguments)
            return self._yield(name, arguments)

        return call

    def _yield(self, name: str, arguments: tuple[Any, ...]) -> int:
        """Fill the arguments that take the answer: references for numbers, a buffer for a text."""
        if name in self.texts:
            buffer = next(one for one in arguments if isinstance(one, ctypes.Array))
            buffer.value = self.texts[name]
            return OK
        references = [one._obj for one in arguments if hasattr(one, "_obj")]
        for reference, number in zip(references, self.numbers[name], strict=True):
            reference.value = number
        return OK

    def _nvmlInitWithFlags(self, flags: int) -> int:
        return OK

    def _nvmlShutdown(self) -> int:
        return OK

    def _nvmlDeviceGetHandleByUUID(self, uuid: Any, device: Any) -> int:
        return OK if uuid.value == UUID else INVALID

    def _nvmlDeviceGetHandleByIndex_v2(self, index: Any, device: Any) -> int:
        return OK if index.value == 0 else INVALID

    def _nvmlGpmQueryDeviceSupport(self, device: Any, support: Any) -> int:
        support._obj.isSupportedDevice = int(self.gpm)
        return OK

    def _nvmlGpmSampleAlloc(self, sample: Any) -> int:
        self._buffers.append(ctypes.create_string_buffer(8))
        ctypes.cast(sample, ctypes.POINTER(ctypes.c_void_p))[0] = ctypes.addressof(self._buffers[-1])
        return OK

    def _nvmlGpmSampleGet(self, device: Any, sample: Any) -> int:
        self._snapshots[_address(sample)] = self.now_s, self.moved_bytes
        return OK

    def _nvmlGpmMetricsGet(self, asked: Any) -> int:
        request = asked._obj
        if request.version != 1 or _address(request.sample1) == _address(request.sample2):
            return INVALID
        (start_s, before), (end_s, after) = (self._snapshots[_address(s)] for s in (request.sample1, request.sample2))
        if end_s <= start_s:  # sample1 is the earlier one
            return INVALID
        for metric in list(request.metrics)[: request.numMetrics]:
            metric.nvmlReturn = self.refused_metrics.get(metric.metricId, OK)
            metric.value = -1.0
            if metric.metricId == DRAM_BW_UTIL and metric.nvmlReturn == OK:
                metric.value = 100 * (after - before) / (end_s - start_s) / self.peak_bytes_per_s
        return OK


def _address(pointer: Any) -> int:
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0


def install(monkeypatch: Any, library: FakeLibrary) -> Any:
    """The real pynvml on top of ``library``."""
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return pynvml
