"""Run in a process without Triton's interpreter: compile the fused walk's kernels for an H100, which takes no GPU.

TRITON_INTERPRET=0 python -m tests.helpers.compiled_walk
"""

from __future__ import annotations

import itertools

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from harness.decoding import fused_walk

HOPPER = GPUTarget("cuda", 90, 32)
SIZES = ("row_stride", "position_stride", "figures", "count", "positions", "vocabulary", "tiles")
KERNELS = [
    (fused_walk._tile, {"SEVERAL": 1, "TILE": 4096}, fused_walk.WARPS), (fused_walk._tile, {"SEVERAL": 4, "TILE": 1024}, 8),
    (fused_walk._merge, {"NO_TOKEN": -2, "SEVERAL": 2, "TILES": 32}, 1),
    (fused_walk._merge, {"NO_TOKEN": -2, "SEVERAL": 64, "TILES": 1}, 1),
]  # fmt: skip


def types(logits: str, wide: str) -> dict[str, str]:
    """Of every argument of both kernels."""
    figures = {"tokens": "*i64", "entropy": f"*{wide}", "confidence": "*fp64", "margin": "*fp64"}
    return {"logits": f"*{logits}", "partial": f"*{wide}", "best": "*i32", "temperature": "fp32"} | figures


def main() -> None:
    """Print the kernels compiled, in every type, with sizes as numbers and where they are 1, which Triton makes constants."""
    made = 0
    for logits, wide in (("bf16", "fp32"), ("fp32", "fp32"), ("fp64", "fp64")):
        for (kernel, shape, warps), second, ones in itertools.product(KERNELS, (True, False), (False, True)):
            fixed = shape | {"SECOND": second} | (dict.fromkeys(SIZES[2:], 1) if ones else {})
            given = types(logits, wide) | dict.fromkeys(SIZES, "i32") | dict.fromkeys(fixed, "constexpr")
            names = kernel.arg_names
            source = ASTSource(
                kernel, {name: given[name] for name in names},
                {(names.index(name),): value for name, value in fixed.items() if name in names},
            )  # fmt: skip
            made += len(triton.compile(source, target=HOPPER, options={"num_warps": warps}).asm["ptx"]) > 0
    print(made)


if __name__ == "__main__":
    main()
