"""Which figures of a comparison a history follows, in which unit, and which way is better.

Names only: a trend must not wait for the comparison and its roofline to be loaded.

What a history keeps of one run: where and when it was measured, of which commit, and the figures derived from it.

The figures are a cache keyed by the run and the version of the formulas; the run stays where ``path`` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from harness.analysis.stats.change_points import Scale
from harness.errors import RecordError, UserError

PRICES = ("shape-calibrated-ex-ante", "calibrated", "datasheet", "shape-calibrated")
"""Those of harness.analysis.pass_values, ex-ante ones first."""
Better = Literal["higher", "lower", "nearer_zero"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedMetric:
    """A figure that is followed. ``scale``: it changes by a factor, or by a difference where it may be 0 or negative."""

    name: str
    unit: str
    better: Better
    scale: Scale = "ratio"
    by_default: bool = False


METRICS = {
    metric.name: metric
    for metric in (
        TrackedMetric(name="wall_speedup", unit="x", better="higher", by_default=True),
        TrackedMetric(name="nfe_speedup", unit="x", better="higher", by_default=True),
        TrackedMetric(name="time_per_token_s", unit="s/token", better="lower", by_default=True),
        TrackedMetric(name="tokens_per_s", unit="tokens/s", better="higher"),
        TrackedMetric(name="ceiling_share", unit="share", better="higher"),
        TrackedMetric(name="accuracy", unit="share", better="higher", scale="difference"),
        TrackedMetric(name="accuracy_difference", unit="share", better="higher", scale="difference"),
        *(
            TrackedMetric(name=f"{name}.{rung}", unit="share", better="nearer_zero", scale="difference", by_default=default)
            for name, default in (("wall_speedup_error", True), ("decode_error", False))
            for rung in PRICES
        ),
    )
}
"""By name. ``*_error.<price>``: predicted ÷ measured - 1, by the ceilings of that rung; of the top one ex-ante, from what was
known before the first sample, and, under its bare name, calibrated during the run.
"""
DEFAULT_METRICS = tuple(name for name, metric in METRICS.items() if metric.by_default)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
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
        found = [one for one in METRICS if one == name or one.startswith(f"{name}.")]
        if not found:
            raise UserError(f"--metric {name}: is not followed; known are {', '.join(METRICS)}")
        meant += found
    return tuple(dict.fromkeys(meant)) or DEFAULT_METRICS


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """What was measured. None: not known; ``has_changes`` is True where the checkout differed from the commit.

    ``committed_at``: when the commit was made, ISO 8601.
    """

    commit: str | None = None
    has_changes: bool | None = None
    branch: str | None = None
    committed_at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRecord:
    """One run. Times are ISO 8601 in UTC, which sort as text; ``samples`` counts all samples of the run when it was added."""

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
    figures: tuple[Figure, ...]
    added_at: str | None = None


def utc(time: str, whose: str) -> str:
    """An ISO 8601 time in UTC, to the second; one without a zone is taken as UTC.

    Raises:
        RecordError: it is not a time.
    """
    try:
        parsed = datetime.fromisoformat(time)
    except ValueError as error:
        raise RecordError(f"{whose}: {time!r} is not an ISO 8601 time") from error
    aware = parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat(timespec="seconds")
