"""The two operations of a gated adapter that work on some columns alone, and a kernel for the first of them.

To a compiler each is one operation that it cannot look into. It would else fuse the sum with what follows, and in half
precision round the tokens beside the adapter in other places than without one. Axes: B rows, Q fed tokens, r rank.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import warnings
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch
from torch import Tensor, nn

from harness.paths import cache_dir

SOURCE = Path(__file__).with_suffix(".cpp")
COLUMNS, DEPTH, RANKS = 64, 32, 4
"""The kernel takes outputs, inputs and ranks that are multiples of these."""


def add_low_rank(out: Tensor, input: Tensor, down: Tensor, up: Tensor, start: int, end: int) -> None:
    """Add up down x to the columns ``start`` to ``end`` of ``out`` (B, Q, out), for x of ``input`` (B, Q, in); ``down`` is
    (r, in), ``up`` (out, r).
    """
    of_columns = input[:, start:end].to(down.dtype).flatten(0, 1)
    more = nn.functional.linear(nn.functional.linear(of_columns, down), up)
    out[:, start:end].add_(more.view(out.shape[0], end - start, -1))


def put_row(ids: Tensor, mask_id: int, row: int, start: int, end: int) -> None:
    """Write ``row`` over the masks in the columns ``start`` to ``end`` of ``ids`` (B, Q)."""
    of_block = ids[:, start:end]
    of_block.masked_fill_(of_block == mask_id, row)


_LIBRARY: Any = cast(Any, torch.library.Library)("sbd", "DEF")  # carries no types
_TERM = "(Tensor(a!) out, Tensor input, Tensor down, Tensor up, SymInt start, SymInt end) -> ()"
_LIBRARY.define(f"add_low_rank{_TERM}")
_LIBRARY.define(f"add_packed{_TERM}")  # harness/engine/low_rank.cpp
_LIBRARY.define("put_row(Tensor(a!) ids, SymInt mask_id, SymInt row, SymInt start, SymInt end) -> ()")
for _work in (add_low_rank, put_row):
    _LIBRARY.impl(_work.__name__, _work, "CompositeExplicitAutograd")
for _name in ("add_low_rank", "add_packed", "put_row"):
    torch.library.register_fake(f"sbd::{_name}", lambda *arguments: None, lib=_LIBRARY)


def packed(down: Tensor, up: Tensor) -> tuple[Tensor, Tensor] | None:
    """Both matrices as the kernel reads them, in bfloat16; None where it cannot take them."""
    rank, depth = down.shape
    if down.device.type != "cpu" or rank % RANKS or depth % DEPTH or up.shape[0] % COLUMNS:
        return None
    return down.bfloat16().contiguous(), up.bfloat16().view(-1, COLUMNS, rank).transpose(1, 2).contiguous()


@cache
def kernel_loaded() -> bool:
    """Build the kernel once per machine and load it; False, with a warning, where no compiler builds it."""
    compiler = os.environ.get("CXX", "g++")
    before, behind = _flags()
    made = hashlib.sha256(repr([SOURCE.read_text(), compiler, before, behind, torch.__version__]).encode()).hexdigest()[:16]
    library = cache_dir() / "kernels" / f"low_rank-{made}.so"
    try:
        if not library.exists():
            library.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(dir=library.parent) as directory:
                half = Path(directory) / library.name
                command = [compiler, *before, str(SOURCE), "-o", str(half), *behind]
                subprocess.run(command, check=True, capture_output=True, text=True)
                half.replace(library)
        cast(Any, torch.ops).load_library(library)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        warnings.warn(f"{SOURCE.name} was not built, so adapters take torch's slower products: {said[-300:]}", stacklevel=2)
        return False
    return True


def _flags() -> tuple[list[str], list[str]]:
    """What stands before the source and, libraries, behind it."""
    from torch.utils.cpp_extension import include_paths, library_paths  # imports setuptools, which takes a second

    level = {"AVX512": ["-march=x86-64-v4"], "AVX2": ["-march=x86-64-v3"]}.get(torch.backends.cpu.get_cpu_capability(), [])
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    include = [f"-I{path}" for path in include_paths()]
    return (
        ["-O3", *level, "-std=c++20", "-shared", "-fPIC", "-fopenmp", "-DAT_PARALLEL_OPENMP=1", abi, *include],
        [*(f"-L{path}" for path in library_paths()), "-lc10", "-ltorch_cpu"],
    )
