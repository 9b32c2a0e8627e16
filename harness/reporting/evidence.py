"""The evidence under the page's figures: machine, versions, state, scenario, and the data for taking away.

What is absent is shown with its reason.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.analysis.results import Comparison

PACKED = 6
"""Of nine; the last three take three times as long for a hundredth less."""
LONGEST_LINK = 1_500_000
"""Characters; a browser cuts addresses at two million, these included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """A file inside the page: ``href`` is a data URL, None where it is too large for one."""

    name: str
    about: str
    href: str | None
    bytes_: int


def downloads(name: str, data: dict[str, Any], samples: pd.DataFrame) -> list[Download]:
    """The derived values (the JSON form of a comparison) as JSON and as a table of arms, and the raw samples."""
    plain = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return [
        download(f"{name}.comparison.json", "every derived value with interval and reason", "application/json", plain),
        download(f"{name}.arms.csv", "one row per arm and cell, unrounded", "text/csv", arms_csv(data)),
        download(f"{name}.samples.csv", "the raw numbers below, unrounded", "text/csv", samples.to_csv(index=False)),
    ]


def download(name: str, about: str, media_type: str, text: str) -> Download:
    """``text`` as a link to itself; packed where it would be too long for a link, and left out where it is even then."""
    data = text.encode()
    for ending, kind in (("", media_type), (".gz", "application/gzip")):
        body = gzip.compress(data, PACKED, mtime=0) if ending else data
        if 4 * len(body) <= 3 * LONGEST_LINK:
            coded = base64.b64encode(body).decode("ascii")
            return Download(name=name + ending, about=about, href=f"data:{kind};base64,{coded}", bytes_=len(body))
    return Download(name=name, about=about, href=None, bytes_=len(data))


def arms_csv(data: dict[str, Any]) -> str:
    """Every arm of a comparison (in its JSON form) with every number unrounded, one row per arm and cell."""
    keys = ("part", "task", "batch_size", "model", "dtype", "device")
    rows = [{key: cell[key] for key in keys} | arm for cell in data["cells"] for arm in cell["arms"]]
    if not rows:
        return ""
    dropped = ["predictions", "final_tokens_histogram", "case_ids"]
    return str(pd.json_normalize(rows).drop(columns=dropped).dropna(axis=1, how="all").to_csv(index=False))


def facts(environment: dict[str, Any]) -> list[tuple[str, str]]:
    """The snapshot of the machine as names and text; what is None is shown with its reason."""
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
    """Per part, and per arm that has void samples: how many were timed, how many of them were void, and by which rule."""
    said = []
    for one in comparison.health:
        rules = "".join(f"; {words} ({times})" for words, times in one.reasons.items())
        said.append(f"{one.part}: {one.timed} timed samples, {one.void} void{rules}")
        arms = [(cell, arm) for cell in comparison.cells if cell.part == one.part and cell.is_summary for arm in cell.arms]
        said += [
            f"{one.part}, batch {cell.batch_size}, {arm.label}: {arm.voids.words}"
            for cell, arm in arms if arm.voids and arm.voids.void
        ]  # fmt: skip
    return said


def pretty(value: Any) -> str:
    """JSON for reading."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)
