"""The paper's own roofline model (arXiv 2509.04185v1, section 4, fig. 11, eq. 16), digit for digit, and Tables 3 and 4.

``as_printed`` keeps two faults of the printed code, because the published Tables 3 and 4 come from exactly it. The FFN's
inner width is hidden * 16384 where 16384 is meant. The K/V projections are heads * kv_heads = 256 wide where head_dim *
kv_heads = 1024 is meant. ``corrected`` changes these two dimensions only. The bandwidth (3.35 * 1024^4, 10 % above the
part's), the missing gate, LM head, launches and sampler stay as in the paper. harness.roofline.pricing repairs them.

The published tables, to three decimals, are the two files beside this module. ``paper_tables`` gives the computed ones.
"""

from __future__ import annotations

import csv
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

from harness.errors import UserError

PaperMode = Literal["as_printed", "corrected"]

PEAK_FLOPS_PER_S = 1978e12
ATTENTION_PEAK_FLOPS_PER_S = 989e12
BANDWIDTH_BYTES_PER_S = 3.35 * 1024**4
HIDDEN = 4096
FFN = 4 * HIDDEN
HEADS = 32
HEAD_DIM = 128
KV_HEADS = 8

# The grid of the published tables.
BATCH_SIZES = (1, 4, 8, 16)
KV_LENGTHS = (16, 256, 1024, 4096, 16384, 65536, 1048576, 4194304)
BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64)
SPEEDUP_BATCH_SIZES = (1, 4, 8)
SPEEDUP_BLOCK_SIZES = (8, 16, 32, 64)
NFE_SPEEDUPS = (2, 4, 8)


def _roofline_s(bytes_: float, flops: float, peak_flops_per_s: float) -> float:
    return max(bytes_ / BANDWIDTH_BYTES_PER_S, flops / peak_flops_per_s)


def _gemm_s(m: int, n: int, k: int) -> float:
    """An m x k by k x n product with one byte per element."""
    return _roofline_s(m * k + n * k + m * n, 2 * m * n * k, PEAK_FLOPS_PER_S)


def _attention_s(tokens: int, batch_size: int, kv_length: int) -> float:
    q_and_output = 2 * tokens * HEADS * HEAD_DIM
    k_and_v = 2 * batch_size * kv_length * KV_HEADS * HEAD_DIM
    return _roofline_s(q_and_output + k_and_v, 4 * tokens * kv_length * HEADS * HEAD_DIM, ATTENTION_PEAK_FLOPS_PER_S)


def layer_s(query_tokens: int, batch_size: int, kv_length: int, mode: PaperMode) -> float:
    """Seconds of one layer in one pass of ``query_tokens`` per row (Fig. 11): attention, Q and O, K and V, FFN up and down.

    Raises:
        UserError: the mode is neither ``as_printed`` nor ``corrected``.
    """
    if mode not in get_args(PaperMode):
        raise UserError(f"the paper's model has the modes {', '.join(get_args(PaperMode))}; given was {mode!r}")
    ffn, kv_width = (HIDDEN * FFN, HEADS * KV_HEADS) if mode == "as_printed" else (FFN, HEAD_DIM * KV_HEADS)
    m = batch_size * query_tokens
    linear = (
        2 * _gemm_s(m, HIDDEN, HIDDEN) + 2 * _gemm_s(m, kv_width, HIDDEN) + _gemm_s(m, ffn, HIDDEN) + _gemm_s(m, HIDDEN, ffn)
    )
    return _attention_s(m, batch_size, kv_length) + linear


def slowdown(batch_size: int, kv_length: int, block_size: int, mode: PaperMode) -> float:
    """time(k) / time(1): what a pass over a block costs, in passes over one token (Table 3)."""
    return layer_s(block_size, batch_size, kv_length, mode) / layer_s(1, batch_size, kv_length, mode)


def wall_speedup(batch_size: int, kv_length: int, block_size: int, nfe_speedup: float, mode: PaperMode) -> float:
    """k * time(1) / (time(2k) + (l - 1) * time(k)) with l = k / NFE speedup passes per block (eq. 16, Table 4)."""
    ntp_s, first_s, later_s = (layer_s(tokens, batch_size, kv_length, mode) for tokens in (1, 2 * block_size, block_size))
    return block_size * ntp_s / (first_s + (block_size / nfe_speedup - 1) * later_s)


def _table3(mode: PaperMode) -> list[dict[str, float]]:
    return [
        {"batch_size": b, "kv_length": kv, "block_size": k, "slowdown": slowdown(b, kv, k, mode)}
        for b, kv, k in product(BATCH_SIZES, KV_LENGTHS, BLOCK_SIZES)
    ]


def _table4(mode: PaperMode) -> list[dict[str, float]]:
    return [
        {"batch_size": b, "nfe_speedup": x, "kv_length": kv, "block_size": k, "wall_speedup": wall_speedup(b, kv, k, x, mode)}
        for b, x, kv, k in product(SPEEDUP_BATCH_SIZES, NFE_SPEEDUPS, KV_LENGTHS, SPEEDUP_BLOCK_SIZES)
    ]


TABLES_VERSION = 1


def paper_tables(mode: PaperMode | None) -> dict[str, Any]:
    """``{"version", "mode", "table3": 224 rows with ``slowdown``, "table4": 288 rows with ``wall_speedup``}``.

    Without a mode (``both`` in the answer) the printed figure stands under its name, beside it ``<name>_corrected``.
    """
    tables = {"table3": _table3(mode or "as_printed"), "table4": _table4(mode or "as_printed")}
    if mode is None:
        corrected = paper_tables("corrected")
        for name, figure in (("table3", "slowdown"), ("table4", "wall_speedup")):
            for row, other in zip(tables[name], corrected[name], strict=True):
                row[f"{figure}_corrected"] = other[figure]
    return {"version": TABLES_VERSION, "mode": mode or "both", **tables}


@cache
def published_slowdowns() -> dict[tuple[int, ...], float]:
    """Table 3: (batch size, KV length, block size) to time(k) / time(1), 224 cells."""
    return _published("paper_table3.csv", "slowdown", "batch_size", "kv_length", "block_size")


@cache
def published_speedups() -> dict[tuple[int, ...], float]:
    """Table 4: (batch size, KV length, block size, NFE speedup) to the wall speedup, 288 cells."""
    return _published("paper_table4.csv", "speedup", "batch_size", "kv_length", "block_size", "nfe_speedup")


def _published(file: str, figure: str, *axes: str) -> dict[tuple[int, ...], float]:
    with Path(__file__).with_name(file).open(encoding="utf-8", newline="") as lines:
        return {tuple(int(row[axis]) for axis in axes): float(row[figure]) for row in csv.DictReader(lines)}
