"""A place that takes units of a run elsewhere: what it is told, and what it must be able to do. Names no software.

Which program this is, to the byte: nodes of a cluster must run the very code that sends them work.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from harness.record.schema import Run, RunHeader
from harness.runner.recorder import Entry
from harness.scenario.plan import Share
from harness.scenario.scenario import Part

STARTING, START_S = "starting the process", 600.0
"""What a unit does first, and how long it may take whatever the deadline: libraries come from a slow disk, perhaps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a node is told: take ``share`` of this scenario; or (None) say what the run's header is to be.

    ``scenario`` is the resolved one, ``held`` what the record has of the unit (all of its header). ``code`` is the digest of
    the program that sends it. ``here``: the node that the unit was begun on, if it was.
    """

    scenario: dict[str, Any]
    path: str
    digest: str
    code: str
    share: Share | None
    held: Run | None
    here: str | None = None


class LostError(Exception):
    """A unit that will not answer any more: its process, its node or the way to it is gone; the message says which."""


class Cluster(Protocol):
    """Somewhere that units can be taken. A ``unit`` is whatever ``start`` returns."""

    def header(self, order: Order, part: Part) -> RunHeader:
        """Have a node that fits ``part`` make the header of a run. Raises UserError; LostError."""

    def room(self) -> int:
        """How many units are worth having in flight."""

    def start(self, order: Order, part: Part) -> Any:
        """Ask for a place for a unit that has it to itself; returns at once."""

    def ask(self, unit: Any) -> Any:
        """Ask a unit for its next entry; returns at once, with what ``ready`` and ``answer`` take."""

    def ready(self, asked: Sequence[Any], timeout_s: float) -> Sequence[Any]:
        """Those that are answered, as soon as one is."""

    def answer(self, asked: Any) -> Entry | None:
        """The entry; None behind the last one. Raises UserError, which ends the run; LostError; else what broke there."""

    def end(self, unit: Any) -> None:
        """Give its place back, whatever it is doing."""

    def lacking(self, part: Part) -> str | None:
        """What ``part`` needs that no node has, in words; None where one has it."""


PACKAGE = Path(__file__).resolve().parents[2]
SUFFIXES = {".py", ".yaml", ".csv"}


@cache
def source_digest(package: Path = PACKAGE) -> str:
    """First 12 hex digits of SHA-256 over the names and contents of the package's modules and tables."""
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*")):
        if file.suffix in SUFFIXES and "__pycache__" not in file.parts and "_data" not in file.parts:
            digest.update(f"{file.relative_to(package).as_posix()}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:12]
