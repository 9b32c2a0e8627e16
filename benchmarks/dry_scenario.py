"""Write a shipped scenario as `gpu_check.sh --dry-run` takes it: on a CPU, with tiny shapes.

Usage: python -m benchmarks.dry_scenario NAME FILE
"""

from __future__ import annotations

import sys
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


def main() -> None:
    """Read one, write one."""
    name, target = sys.argv[1:]
    document = yaml.safe_load(find_scenario(name).read_text(encoding="utf-8"))
    Path(target).write_text(yaml.safe_dump(made_small(document), sort_keys=False), encoding="utf-8")


if __name__ == "__main__":
    main()
