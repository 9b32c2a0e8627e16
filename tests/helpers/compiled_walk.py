"""Run in a process without Triton's interpreter: compile the fused kernels for an H100, which takes no GPU.

TRITON_INTERPRET=0 python -m tests.helpers.compiled_walk
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from harness.decoding import fused_walk
from harness.engine import fused_merge
from harness.meters.host import GraphMeter

HOPPER = GPUTarget("cuda", 90, 32)
SIZES = ("row_stride", "position_stride", "figures", "count", "positions", "vocabulary", "tiles")
KERNELS = [
    (fused_walk._tile, {"SEVERAL": 1, "TILE": 4096}, fused_walk.WARPS),
    (fused_walk._tile, {"SEVERAL": 4, "TILE": 1024}, 8),
    (fused_walk._merge, {"NO_TOKEN": -2, "SEVERAL": 2, "TILES": 32}, 1),
    (fused_walk._merge, {"NO_TOKEN": -2, "SEVERAL": 64, "TILES": 1}, 1),
]


def types(logits: str, wide: str) -> dict[str, str]:
    """Of every argument of both kernels."""
    figures = {"tokens": "*i64", "entropy": f"*{wide}", "confidence": "*fp64", "margin": "*fp64"}
    return {"logits": f"*{logits}", "partial": f"*{wide}", "best": "*i32", "temperature": "fp32"} | figures


def walks() -> None:
    """Of one type and one tile: one position or many, dense rows or not, sizes and addresses that 16 divides or not."""
    for rows, positions, vocabulary, first in itertools.product((1, 3), (1, 5, 16), (1008, 1001), (0, 1)):
        logits = torch.zeros(rows, first + positions, vocabulary, dtype=torch.bfloat16)
        fused_walk.walk(logits[:, first:], 1.0, second=False)


def merges() -> None:
    """Of three pieces of few and of many queries."""
    for queries, groups in ((1, 1), (7, 2), (16, 8)):
        outs, lses = torch.zeros(12 * queries, groups, 80, dtype=torch.bfloat16), torch.zeros(groups, 12 * queries)
        fused_merge.merge(outs, lses, torch.zeros(12 * queries, dtype=torch.bool), copies=3, shared=4)


def compiled_by(work: Callable[[], None]) -> float:
    """Kernels that a window's meter finds compiled by ``work``, on a GPU that compiles and launches nothing."""
    driver.set_active(
        SimpleNamespace(get_current_target=lambda: HOPPER, get_current_device=lambda: 0, get_current_stream=lambda device: 0)
    )
    run = JITFunction.run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            JITFunction, "run", lambda self, *given, grid, warmup, **fixed: run(self, *given, grid=grid, warmup=True, **fixed)
        )
        meter = GraphMeter({"stats": {"unique_graphs": 0}})
        meter.open()
        work()
        return meter.close()["compiled_graphs"]


def main() -> None:
    """Print the kernels compiled, in every type; then how many a window of walks finds, and one of merges."""
    made = 0
    for logits, wide in (("bf16", "fp32"), ("fp32", "fp32"), ("fp64", "fp64")):
        for (kernel, shape, warps), second in itertools.product(KERNELS, (True, False)):
            fixed = shape | {"SECOND": second}
            given = types(logits, wide) | dict.fromkeys(SIZES, "i32") | dict.fromkeys(fixed, "constexpr")
            names = kernel.arg_names
            source = ASTSource(
                kernel,
                {name: given[name] for name in names},
                {(names.index(name),): value for name, value in fixed.items() if name in names},
            )
            made += len(triton.compile(source, target=HOPPER, options={"num_warps": warps}).asm["ptx"]) > 0
    print(made, compiled_by(walks), compiled_by(merges))


if __name__ == "__main__":
    main()
