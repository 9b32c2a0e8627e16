"""PLACEHOLDER."""

from __future__ import annotations

from tests.helpers import DATA

RECORDS = DATA / "records"
