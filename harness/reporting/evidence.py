"""What the figures rest on: machine, health of the samples, states of processes, raw numbers, and the data as downloads.

The raw numbers are one row per sample of the record, for a table that sorts and filters. Warm-ups and void samples are rows
with their state. Above MOST_ROWS samples, those of one case, process and state are added up.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from harness import formatting
from harness.analysis.frames import RunFrames
from harness.analysis.results import Comparison
from harness.frozen import frozen
from harness.record.schema import Run
from harness.record.store import EVENTS
from harness.record.written import Environment, Happened

PACKED = 6
"""Compression level, of nine; level 9 takes three times as long for 1 % less."""
LONGEST_PLAIN = 60_000
"""Bytes of a file; a longer one is compressed, so that the page stays small."""
LONGEST_LINK = 1_500_000
"""Characters; a browser cuts addresses, data URLs too, at two million."""


@frozen
class Download:
    """A file inside the page, as a data URL; ``href`` is None where it is too long for one."""

    name: str
    about: str
    href: str | None
    bytes: int


def downloads(name: str, data: dict[str, Any], samples: pd.DataFrame) -> list[Download]:
    """The derived values (the JSON form of a comparison) as JSON and as a table of arms, and the raw samples."""
    plain = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return [
        download(f"{name}.comparison.json", "every derived value with interval and reason", "application/json", plain),
        download(f"{name}.arms.csv", "one row per arm and cell, unrounded", "text/csv", arms_csv(data)),
        download(f"{name}.samples.csv", "the raw numbers below, unrounded", "text/csv", as_csv(samples)),
    ]


def download(name: str, about: str, media_type: str, text: str) -> Download:
    """``text`` as a file of this name; a long one is compressed (gzip), as its name then says."""
    body = text.encode()
    if len(body) > LONGEST_PLAIN:
        name, media_type, body = f"{name}.gz", "application/gzip", gzip.compress(body, PACKED, mtime=0)
    link = f"data:{media_type};base64,{base64.b64encode(body).decode('ascii')}"
    return Download(name=name, about=about, href=link if len(link) <= LONGEST_LINK else None, bytes=len(body))


def arms_csv(data: dict[str, Any]) -> str:
    """Every arm of a comparison (in JSON form), unrounded, one row per arm and cell."""
    keys = ("part", "task", "batch_size", "model", "dtype", "device")
    rows = [{key: cell[key] for key in keys} | arm for cell in data["cells"] for arm in cell["arms"]]
    if not rows:
        return ""
    dropped = ["predictions", "final_tokens_histogram", "case_ids"]
    return as_csv(pd.json_normalize(rows).drop(columns=dropped).dropna(axis=1, how="all"))


def as_csv(frame: pd.DataFrame) -> str:
    """A table as CSV, its texts and heads by ``csv_cell``."""
    plain = frame.apply(lambda column: column if column.dtype.kind in "iufb" else column.map(formatting.csv_cell))
    return str(plain.rename(columns=formatting.csv_cell).to_csv(index=False))


def facts(environment: Environment) -> list[tuple[str, str]]:
    """The snapshot of the machine as names and text; a None is shown with its reason."""
    reasons = environment.get("reasons") or {}
    return [(name, _fact(value, reasons.get(name))) for name, value in environment.items() if name != "reasons"]


def _fact(value: Any, reason: str | None) -> str:
    if value is None:
        return f"none: {reason or 'no reason recorded'}"
    said = str(value)
    if isinstance(value, dict):
        said = ", ".join(f"{key} {inner}" for key, inner in value.items())
    elif isinstance(value, list):
        said = ", ".join(map(str, value))
    return f"{said} ({reason})" if reason else said


def health(comparison: Comparison) -> Sequence[str]:
    """Per part, and per arm with void samples: timed samples, void samples, and the rule that voided them.

    Before them, the parts whose processes were not measured with the same.
    """
    lines = [f"{mix.part}: {words}" for mix in comparison.mixes for words in (mix.why_void, mix.weakness) if words]
    for part in comparison.health:
        rules = "".join(f"; {words} ({times})" for words, times in part.reasons.items())
        lines.append(f"{part.part}: {part.timed} timed samples, {part.void} void{rules}")
        lines += [
            f"{cell.part}, {cell.size_words}, {arm.label}: {arm.voids.words}"
            for cell in comparison.cells
            if cell.part == part.part and cell.is_summary
            for arm in cell.arms
            if arm.voids and arm.voids.void
        ]
    return lines


State = Mapping[str, object]
NOT_STATES = ("measured_passes", "token_texts")
"""Events that hold data of the figures above, not a state of a process."""
WHOSE = ("part", "process", "pid", "taken_at", "ended_at")
"""Keys that name a process or a moment; two states that differ in nothing else are equal."""


def states(sessions: Sequence[Happened]) -> list[State]:
    """What the processes recorded, by event and node: the first whole, of later ones what differs, and how many are equal."""
    kinds: dict[tuple[str, str], list[Happened]] = {}
    for entry in sessions:
        kinds.setdefault((str(entry.get("event")), str(entry.get("node"))), []).append(entry)
    return [_of_one_kind(entries) for entries in kinds.values()]


def _of_one_kind(entries: Sequence[Happened]) -> State:
    first, *later = entries
    if first.get("event") in NOT_STATES:
        return {"event": first["event"], "recorded": len(entries), "where": f"{EVENTS} of the run's directory"}
    if not later:
        return first
    differences = [_difference(first, entry) for entry in later]
    differing = [one for one in differences if not one.keys() <= set(WHOSE)]
    last = [] if differing[-1:] == differences[-1:] else differences[-1:]
    return {
        "states": len(entries),
        "equal to the first": len(later) - len(differing),
        "first": first,
        "later": differing + last,
    }


def _difference(first: State, entry: State) -> dict[str, object]:
    """Whose ``entry`` is, and its values that differ from those of ``first``."""
    absent = "not recorded"
    keys = [key for key in {**first, **entry} if key in WHOSE or first.get(key, absent) != entry.get(key, absent)]
    return {key: entry.get(key, absent) for key in keys}


def pretty(value: Any) -> str:
    """JSON for reading."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


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
    """The samples as the table shows them, unrounded; a column that no sample fills is left out.

    The state of a sample: kept, warm-up, void (with the rules it broke) or not timed.
    """
    frame, states = RunFrames(run).samples, list[str]()
    for warmup, void, decode_s in zip(frame["warmup"], frame["void"], frame["decode_s"], strict=True):
        state = f"void: {void}" if isinstance(void, str) else "not timed" if pd.isna(decode_s) else "kept"
        states.append(f"warm-up, {state}" if warmup else state)
    frame["state"] = states
    return frame[list(HEADS)].dropna(axis=1, how="all")


