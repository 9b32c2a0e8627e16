"""Lines of figures over commits, read from a history: one line per machine, scenario, branch, cell, arm and metric.

Runs of one commit are one point, their median; a run whose commit is not known, or whose checkout had changes, stands alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from operator import attrgetter
from statistics import median
from typing import Any, NamedTuple

from sqlalchemy import Connection, select

from harness.history import Wanted, filtered
from harness.history_tables import FIGURES, RECORDS

SHORT = 10
"""So many digits of a commit, or of a run's id, are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A commit, or a run that has none of its own. ``when`` it was made or, not known, first measured (ISO 8601, UTC)."""

    commit: str | None
    has_changes: bool
    when: str
    run_ids: tuple[str, ...]

    @property
    def label(self) -> str:
        """``1a2b3c4d5e``, ``1a2b3c4d5e+changes`` or ``run 0f1e2d3c4b``."""
        if self.commit is None:
            return f"run {self.run_ids[0][:SHORT]}"
        return f"{self.commit[:SHORT]}{'+changes' if self.has_changes else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What all figures of one machine, scenario and branch share."""

    fingerprint: str
    machine: str
    scenario_name: str
    scenario_digest: str
    branch: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """``values[i]`` is the figure at ``points[i]``, oldest first."""

    line: Line
    cell: str
    arm: str
    metric: str
    points: tuple[Point, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """All series that were asked for; ``outdated`` of the ``runs`` are left out, their figures being of older formulas than
    ``comparison_version`` (None: there are no runs).
    """

    series: tuple[Series, ...]
    runs: int
    outdated: int
    comparison_version: int | None


class _Place(NamedTuple):
    """Where a record's figures go."""

    line: Line
    point: Point


def read_lines(
    connection: Connection,
    wanted: Wanted,
    metrics: Sequence[str],
    cell: str = "*",
    last: int | None = None,
    outdated: bool = False,
) -> Lines:
    """Every series of ``metrics`` in cells whose name matches the pattern ``cell``.

    Args:
        connection: reading one state of the database.
        wanted: which runs.
        metrics: names.
        cell: a pattern as of a shell.
        last: so many of the newest points of a series; None: all.
        outdated: figures of older formulas too.
    """
    names = ("id", "run_id", "measured_at", "committed_at", "revision", "revision_has_changes", "comparison_version",
             "fingerprint", "machine", "scenario_name", "scenario_digest", "branch")  # fmt: skip
    rows = connection.execute(filtered(select(*(RECORDS.c[name] for name in names)), wanted)).all()
    newest = max((row.comparison_version for row in rows), default=None)
    current = [row for row in rows if outdated or row.comparison_version == newest]
    found = _series(connection, wanted, metrics, cell, _places(current), last)
    left_out = len(rows) - len(current)
    return Lines(series=tuple(found), runs=len(rows), outdated=left_out, comparison_version=newest)


def _places(rows: Sequence[Any]) -> dict[int, _Place]:
    """The line and the point of every record, by id."""
    gathered: dict[Any, list[Any]] = {}
    for row in sorted(rows, key=attrgetter("measured_at", "id")):
        own = row.run_id if row.revision is None or row.revision_has_changes else None
        gathered.setdefault((row.fingerprint, row.scenario_digest, row.branch, row.revision, own), []).append(row)
    lines: dict[Any, Line] = {}
    places = {}
    for (fingerprint, digest, branch, revision, _), members in gathered.items():
        first, newest = members[0], members[-1]
        line = lines.setdefault((fingerprint, digest, branch), Line(
            fingerprint=fingerprint, machine=newest.machine, scenario_name=newest.scenario_name, scenario_digest=digest,
            branch=branch,
        ))  # fmt: skip
        point = Point(
            commit=revision,
            has_changes=bool(first.revision_has_changes),
            when=next((one.committed_at for one in members if one.committed_at), first.measured_at),
            run_ids=tuple(one.run_id for one in members),
        )
        places.update({one.id: _Place(line, point) for one in members})
    return places


def _series(
    connection: Connection, wanted: Wanted, metrics: Sequence[str], cell: str, places: dict[int, _Place], last: int | None
) -> list[Series]:
    asked = select(FIGURES.c.metric, FIGURES.c.record_id, FIGURES.c.cell, FIGURES.c.arm, FIGURES.c.value)
    asked = asked.where(FIGURES.c.metric.in_(metrics), FIGURES.c.value.is_not(None))
    if wanted != Wanted():
        asked = asked.where(FIGURES.c.record_id.in_(filtered(select(RECORDS.c.id), wanted)))
    gathered: dict[Any, dict[int, tuple[Point, list[float]]]] = {}
    for metric, record_id, where, arm, value in connection.execute(asked):
        place = places.get(record_id)
        if place is not None:
            points = gathered.setdefault((id(place.line), where, arm, metric), {})
            points.setdefault(id(place.point), (place.point, []))[1].append(value)
    lines = {id(place.line): place.line for place in places.values()}
    found = []
    for (line, where, arm, metric), points in gathered.items():
        if not fnmatchcase(where, cell):
            continue
        ordered = sorted(points.values(), key=lambda one: (one[0].when, one[0].run_ids))[-last if last else None :]
        found.append(Series(
            line=lines[line], cell=where, arm=arm, metric=metric,
            points=tuple(point for point, _ in ordered), values=tuple(median(values) for _, values in ordered),
        ))  # fmt: skip
    return sorted(found, key=_order)


def _order(one: Series) -> tuple[str, ...]:
    line = one.line
    return (line.scenario_name, line.scenario_digest, line.fingerprint, line.branch or "", one.cell, one.metric, one.arm)
