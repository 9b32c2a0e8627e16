"""The raw numbers: one row per sample of the record, as it was taken, for a table that sorts and filters.

Reads harness.frames; computes nothing and leaves nothing out: warm-ups and void samples are rows, and say so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.frames import RunFrames
from harness.record import Run

TEXT = ("part", "task", "arm", "state")
HEADS: dict[str, str] = {
    "part": "Part", "task": "Task", "batch_size": "Batch", "arm": "Arm", "process": "Process", "group": "Group",
    "repeat": "Repeat", "state": "State", "prompts": "Prompts", "output_tokens": "Output tokens", "passes": "Passes",
    "prefill_s": "Prefill (s)", "decode_s": "Decode (s)", "forward_s": "Forwards (s)", "sampler_s": "Sampler (s)",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RawTable:
    """Column names (of harness.frames), their heads, which of them are text, and the rows as text."""

    names: tuple[str, ...]
    heads: tuple[str, ...]
    text: frozenset[str]
    rows: list[tuple[str, ...]]


def raw_frame(run: Run) -> pd.DataFrame:
    """The samples as the table shows them, unrounded; a column that no sample fills is left out."""
    frame = RunFrames(run).samples
    frame["state"] = _states(frame)
    return frame[list(HEADS)].dropna(axis=1, how="all")


def raw_table(frame: pd.DataFrame) -> RawTable:
    """``frame`` (of raw_frame) as text: counts whole, times with six significant digits, what is missing as none."""
    names = tuple(map(str, frame.columns))
    columns = [list(map(_writer(frame[name]), frame[name])) for name in names]
    rows = list(zip(*columns, strict=True))
    return RawTable(names=names, heads=tuple(HEADS[name] for name in names), text=frozenset(TEXT), rows=rows)


def _states(frame: pd.DataFrame) -> list[str]:
    """What became of each sample: kept, warm-up, void (with the rules it broke) or not timed."""
    told = []
    for warmup, void, decode_s in zip(frame["warmup"], frame["void"], frame["decode_s"], strict=True):
        state = "not timed" if pd.isna(decode_s) else "kept"
        if isinstance(void, str):
            state = f"void: {void}"
        told.append(f"warm-up, {state}" if warmup else state)
    return told


def _writer(column: pd.Series[Any]) -> Callable[[Any], str]:
    if column.dtype.kind == "f":
        return lambda value: "none" if value != value else f"{value:.6g}"
    return str
