"""A second roofline, written from the models' config files and the devices' data sheets, beside the program's own.

    python -m benchmarks.second_roofline

The second one shares no code with the first: shapes and rates are typed again, layers are walked one by one, masks are counted
query by query. It knows matrix products, attention, KV cache and LM head. It takes half of the shorter of memory and arithmetic
on top of the longer, as an overlap that nobody measured. It leaves out what is small: activations, norms, sampler.

Every cell of six models on five devices is priced by both. Where they differ by more than 1 %, the program is asked again with
activations that all stay on the chip: if the difference is gone, they were the cause. What is left is counted as unexplained.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks.results_file import write_results
from harness.hardware.profile import load_profile
from harness.models import KNOWN_SHAPES
from harness.roofline.ceilings import Ceilings, ceilings_from_profile
from harness.roofline.operation import PassCounts
from harness.roofline.pricing import price_counts

TOLERANCE = 0.01
BYTES = 2
"""Of a weight, an activation and an element of the cache: bfloat16 throughout."""


@dataclass(frozen=True)
class Config:
    """As config.json has it.

    ``window``: of all layers but every ``full_every``-th. ``experts``: (how many, per token, width, dense layers before them,
    shared width). ``latent``: (q rank, KV rank, nope, rope, value width) of a head.
    """

    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head: int
    vocab: int
    window: int | None = None
    full_every: int = 1
    experts: tuple[int, int, int, int, int] | None = None
    latent: tuple[int, int, int, int, int] | None = None


MODELS = {
    "llama-3.1-8b": Config(32, 4096, 14336, 32, 8, 128, 128256),
    "llama-3.1-70b": Config(80, 8192, 28672, 64, 8, 128, 128256),
    "qwen3-8b": Config(36, 4096, 12288, 32, 8, 128, 151936),
    "qwen3-30b-a3b": Config(48, 2048, 6144, 32, 4, 128, 151936, experts=(128, 8, 768, 0, 0)),
    "deepseek-v3": Config(
        61, 7168, 18432, 128, 128, 192, 129280, experts=(256, 8, 2048, 3, 2048), latent=(1536, 512, 128, 64, 128)
    ),
    "gemma-3-27b": Config(62, 5376, 21504, 32, 16, 128, 262208, window=1024, full_every=6),
}

# Dense bfloat16 FLOP/s and bytes/s of the makers' data sheets. (B200: most pages say 8.0 TB/s, which makes passes bound by
# memory 3.9 % faster; the data sheet that the shipped profile cites says 7.7.)
DEVICES = {
    "h100-sxm": (989.4e12, 3.35e12),
    "h200-sxm": (989.4e12, 4.8e12),
    "b200-sxm": (2250e12, 7.7e12),
    "a100-80-sxm": (312e12, 2.039e12),
    "mi300x": (1307.4e12, 5.3e12),
}


@dataclass(frozen=True)
class Cell:
    """``rows`` of ``query`` tokens each after ``context`` cached ones, logits at ``logits`` of them; a prefill is causal."""

    rows: int
    query: int
    context: int
    logits: int
    causal: bool = False
    kept: int = 0


CELLS = {
    "ntp_1": Cell(1, 1, 4096, 1, kept=1),
    "ntp_32": Cell(32, 1, 4096, 1, kept=32),
    "ntp_8_at_100k": Cell(8, 1, 100_000, 1, kept=8),
    "block_16_later_1": Cell(1, 16, 4096, 16),
    "block_16_first_8": Cell(8, 32, 4080, 16, kept=8 * 16),
    "block_16_later_64": Cell(64, 16, 4096, 16),
    "prefill_2048": Cell(1, 2048, 0, 1, causal=True, kept=2048),
    "prefill_100k": Cell(1, 100_000, 0, 1, causal=True, kept=100_000),
    "chunk_2048_at_32k": Cell(1, 2048, 32_768, 0, causal=True, kept=2048),
}


def parts(model: Config, cell: Cell) -> Iterator[tuple[float, float]]:
    """(flops, bytes) of every product and every attention of every layer, and of the LM head."""
    lines = cell.rows * cell.query
    for layer in range(model.layers):
        weights = projections(model)
        yield 2.0 * lines * sum(weights[:-1]), BYTES * sum(weights[:-1])
        yield attention(model, cell, layer)
        yield 0.0, cell.kept * cache_width(model) * BYTES
        yield 2.0 * lines * weights[-1], BYTES * weights[-1]
        if model.experts is None or layer < model.experts[3]:
            network = 3 * model.hidden * model.inner
            yield 2.0 * lines * network, BYTES * network
            continue
        count, chosen, width, _, shared = model.experts
        yield 2.0 * lines * model.hidden * count, BYTES * model.hidden * count
        missed = 1.0
        for _ in range(lines):  # a token misses an expert with probability 1 - chosen / count
            missed *= 1 - chosen / count
            if missed < 1e-18:
                break
        one = 3 * model.hidden * width
        yield 2.0 * lines * chosen * one, BYTES * count * (1 - missed) * one
        if shared:
            yield 2.0 * lines * 3 * model.hidden * shared, BYTES * 3 * model.hidden * shared
    if cell.logits:
        yield 2.0 * cell.rows * cell.logits * model.hidden * model.vocab, BYTES * model.hidden * model.vocab


def projections(model: Config) -> list[int]:
    """Weights of a layer's projections, the output's last."""
    if model.latent is None:
        kv = model.hidden * model.kv_heads * model.head
        return [model.hidden * model.heads * model.head, kv, kv, model.heads * model.head * model.hidden]
    q_rank, rank, nope, rope, value = model.latent
    return [
        model.hidden * q_rank,
        q_rank * model.heads * (nope + rope),
        model.hidden * (rank + rope),
        rank * model.heads * (nope + value),
        model.heads * value * model.hidden,
    ]


def cache_width(model: Config) -> int:
    """Elements that a token adds to the cache of a layer."""
    return 2 * model.kv_heads * model.head if model.latent is None else model.latent[1] + model.latent[3]


def attention(model: Config, cell: Cell, layer: int) -> tuple[float, float]:
    """(flops, bytes) of the attention of one layer."""
    window = None if model.window is None or (layer + 1) % model.full_every == 0 else model.window
    pairs = 0
    for place in range(cell.query):
        before = cell.context + (place if cell.causal else cell.query - 1)  # keys beside the query's own
        if window is None:
            pairs += before + 1
        elif cell.causal:
            pairs += min(before + 1, window)
        else:  # a block sees all of itself, and as much of the cache as is kept
            pairs += min(cell.context, window - 1) + cell.query
    cached = cell.context if window is None else min(cell.context, window - 1)
    moved = float(cell.rows * cached * cache_width(model) * BYTES)
    if model.latent is None:
        return 4.0 * cell.rows * pairs * model.heads * model.head, moved
    _, rank, nope, rope, value = model.latent
    in_latent_space = 2.0 * pairs * model.heads * (2 * rank + rope)
    made_again = 2.0 * pairs * model.heads * (nope + rope + value) + 2.0 * cell.context * rank * model.heads * (nope + value)
    if not cell.context:
        return cell.rows * 2.0 * pairs * model.heads * (nope + rope + value), moved
    return cell.rows * (min(in_latent_space, made_again) if cell.causal else in_latent_space), moved


def priced(model: str, ceilings: Ceilings, cell: Cell) -> float:
    """The program's own seconds."""
    counts = PassCounts(
        rows=cell.rows, query=cell.query, context=cell.context, logits=cell.logits, kept=cell.kept, causal=cell.causal
    )
    return price_counts(KNOWN_SHAPES[model], "bfloat16", counts, ceilings).expected_s


