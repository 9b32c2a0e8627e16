"""The raw numbers: one row per sample of the record, for a table that sorts and filters.

It reads harness.analysis.frames; warm-ups and void samples are rows with their state. Above MOST_ROWS samples, those of one
case, process and state are added up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from harness.analysis.frames import RunFrames
from harness.record.schema import Run

MOST_ROWS = 12_000
"""A browser sorts as many at once; more make the page too large for a mail."""
TEXT = ("part", "task", "arm", "state")
ALIKE = ("part", "task", "batch_size", "arm", "process", "state")
"""Columns that added-up samples share."""
HEADS: dict[str, str] = {
    "part": "Part",
    "task": "Task",
    "batch_size": "Batch",
    "arm": "Arm",
    "process": "Process",
    "group": "Group",
    "repeat": "Repeat",
    "state": "State",
    "prompts": "Prompts",
    "output_tokens": "Output tokens",
    "passes": "Passes",
    "prefill_s": "Prefill (s)",
    "decode_s": "Decode (s)",
    "forward_s": "Forwards (s)",
    "sampler_s": "Sampler (s)",
}


def raw_frame(run: Run) -> pd.DataFrame:
    """The samples as the table shows them, unrounded; a column that no sample fills is left out."""
    frame = RunFrames(run).samples
    frame["state"] = _states(frame)
    return frame[list(HEADS)].dropna(axis=1, how="all")


def raw_table(frame: pd.DataFrame) -> dict[str, Any]:
    """``frame`` (of raw_frame) as text: whole counts, times with six significant digits, missing values as none.

    Column names (of harness.analysis.frames), their heads, which of them are text, and the rows. ``samples``: how many the
    table covers. ``summed``: a row is the sum over a case, process and state.
    """
    samples, summed = len(frame), len(frame) > MOST_ROWS
    if summed:
        frame = _added_up(frame)
    names = tuple(map(str, frame.columns))
    columns = [list(map(_writer(frame[name]), frame[name])) for name in names]
    rows = list(zip(*columns, strict=True))
    heads = tuple("Samples" if name == "samples" else HEADS[name] for name in names)
    return {"names": names, "heads": heads, "text": TEXT, "rows": rows, "samples": samples, "summed": summed}


def _added_up(frame: pd.DataFrame) -> pd.DataFrame:
    """One row for all samples of a case, process and state: their count and the sums of their numbers."""
    numbers = [name for name in frame.columns if name not in (*ALIKE, "group", "repeat")]
    grouped = frame.groupby([name for name in ALIKE if name in frame.columns], observed=True, sort=False, dropna=False)
    found = grouped[numbers].sum(min_count=1)
    found.insert(0, "samples", grouped.size())
    return found.reset_index()


def _states(frame: pd.DataFrame) -> list[str]:
    """The state of each sample: kept, warm-up, void (with the rules it broke) or not timed."""
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
