"""Where the small records of every version lie."""

from __future__ import annotations

from tests.helpers import DATA

RECORDS = DATA / "records"
