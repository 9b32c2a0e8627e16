"""A survey of a machine's ceilings, without any model: what `sbd calibrate` measures, in which order and within which time.

Kernels and clock belong to a TorchBench. Every curve keeps the points that were left out, with
the reason. Derives no ceiling and writes no file.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any

from harness import __version__
from harness.hardware.figures import BEYOND_CACHE, MeasuredCeilings, MeasuredCurve, MeasuredDtype, MeasuredFigure, MeasuredPoint
from harness.meters.calibration import (
    FOUR_GIB,
    REPEATS_MIN,
    SAMPLER_ROWS,
    SAMPLER_VOCAB,
    STREAMED_BYTES_MAX,
    STREAMING_TOKENS,
    attention_flops_per_s,
    best_read,
    fixed_cost,
    median_s,
    streaming_s_per_byte,
    times_s,
)
from harness.meters.torch_bench import TorchBench
from harness.progress import Progress

TOKENS = tuple(2**n for n in range(13))
SMALLEST_BUFFER, BUFFER_STEP = 2**22, 4
ROOM = 1.25
"""So many times its size must be free before a buffer is allocated."""
RUNS_AT_LEAST = 2 + REPEATS_MIN
"""Runs that one point of a matrix curve takes: one to warm up, one to see how long it takes, and the repeats."""


def survey(
    open_bench: Callable[[str], AbstractContextManager[TorchBench]],
    dtypes: Sequence[MeasuredDtype],
    budget_s: float,
    progress: Progress,
) -> MeasuredCeilings:
    """Measure every ceiling; the matrix rates of each dtype take about ``budget_s`` seconds, and larger m are left out.

    ``open_bench`` makes a bench for a dtype.
    The read rate, the copy rate, the fixed cost and the sampler are measured once, in the first dtype.
    """
    with open_bench(dtypes[0]) as bench:
        words, sizes = _Words(bench), buffer_sizes(bench.last_level_cache_bytes())
        per_dtype = [
            label
            for dtype in dtypes
            for label in [f"matrix {dtype}"] * len(TOKENS) + [f"attention {dtype}", f"streaming {dtype}"]
        ]
        in_memory = ["filling memory"] + ["read"] * len(sizes) + ["copy"] * len(sizes)
        progress.start(["fixed cost", "sampler", *per_dtype, *in_memory])
        shared = words.identity | _beside_arithmetic(bench, words, progress)
    curves: dict[str, dict[MeasuredDtype, MeasuredCurve]] = {
        "matrix_flops_per_s": {},
        "attention_flops_per_s": {},
        "streaming_s_per_byte": {},
    }
    for dtype in dtypes:
        with open_bench(dtype) as bench:
            points = _matrix(bench, budget_s, f"matrix {dtype}", progress)
            curves["matrix_flops_per_s"][dtype] = words.curve(
                "median product of m tokens and a weight kept in the cache", points
            )
            if reached := [MeasuredPoint(at=at, value=rate) for at, rate in attention_flops_per_s(bench) or ()]:
                how = "median attention, m queries a KV head, keys and values kept in the cache"
                curves["attention_flops_per_s"][dtype] = words.curve(how, reached)
            progress.advance(f"attention {dtype}")
            curves["streaming_s_per_byte"][dtype] = words.curve(
                "median linear layer over weights from memory", _streaming(bench)
            )
            progress.advance(f"streaming {dtype}")
    with open_bench(dtypes[0]) as bench:  # last: forwards are slower in a process that has had gigabytes of buffers
        shared |= _memory_curves(bench, sizes, words, progress)
    return MeasuredCeilings(**shared, **curves)


def _beside_arithmetic(bench: TorchBench, words: _Words, progress: Progress) -> dict[str, MeasuredFigure]:
    """What a pass costs besides bytes and flops, and what the system says of the device."""
    per_pass_s, per_layer_s, why = fixed_cost(bench)
    progress.advance("fixed cost")
    sampler_s = median_s(bench, bench.sampler(SAMPLER_ROWS, SAMPLER_VOCAB)) / (SAMPLER_ROWS * SAMPLER_VOCAB)
    progress.advance("sampler")
    how = why or f"one-token passes of random Llama shapes of width 64 and different depth, {bench.engine}"
    cache, memory = bench.last_level_cache_bytes(), bench.memory_bytes()
    return {
        "fixed_s_per_pass": words.figure(per_pass_s, how),
        "fixed_s_per_layer": words.figure(per_layer_s, how),
        "sampler_s_per_logit": words.figure(sampler_s, f"softmax, entropy, argmax of {SAMPLER_ROWS} x {SAMPLER_VOCAB} logits"),
        "cache_bytes": words.figure(cache, "last-level cache, as the system reports it" if cache else "the system tells none"),
        "memory_bytes": words.figure(memory, "memory, as the system reports it" if memory else "the system tells none"),
    }


class _Words:
    """Who measured, where and when: the source of every figure."""

    def __init__(self, bench: TorchBench) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self.identity: dict[str, Any] = {
            "device_name": bench.device_name,
            "device": bench.device,
            "threads": bench.threads,
            "multiprocessors": bench.multiprocessors(),
            "measured_at": now,
            "program_version": __version__,
            "torch_version": bench.torch_version,
            "engine": bench.engine,
            "load_1min": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
            "fixed_hidden": bench.fixed_hidden,
        }
        threads = "" if bench.threads is None else f", {bench.threads} threads"
        self._where = f"on {bench.device_name} ({bench.device}{threads}) by sbd {__version__}, torch {bench.torch_version}"
        self._now = now

    def curve(self, how: str, points: Sequence[MeasuredPoint]) -> MeasuredCurve:
        return MeasuredCurve(points=tuple(points), source=f"{how}; {self._where}", grade="R", date=self._now)

    def figure(self, value: float | None, how: str) -> MeasuredFigure:
        return MeasuredFigure(value=value, source=f"{how}; {self._where}", grade="R", date=self._now)


def buffer_sizes(cache_bytes: int | None) -> tuple[int, ...]:
    """4 MiB, 16 MiB, … to the first that reaches 4 GiB and four times the last-level cache."""
    sizes = [SMALLEST_BUFFER]
    while sizes[-1] < max(FOUR_GIB, BEYOND_CACHE * (cache_bytes or 0)):
        sizes.append(sizes[-1] * BUFFER_STEP)
    return tuple(sizes)


def _memory_curves(bench: TorchBench, sizes: Sequence[int], words: _Words, progress: Progress) -> dict[str, MeasuredCurve]:
    """Read and copy rate by buffer size, as far as memory goes; a copy needs two buffers."""
    free = bench.available_bytes()
    bench.reserve(max((need for size in sizes for need in (size, 2 * size) if need * ROOM <= free), default=SMALLEST_BUFFER))
    progress.advance("filling memory")

    def points(label: str, buffers: int, rate: Callable[[int], float]) -> Iterator[MeasuredPoint]:
        for size in sizes:
            if buffers * size * ROOM > free:
                progress.skip(label)
                yield MeasuredPoint(at=size, value=None, reason=_no_room(buffers * size, free))
            else:
                yield MeasuredPoint(at=size, value=rate(size))
                progress.advance(label)

    read = list(points("read", 1, lambda size: best_read(bench, size).bytes_per_s))
    copied = list(points("copy", 2, lambda size: 2 * size / min(times_s(bench, bench.copy_kernel(size)))))
    return {
        "read_bytes_per_s": words.curve("best of a sum and a matrix-vector product over a buffer, one call each", read),
        "copy_bytes_per_s": words.curve("best copy within a buffer, bytes read and bytes written counted", copied),
    }


def _no_room(needed_bytes: int, free_bytes: int) -> str:
    return f"{ROOM * needed_bytes / 2**30:.2f} GiB must be free for it, {free_bytes / 2**30:.2f} GiB are"


def _matrix(bench: TorchBench, budget_s: float, label: str, progress: Progress) -> list[MeasuredPoint]:
    """Matrix rates from m = 1 upwards; a point is left out if its smaller neighbour predicts too little time for it."""
    points: list[MeasuredPoint] = []
    left_s, known_s, known_tokens = budget_s, 0.0, 1
    for tokens in TOKENS:
        expected_s = RUNS_AT_LEAST * known_s * tokens / known_tokens
        if expected_s > left_s:
            reason = f"skipped: about {expected_s:.1f} s expected, {max(left_s, 0):.1f} s left of {budget_s:g} s"
            points.append(MeasuredPoint(at=tokens, value=None, reason=reason))
            progress.skip(label)
            continue
        kernel, flops = bench.resident_linear(tokens)
        known_s, known_tokens = bench.seconds(kernel, 1)[0], tokens
        times = times_s(bench, kernel, known_s)
        left_s -= 2 * known_s + sum(times)
        points.append(MeasuredPoint(at=tokens, value=flops / statistics.median(times)))
        progress.advance(label)
    return points


def _streaming(bench: TorchBench) -> list[MeasuredPoint]:
    free = bench.available_bytes()
    if free < ROOM * STREAMED_BYTES_MAX:
        reason = _no_room(STREAMED_BYTES_MAX, free)
        return [MeasuredPoint(at=tokens, value=None, reason=reason) for tokens in STREAMING_TOKENS]
    bench.reserve(STREAMED_BYTES_MAX)
    return [MeasuredPoint(at=at, value=value) for at, value in streaming_s_per_byte(bench, STREAMED_BYTES_MAX)]
