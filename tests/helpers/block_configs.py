"""PLACEHOLDER."""

from __future__ import annotations

from tests.helpers import DATA
import json
from pathlib import Path
from typing import Any

CONFIGS = DATA / "block_configs"


def config_of(name: str) -> dict[str, Any]:
    """One of the typed configs."""
    found: dict[str, Any] = json.loads((CONFIGS / f"{name}.json").read_text())
    return found
