"""Write a shipped scenario as `gpu_check.sh --dry-run` takes it: on a CPU, with tiny shapes.

Usage: python -m benchmarks.dry_scenario NAME FILE
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from harness.check.grid import made_small
from harness.scenario.loading import find_scenario


def main() -> None:
    """Read one, write one."""
    name, target = sys.argv[1:]
    document = yaml.safe_load(find_scenario(name).read_text(encoding="utf-8"))
    Path(target).write_text(yaml.safe_dump(made_small(document), sort_keys=False), encoding="utf-8")


if __name__ == "__main__":
    main()
