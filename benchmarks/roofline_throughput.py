"""How many roofline cells a second: one cell is the speedup of SBD over NTP at one batch, k, acceptance and context.

Each cell prices three passes (NTP, first and later of a block) in full. Measured on one core, without torch, on a million
cells drawn at random, so that no two axes share their work; the median over rounds counts.

    python -m benchmarks.roofline_throughput
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from typing import Any

# Before numpy is loaded: one core is what is claimed.
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import numpy as np

from benchmarks.results_file import write_results
from harness.hardware.profile import load_profile
from harness.models import KNOWN_SHAPES
from harness.roofline.ceilings import Ceilings, ceilings_from_profile
from harness.roofline.step import DecodeArm, price_three_steps

CELLS, ROUNDS = 1_000_000, 5
CELLS_AT_ONCE = 8192
"""Their arrays of intermediate results stay in a core's cache."""
DEVICES = ("h100-sxm", "h200-sxm", "b200-sxm", "a100-80-sxm", "mi300x")
MODELS = {"dense": "llama-3.1-8b", "experts": "qwen3-30b-a3b"}
CALIBRATED = Ceilings(
    rung="calibrated",
    device_name="made up",
    dtype="bfloat16",
    bandwidth_bytes_per_s=13e9,
    overlap=0.3,
    matrix_rates=tuple((2**n, 1e10 * 2 ** (0.7 * n)) for n in range(9)),
    fixed_s_per_pass=1e-3,
    sampler_s_per_logit=1e-9,
)


def sweep_s(model: str, ceilings: list[Ceilings]) -> float:
    """Seconds for a million cells of a model, spread evenly over the ceilings."""
    drawn, cells = np.random.default_rng(0), CELLS // len(ceilings)
    block_size = drawn.integers(1, 65, cells)
    axes: tuple[Any, ...] = (
        block_size.astype(float),
        drawn.uniform(1, block_size),
        drawn.integers(1, 257, cells).astype(float),
        drawn.integers(0, 131_073, cells).astype(float),
    )
    start = time.perf_counter()
    for roof in ceilings:
        for first in range(0, cells, CELLS_AT_ONCE):
            block, passes, rows, context = (axis[first : first + CELLS_AT_ONCE] for axis in axes)
            arm = DecodeArm(block_size=block, passes_per_block=passes)
            price_three_steps(KNOWN_SHAPES[model], "bfloat16", roof, arm, rows, context)
    return time.perf_counter() - start


def main() -> None:
    """Measure, print, write."""
    datasheet = [ceilings_from_profile(load_profile(device), "bfloat16") for device in DEVICES]
    cases = {name: (model, datasheet) for name, model in MODELS.items()} | {"calibrated": (MODELS["dense"], [CALIBRATED])}
    figures: dict[str, float] = {}
    for name, (model, ceilings) in cases.items():
        seconds = statistics.median(sweep_s(model, ceilings) for _ in range(ROUNDS))
        key = "cells_per_s" if name == "dense" else f"cells_per_s_{name}"
        figures[key] = round(CELLS / seconds)
        print(f"{name}: {CELLS:,} cells of {model} on {len(ceilings)} device(s) in {seconds:.2f} s, {figures[key]:,} cells/s")
    if "torch" in sys.modules:
        raise SystemExit("torch was loaded; pricing must not need it")
    print(write_results("roofline_throughput", figures))


if __name__ == "__main__":
    main()
