"""PLACEHOLDER."""

from __future__ import annotations

from tests.helpers import DATA
from pathlib import Path

RECORDS = DATA / "records"
