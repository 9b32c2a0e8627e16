"""The interface of a place that takes units of a run elsewhere; names no software.

Its orders carry the digest of the program, because nodes must run the same code, to the byte, as the sender.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from harness.frozen import frozen
from harness.record.schema import Run, RunHeader
from harness.runner.options import RunOptions
from harness.runner.recorder import Entry
from harness.scenario.part import Part
from harness.scenario.plan import Share

STARTING, START_S = "starting the process", 600.0
"""A unit's first step and its time limit at any deadline, because libraries may load from a slow disk."""


@frozen
class NodeTask:
    """An order to a node: take ``share`` of this scenario, or (None) make the run's header.

    ``scenario`` is resolved; ``held`` is the unit's part of the record with the whole header. ``code`` is the digest of the
    sending program. ``here``: the node that the unit began on, or None. ``options``: of the sender's command line.
    """

    scenario: Mapping[str, object]
    path: str
    digest: str
    code: str
    share: Share | None
    held: Run | None
    options: RunOptions
    here: str | None = None


class LostError(Exception):
    """A unit is lost with its process, its node or the connection; the message says which."""


class Cluster(Protocol):
    """A place that takes units. A ``unit`` is whatever ``start`` returns."""

    def header(self, order: NodeTask, part: Part) -> RunHeader:
        """Let a node that fits ``part`` make the header of a run. Raises UserError; LostError."""

    def room(self) -> int:
        """How many units to keep in flight."""

    def start(self, order: NodeTask, part: Part) -> Any:
        """Ask for an exclusive place for a unit; returns at once."""

    def ask(self, unit: Any) -> Any:
        """Ask a unit for its next entry; returns at once, with the argument of ``ready`` and ``answer``."""

    def ready(self, asked: Sequence[Any], timeout_s: float) -> Sequence[Any]:
        """The answered ones, as soon as one is."""

    def answer(self, asked: Any) -> Entry | None:
        """The entry; None after the last one. Raises UserError, which ends the run; LostError; or the unit's own error."""

    def end(self, unit: Any) -> None:
        """Give its place back at once."""

    def lacking(self, part: Part) -> str | None:
        """What ``part`` needs that no node has, in words; None where a node has it."""
