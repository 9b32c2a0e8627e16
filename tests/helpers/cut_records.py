"""Published records cut as a kill, a failure or an unfit machine would have left them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.record.journal import whole_lines
from harness.record.store import EVENTS, HEADER, SAMPLES
from tests.helpers.published import REPORTS


def stopped(name: str, folder: Path, process: int, kept: int) -> Path:
    """The published run killed in a process (from 0) that had kept so many samples; nothing had sealed it."""
    lines = {file: list(whole_lines(REPORTS / name / file)) for file in (SAMPLES, EVENTS)}
    begun = {
        SAMPLES: next(i for i, line in enumerate(lines[SAMPLES]) if json.loads(line)["process"] == process) + kept,
        EVENTS: next(i for i, line in enumerate(lines[EVENTS]) if _begins(json.loads(line), process)) + 1,
    }
    folder.mkdir(parents=True)
    (folder / HEADER).write_bytes((REPORTS / name / HEADER).read_bytes())
    for file, many in begun.items():
        (folder / file).write_bytes(b"".join(line + b"\n" for line in lines[file][:many]))
    return folder


def _begins(line: dict[str, Any], process: int) -> bool:
    session = line.get("session") or {}
    return (session.get("event"), session.get("process")) == ("start", process)
