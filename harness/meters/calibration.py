"""A short on-machine calibration, so that predictions rest on what this machine reaches and not on a datasheet.

It decides what is measured, at which sizes and how often, and returns the raw medians (of the read rate, the best). It keeps
one per machine, dtype, thread count, model size and engine, because measuring takes 15 s and more. Kernels and clock belong to
a TorchBench, a fake one in the tests. It derives no ceiling and knows no model but its size in bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.errors import StorageError, UserError
from harness.hardware.profile import BandwidthPoint, Calibration, DtypeRates
from harness.meters.environment_host import OtherLoad
from harness.meters.torch_bench import Kernel, Stepping, TorchBench
from harness.paths import cache_dir
from harness.record.regular_file import write_whole
from harness.roofline.ceilings import ceilings_from_calibration

STREAMING_TOKENS = (1, 2, 4, 8, 16, 32, 64)
RESIDENT_TOKENS = ATTENTION_QUERIES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
FOUR_GIB = 4 * 2**30
STREAMED_BYTES_MAX = 2**29  # keeps a large model's calibration short
DRAM_AGREEMENT = 0.05
KERNEL_BUDGET_S = 0.25
REPEATS_MIN, REPEATS_MAX = 3, 25
STREAMING_ROUNDS, RESIDENT_ROUNDS = 5, 9
FIXED_COST_LAYERS = (1, 4)  # few, for they may have to be compiled
FIXED_COST_STEPS = 40
SAMPLER_ROWS, SAMPLER_VOCAB = 16, 32000


def measure(bench: TorchBench, dtype: str, model_bytes: int) -> Calibration:
    """Run every kernel on ``bench``; times are medians, the read rate is the best reached."""
    others = OtherLoad()
    points, dram_bound, reason = _read_bandwidth(bench, model_bytes)
    streaming = streaming_s_per_byte(bench, min(model_bytes, STREAMED_BYTES_MAX))
    resident = _flops_per_s(bench, {tokens: bench.resident_linear(tokens) for tokens in RESIDENT_TOKENS})
    attention = attention_flops_per_s(bench)
    per_pass_s, per_layer_s, fixed_reason = fixed_cost(bench)
    sampler_s = median_s(bench, bench.sampler(SAMPLER_ROWS, SAMPLER_VOCAB))
    return Calibration(
        engine=bench.engine,
        device_name=bench.device_name,
        device=bench.device,
        threads=bench.threads,
        torch_version=bench.torch_version,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        load_1min=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        model_bytes=model_bytes,
        read_bandwidth=points,
        dram_bound=dram_bound,
        dram_bound_reason=reason,
        rates={dtype: DtypeRates(streaming=streaming, resident=resident, attention=attention)},
        fixed_s_per_pass=per_pass_s,
        fixed_s_per_layer=per_layer_s,
        fixed_reason=fixed_reason,
        fixed_hidden=bench.fixed_hidden,
        sampler_s_per_logit=sampler_s / (SAMPLER_ROWS * SAMPLER_VOCAB),
        disturbed=others.words,
    )


def median_s(bench: TorchBench, kernel: Kernel) -> float:
    """Median seconds of a kernel."""
    return statistics.median(times_s(bench, kernel))


def times_s(bench: TorchBench, kernel: Kernel, first_s: float | None = None) -> list[float]:
    """As many runs as fit the budget: many of a short kernel, three of a long one. ``first_s``: seconds of a run before them,
    None where it is still to be made.
    """
    first_s = bench.seconds(kernel, 1)[0] if first_s is None else first_s
    repeats = min(REPEATS_MAX, max(REPEATS_MIN, int(KERNEL_BUDGET_S / max(first_s, 1e-9))))
    return bench.seconds(kernel, repeats, warm_up=False)


def _read_bandwidth(bench: TorchBench, model_bytes: int) -> tuple[tuple[BandwidthPoint, ...], bool | None, str]:
    """Best read rate at the model's size and, where memory allows, at max(4 GiB, twice the model); are they the same?

    A model that comes out of a cache reads faster than the large buffer: then the rate is no memory ceiling.
    """
    large, free = max(FOUR_GIB, 2 * model_bytes), bench.available_bytes()
    fits = large * 1.25 <= free  # leave room for the model's owner
    bench.reserve(large if fits else model_bytes)
    small_point = best_read(bench, model_bytes)
    if not fits:
        reason = (
            f"not known: a buffer of {large / 2**30:.1f} GiB is needed beside the model and {free / 2**30:.1f} GiB are free, "
            "so it cannot be told memory from cache; shares of the ceiling are not claimed"
        )
        return (small_point,), None, reason
    large_point = best_read(bench, large, only=small_point.kernel)
    apart = abs(small_point.bytes_per_s / large_point.bytes_per_s - 1)
    rates = (
        f"{small_point.bytes_per_s / 1e9:.1f} GB/s at the model's {model_bytes / 2**20:.0f} MiB ({small_point.kernel}) and "
        f"{large_point.bytes_per_s / 1e9:.1f} GB/s at {large / 2**30:.1f} GiB ({large_point.kernel}), {100 * apart:.0f} % apart"
    )
    if apart <= DRAM_AGREEMENT:
        return (small_point, large_point), True, f"memory-bound: {rates}"
    return (small_point, large_point), False, f"not shown to be memory-bound, shares of the ceiling are not claimed: {rates}"


def best_read(bench: TorchBench, size_bytes: int, only: str | None = None) -> BandwidthPoint:
    """Read rate of the first ``size_bytes`` of the buffer.

    A ceiling is the best that was reached: the fastest run of the fastest kernel, not a median.
    """
    kernels = {name: kernel for name, kernel in bench.read_kernels(size_bytes).items() if only in (None, name)}
    rates = {name: size_bytes / min(times_s(bench, kernel)) for name, kernel in kernels.items()}
    best = max(rates, key=lambda name: rates[name])
    return BandwidthPoint(bytes_=size_bytes, bytes_per_s=rates[best], kernel=best)


def streaming_s_per_byte(bench: TorchBench, size_bytes: int) -> tuple[tuple[int, float], ...]:
    """(tokens m, median seconds per weight byte) of linear layers over the first ``size_bytes`` of the buffer."""
    made = {tokens: bench.streaming_linear(size_bytes, tokens) for tokens in STREAMING_TOKENS}
    return tuple((m, seconds / read) for m, seconds, read in _interleaved_medians_s(bench, made, STREAMING_ROUNDS))


def attention_flops_per_s(bench: TorchBench) -> tuple[tuple[int, float], ...] | None:
    """(queries m that share a KV head, FLOP/s) of attention, its keys and values in the cache; None: the bench has none."""
    made = {queries: bench.resident_attention(queries) for queries in ATTENTION_QUERIES}
    known = {queries: work for queries, work in made.items() if work is not None}
    return _flops_per_s(bench, known) if known else None


def _flops_per_s(bench: TorchBench, made: Mapping[int, tuple[Kernel, int]]) -> tuple[tuple[int, float], ...]:
    return tuple((m, flops / seconds) for m, seconds, flops in _interleaved_medians_s(bench, made, RESIDENT_ROUNDS))


def _interleaved_medians_s(
    bench: TorchBench, made: Mapping[int, tuple[Kernel, int]], rounds: int
) -> list[tuple[int, float, int]]:
    """(m, median seconds, bytes or flops) of kernels: round after round over all of them, so that a disturbance of the machine
    does not fall on one of them alone.
    """
    times_s: dict[int, list[float]] = {m: [] for m in made}
    for this_round in range(rounds):
        for m, (kernel, _) in made.items():
            times_s[m] += bench.seconds(kernel, 1, warm_up=this_round == 0)
    return [(m, statistics.median(times_s[m]), work) for m, (_, work) in made.items()]


def fixed_cost(bench: TorchBench) -> tuple[float | None, float | None, str | None]:
    """Slope and intercept of the step time over the number of layers of a model with next to no arithmetic."""
    few, many = FIXED_COST_LAYERS
    few_s = statistics.median(bench.decode_step_times_s(few, FIXED_COST_STEPS))
    many_s = statistics.median(bench.decode_step_times_s(many, FIXED_COST_STEPS))
    per_layer_s = (many_s - few_s) / (many - few)
    per_pass_s = few_s - few * per_layer_s
    if per_layer_s <= 0 or per_pass_s < 0:
        return None, None, f"{few} layers took {few_s:.2e} s a pass and {many} layers {many_s:.2e} s, which is no straight cost"
    return per_pass_s, per_layer_s, None


def load_or_calibrate(device: str, dtype: str, threads: int | None, model_bytes: int, stepping: Stepping) -> Calibration:
    """The cached calibration of this machine, dtype, thread count, model size and engine, or one measured now and cached.

    ``threads``: CPU threads, None for torch's default.
    """
    with TorchBench(device, dtype, threads, stepping) as bench:
        return cached_or_measured(bench, dtype, model_bytes, cache_dir())


def cached_calibration(
    device: str, dtype: str, threads: int | None, model_bytes: int, stepping: Stepping, known: Iterable[Any] = ()
) -> Calibration | None:
    """What ``load_or_calibrate`` would find cached, or that among ``known``, as a record has them, or None. No kernel runs, no
    buffer is made, no thread count is set.
    """
    bench = TorchBench(device, dtype, threads, stepping)
    if (cached := kept_at(_path(bench, dtype, model_bytes, cache_dir()), dtype)) is not None:
        return cached
    for recorded in known:
        with suppress(ValidationError):
            found = Calibration.model_validate(recorded)
            if _key(found, ",".join(found.rates), found.model_bytes) == _key(bench, dtype, model_bytes):
                return found
    return None


def cached_or_measured(bench: TorchBench, dtype: str, model_bytes: int, folder: Path) -> Calibration:
    """As ``load_or_calibrate`` on a given bench and folder. An unreadable or outdated file is measured again and replaced.

    What was measured while other programs ran is taken once more, and not cached if they still do: see Calibration.disturbed.
    """
    path = _path(bench, dtype, model_bytes, folder)
    if (cached := kept_at(path, dtype)) is not None:
        return cached
    calibration = measure(bench, dtype, model_bytes)
    if not _usable(calibration, dtype) or calibration.disturbed:  # measured once more
        calibration = measure(bench, dtype, model_bytes)
    if _usable(calibration, dtype) and calibration.disturbed is None:  # else only the record keeps it
        with suppress(OSError, StorageError):  # what cannot be cached is measured again by the next run
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, calibration.model_dump_json(indent=1).encode())
    return calibration


def _key(of: TorchBench | Calibration, dtype: str, model_bytes: int) -> list[Any]:
    version = Calibration.model_fields["version"].default
    key = [version, of.device_name, of.device, of.engine, of.threads, of.torch_version, dtype, model_bytes]
    return [*key, *["replayed"] * (of.device != "cpu")]


def _path(bench: TorchBench, dtype: str, model_bytes: int, folder: Path) -> Path:
    key = json.dumps(_key(bench, dtype, model_bytes))
    return folder / f"calibration-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"


def kept_at(path: Path, dtype: str) -> Calibration | None:
    """What is kept there, if ceilings for ``dtype`` follow from it."""
    with suppress(OSError, ValidationError, UnicodeDecodeError):
        cached = Calibration.model_validate_json(path.read_text(encoding="utf-8"))
        if _usable(cached, dtype):
            return cached
    return None


def _usable(calibration: Calibration, dtype: str) -> bool:
    """Whether ceilings follow from it."""
    with suppress(UserError):
        return bool(ceilings_from_calibration(calibration, dtype))
    return False
