"""The figures that a history follows, and its record of one run: place, time, commit and figures.

The figures are a cache keyed by the run and the version of the formulas; the run itself stays at ``path``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from harness.errors import RecordError, UserError
from harness.scenario.metrics import Better, names_of

TRACKED = names_of(lambda one: one.tracked)
DEFAULT_METRICS = names_of(lambda one: one.by_default)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedFigure:
    """One figure of one arm in one cell, ``value`` None with its ``reason``. ``cell``: part/task/b<batch size>."""

    cell: str
    arm: str
    metric: str
    value: float | None
    low: float | None
    high: float | None
    n: int
    unit: str
    better: Better
    reason: str | None


def known_metrics(names: Sequence[str]) -> tuple[str, ...]:
    """The metrics meant by ``names``; a name without its rung means all rungs, no name the default ones.

    Raises:
        UserError: there is no such metric.
    """
    meant: list[str] = []
    for name in names:
        found = [one for one in TRACKED if one == name or one.startswith(f"{name}.")]
        if not found:
            raise UserError(f"--metric {name}: is not followed; known are {', '.join(TRACKED)}")
        meant += found
    return tuple(dict.fromkeys(meant)) or DEFAULT_METRICS


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """The measured revision. None: not known; ``has_changes`` is True where the checkout differed from the commit.

    ``committed_at``: when the commit was made, ISO 8601.
    """

    commit: str | None = None
    has_changes: bool | None = None
    branch: str | None = None
    committed_at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRecord:
    """One run. Times are ISO 8601 in UTC, which sort as text; ``samples`` counts all samples of the run when it was added.

    ``measured_at`` is empty where the files of an imported run tell no time: the order is then that of importing.
    """

    run_id: str
    path: str
    measured_at: str
    revision: Revision
    fingerprint: str
    machine: str
    software: dict[str, str]
    scenario_name: str
    scenario_digest: str
    record_version: int
    comparison_version: int
    samples: int
    figures: tuple[TrackedFigure, ...]
    added_at: str | None = None


def utc(time: str, whose: str) -> str:
    """An ISO 8601 time in UTC, to the second; one without a zone is taken as UTC.

    Raises:
        RecordError: it is not a time.
    """
    try:
        parsed = datetime.fromisoformat(time)
        aware = parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)
        return aware.astimezone(UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError) as error:
        raise RecordError(f"{whose}: {time!r} is not an ISO 8601 time") from error
