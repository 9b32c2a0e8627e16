"""The records under reports/, each read and compared once in a process; nobody changes them."""

from __future__ import annotations

from functools import cache

from harness.analysis.answer import Comparison, compare
from harness.record.schema import Run
from harness.record.store import read_run
from tests.helpers import ROOT

REPORTS = ROOT / "reports"


@cache
def published(name: str) -> Run:
    """A record by the name of its folder."""
    return read_run(REPORTS / name)


@cache
def compared(name: str) -> Comparison:
    """What it shows."""
    return compare(published(name))
