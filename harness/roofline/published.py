"""Tables 3 and 4 of the paper (arXiv 2509.04185v1) as published, to three decimals.

Knows only the figures in the two files beside it; what they come from is harness.roofline.paper's affair.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path


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
