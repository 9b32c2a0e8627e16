"""Scenarios as YAML, written to a folder."""

from __future__ import annotations

from pathlib import Path

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
