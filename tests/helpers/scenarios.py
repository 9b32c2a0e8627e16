"""Scenarios as YAML, written to a folder, and the JSON files of their models, changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

GOOD = """\
version: 1
name: small
parts:
  - name: one
    model: {random: llama-250m}
    dtype: bfloat16
    arms:
      - {method: ntp}
      - {method: sbd, block_size: 16, gamma: [0, 0.35]}
    workload:
      synthetic: {prompt_tokens: 8}
      prompts: 4
      max_new_tokens: 16
"""


def write(folder: Path, text: str) -> Path:
    """Put a scenario into a file."""
    file = folder / "s.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def on_model(model: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """NTP on a model in float32, by the plain session and without a clock: one problem, two tokens."""
    part = {
        "name": "p",
        "model": model,
        "dtype": "float32",
        "timed": False,
        "session": "plain",
        "arms": [{"method": "ntp"}],
        "baseline_check": 0,
        "workload": {"tasks": ["word_problems"], "split": "test", "prompts": 1, "max_new_tokens": 2},
    }
    return {"version": 1, "name": "s", "parts": [part | changes]}


def change(file: Path, **keys: Any) -> None:
    """Set keys of a JSON file, which may be new; None removes one."""
    held = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps({name: value for name, value in (held | keys).items() if value is not None}))