def raw_table(frame: pd.DataFrame) -> dict[str, object]:
    """``frame`` (of raw_frame) as text: whole counts, times with six significant digits, missing values as none.

    Column names (of harness.analysis.frames), their heads, which of them are text, and the rows. ``samples``: how many the
    table covers. ``summed``: a row is the sum over a case, process and state.
    """
    samples, summed = len(frame), len(frame) > MOST_ROWS
    if summed:  # one row for all samples of a case, process and state: their count and the sums of their numbers
        numbers = [name for name in frame.columns if name not in (*ALIKE, "group", "repeat")]
        grouped = frame.groupby([name for name in ALIKE if name in frame.columns], observed=True, sort=False, dropna=False)
        frame = grouped[numbers].sum(min_count=1)
        frame.insert(0, "samples", grouped.size())
        frame = frame.reset_index()
    names = tuple(map(str, frame.columns))
    columns = [
        ["none" if value != value else f"{value:.6g}" for value in column]
        if column.dtype.kind == "f"
        else list(map(str, column))
        for column in (frame[name] for name in names)
    ]
    rows = list(zip(*columns, strict=True))
    heads = tuple("Samples" if name == "samples" else HEADS[name] for name in names)
    return {"names": names, "heads": heads, "text": TEXT, "rows": rows, "samples": samples, "summed": summed}
