"""The paper's own roofline model (arXiv 2509.04185v1, section 4, fig. 11, eq. 16), digit for digit, and Tables 3 and 4.

``as_printed`` keeps two faults of the printed code, because the published Tables 3 and 4 come from exactly it. The FFN's
inner width is hidden * 16384 where 16384 is meant. The K/V projections are heads * kv_heads = 256 wide where head_dim *
kv_heads = 1024 is meant. ``corrected`` changes these two dimensions only. The bandwidth (3.35 * 1024^4, 10 % above the
part's), the missing gate, LM head, launches and sampler stay as in the paper. harness.roofline.pricing repairs them.

The published tables, to three decimals, are the two files beside this module. ``paper_tables`` and ``side_by_side`` give the
computed ones for the command line and ``--json``.
"""

from __future__ import annotations

import csv
from functools import cache
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

    def time_s(query_tokens: int) -> float:
        return layer_s(query_tokens, batch_size, kv_length, mode)

    passes = block_size / nfe_speedup
    return block_size * time_s(1) / (time_s(2 * block_size) + (passes - 1) * time_s(block_size))


def table3_rows(mode: PaperMode) -> list[dict[str, float]]:
    """The 224 cells of Table 3: ``batch_size``, ``kv_length``, ``block_size``, ``slowdown``."""
    return [
        {"batch_size": b, "kv_length": kv, "block_size": k, "slowdown": slowdown(b, kv, k, mode)}
        for b in BATCH_SIZES
        for kv in KV_LENGTHS
        for k in BLOCK_SIZES
    ]


def table4_rows(mode: PaperMode) -> list[dict[str, float]]:
    """The 288 cells of Table 4: ``batch_size``, ``nfe_speedup``, ``kv_length``, ``block_size``, ``wall_speedup``."""
    return [
        {"batch_size": b, "nfe_speedup": x, "kv_length": kv, "block_size": k, "wall_speedup": wall_speedup(b, kv, k, x, mode)}
        for b in SPEEDUP_BATCH_SIZES
        for x in NFE_SPEEDUPS
        for kv in KV_LENGTHS
        for k in SPEEDUP_BLOCK_SIZES
    ]


def paper_rows(mode: PaperMode) -> list[dict[str, float]]:
    """All 512 cells: Table 3 first (rows with ``slowdown``), then Table 4 (rows with ``wall_speedup``)."""
    return table3_rows(mode) + table4_rows(mode)


@cache
def published_slowdowns() -> dict[tuple[int, int, int], float]:
    """Table 3: (batch size, KV length, block size) to time(k) / time(1), 224 cells."""
    return {
        (int(row["batch_size"]), int(row["kv_length"]), int(row["block_size"])): float(row["slowdown"])
        for row in _rows("paper_table3.csv")
    }


@cache
def published_speedups() -> dict[tuple[int, int, int, int], float]:
    """Table 4: (batch size, KV length, block size, NFE speedup) to the wall speedup, 288 cells."""
    return {
        (int(row["batch_size"]), int(row["kv_length"]), int(row["block_size"]), int(row["nfe_speedup"])): float(row["speedup"])
        for row in _rows("paper_table4.csv")
    }


def _rows(name: str) -> list[dict[str, str]]:
    with Path(__file__).with_name(name).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


TABLES_VERSION = 1


def paper_tables(mode: PaperMode) -> dict[str, Any]:
    """``{"version", "mode", "table3": rows with ``slowdown``, "table4": rows with ``wall_speedup``}``."""
    return {"version": TABLES_VERSION, "mode": mode, "table3": table3_rows(mode), "table4": table4_rows(mode)}


def side_by_side() -> dict[str, Any]:
    """As ``paper_tables`` in mode ``both``: the printed figure under its name, beside it ``<name>_corrected``."""
    return {
        "version": TABLES_VERSION,
        "mode": "both",
        "table3": _joined(table3_rows("as_printed"), table3_rows("corrected"), "slowdown"),
        "table4": _joined(table4_rows("as_printed"), table4_rows("corrected"), "wall_speedup"),
    }


def _joined(printed: list[dict[str, float]], corrected: list[dict[str, float]], figure: str) -> list[dict[str, float]]:
    return [{**left, f"{figure}_corrected": right[figure]} for left, right in zip(printed, corrected, strict=True)]