def compare() -> Iterator[tuple[str, str, str, float, float]]:
    """(model, device, cell, program ÷ second roofline, the same with all activations on the chip)."""
    for model, config in MODELS.items():
        walked = {name: list(_summed(parts(config, cell))) for name, cell in CELLS.items()}
        for device, rates in DEVICES.items():
            own = ceilings_from_profile(load_profile(device), "bfloat16")
            on_chip = replace(own, cache_bytes=1e18)
            for name, cell in CELLS.items():
                second = sum(count * seconds(part, rates) for part, count in walked[name])
                yield model, device, name, priced(model, own, cell) / second, priced(model, on_chip, cell) / second


def seconds(part: tuple[float, float], rates: tuple[float, float]) -> float:
    """Of (flops, bytes) at (FLOP/s, bytes/s): the longer, and half of the shorter."""
    compute, memory = part[0] / rates[0], part[1] / rates[1]
    return max(compute, memory) + min(compute, memory) / 2


def _summed(found: Iterator[tuple[float, float]]) -> Iterator[tuple[tuple[float, float], int]]:
    """Layers are walked once for all devices: equal parts with their number."""
    counted: dict[tuple[float, float], int] = {}
    for part in found:
        counted[part] = counted.get(part, 0) + 1
    return iter(counted.items())


def main() -> None:
    """Compare, print, write."""
    rows = list(compare())
    apart = [row for row in rows if abs(row[3] - 1) > TOLERANCE]
    unexplained = [row for row in apart if abs(row[4] - 1) > TOLERANCE]
    by_cell: dict[str, list[float]] = {}
    for _, _, name, ratio, _ in rows:
        by_cell.setdefault(name, []).append(ratio - 1)
    for name, errors in by_cell.items():
        print(f"{name:18} {100 * min(errors):+.2f} % to {100 * max(errors):+.2f} %")
    for model, device, name, ratio, on_chip in apart:
        cause = "activations" if abs(on_chip - 1) <= TOLERANCE else "UNEXPLAINED"
        print(f"{model:15} {device:12} {name:18} {100 * (ratio - 1):+.2f} %, on the chip {100 * (on_chip - 1):+.2f} %: {cause}")
    figures = {
        "cells": len(rows),
        "above_1_pct": len(apart),
        "unexplained": len(unexplained),
        "largest_pct": round(100 * max(abs(row[3] - 1) for row in rows), 2),
        "largest_on_the_chip_pct": round(100 * max(abs(row[4] - 1) for row in rows), 2),
    }
    print(figures)
    print(write_results("second_roofline", figures))


if __name__ == "__main__":
    main()
