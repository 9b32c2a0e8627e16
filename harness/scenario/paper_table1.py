"""Table 1 of the paper (arXiv 2509.04185v1): published NFE speedups that a replayed arm may name.

The figures are in paper_table1.csv beside it.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import Literal

BaseModelName = Literal["llama-3.1-8b", "qwen-3-8b"]
Sampling = Literal["sbd_gamma_low", "sbd_gamma_high"]

_FILE = Path(__file__).with_name("paper_table1.csv")


@cache
def _speedups() -> dict[tuple[str, str, str], float]:
    with _FILE.open(encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["sampling"] != "ntp"]
    return {(row["base_model"], row["task"], row["sampling"]): float(row["nfe_speedup"]) for row in rows}


def tasks_of() -> tuple[str, ...]:
    """The tasks of Table 1, in its order."""
    return tuple(dict.fromkeys(task for _, task, _ in _speedups()))


def nfe_speedup(base_model: str, task: str, sampling: str) -> float:
    """Published NFE speedup (k = 16) of one cell.

    Raises:
        KeyError: no such cell; scenario files are checked before.
    """
    return _speedups()[base_model, task, sampling]
