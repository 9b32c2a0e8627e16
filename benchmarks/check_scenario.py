"""Write a shipped scenario as gpu_check.sh takes it: one part of it alone, or, dry-run, on a CPU with tiny shapes.

Usage: python -m benchmarks.check_scenario NAME FILE [--part PART] [--dry-run]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import yaml

from harness.check.grid import TINY
from harness.scenario.loading import find_scenario


def made_small(document: dict[str, Any]) -> dict[str, Any]:
    """The CPU dry run of a GPU scenario: the same parts and arms, tiny shapes, few and short prompts.

    A model that is not random stays unchanged.
    """
    return document | {"parts": [_made_small(part) for part in document["parts"]]}


def _made_small(part: dict[str, Any]) -> dict[str, Any]:
    model = {"random": TINY} if "random" in part["model"] else part["model"]
    sizes = sorted({min(size, 2) for size in part.get("batch_sizes", [1])})
    workload = dict(part["workload"]) | {"prompts": 2, "max_new_tokens": 16}
    if "synthetic" in workload:
        workload["synthetic"] = {"prompt_tokens": 8}
    place = {"device": "cpu", "execution": "eager", "health": {"kernel": 1.0, "steal": 1.0}}
    return part | {"model": model, "batch_sizes": sizes, "workload": workload, **place}


def one_part(document: dict[str, Any], name: str) -> dict[str, Any]:
    """That part alone, under a name of its own. Raises ValueError where there is none."""
    parts = [part for part in document["parts"] if part["name"] == name]
    if not parts:
        there = ", ".join(part["name"] for part in document["parts"])
        raise ValueError(f"part {name}: not in {document['name']}, which has {there}")
    return document | {"name": f"{document['name']}_{name}", "parts": parts}


def main() -> None:
    """Read one, write one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("file", type=Path)
    parser.add_argument("--part")
    parser.add_argument("--dry-run", action="store_true")
    asked = parser.parse_args()
    document = yaml.safe_load(find_scenario(asked.name).read_text(encoding="utf-8"))
    document = one_part(document, asked.part) if asked.part else document
    document = made_small(document) if asked.dry_run else document
    asked.file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")


if __name__ == "__main__":
    main()
