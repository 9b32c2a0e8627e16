"""Configs of public block models, as typed from their sources."""

from __future__ import annotations

import json
from typing import Any

from tests.helpers import DATA

CONFIGS = DATA / "block_configs"


def config_of(name: str) -> dict[str, Any]:
    """One of the typed configs."""
    found: dict[str, Any] = json.loads((CONFIGS / f"{name}.json").read_text())
    return found
