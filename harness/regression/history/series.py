"""Series of figures over commits from a history: one per machine, scenario, branch, cell, arm and metric.

Runs of one commit are one point, their median. A run without a known commit, or with changes in its checkout, is a point alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from itertools import groupby
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from harness.errors import UserError
from harness.regression.history.database import FIGURES, RECORDS, rows, shown
from harness.regression.history.store import Wanted, filtered

UNDATED = "of files that tell no time of measurement: in the order of importing"
UNPLACED = (
    "of commits of which no time is known, as in a shallow clone: their lines are in the order of measurement; "
    "`git fetch --unshallow` and `sbd history add` again, or give --committed-at"
)
MOST_SERIES = 10_000
"""Of one trend: each is a query, and a test."""
SHORT = 10
"""Number of shown digits of a commit or run id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A commit, or a run without one. ``when`` (ISO 8601, UTC) it was made or, if that is not known of all of its
    line, first measured or imported.
    """

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
class HistoryLine:
    """The machine, scenario and branch that figures share."""

    fingerprint: str
    machine: str
    scenario_name: str
    scenario_digest: str
    branch: str | None


LINE = tuple(field.name for field in fields(HistoryLine))


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """``values[i]`` is the figure at ``points[i]``, oldest first."""

    line: HistoryLine
    cell: str
    arm: str
    metric: str
    points: tuple[Point, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """All requested series. ``outdated`` of the ``runs`` are left out, because their formulas are older than
    ``comparison_version`` (None: no runs). ``notes``: what is not known of their order.
    """

    series: tuple[Series, ...]
    runs: int
    outdated: int
    comparison_version: int | None
    notes: tuple[str, ...]


class _Places(NamedTuple):
    """Places of a record's figures: ``points[number[id]]``, -1 for none; numbers run line by line, in order within each."""

    points: list[tuple[HistoryLine, Point]]
    number: NDArray[np.int64]


def read_lines(
    connection: Connection,
    wanted: Wanted,
    metrics: Sequence[str],
    cell: str = "*",
    last: int | None = None,
    outdated: bool = False,
) -> Lines:
    """Every series of ``metrics`` in cells whose name matches the shell pattern ``cell``.

    ``connection`` reads one state of the database. ``last``: only this many newest commits of each line; None: all.
    ``outdated``: figures of older formulas too. Raises UserError where more than MOST_SERIES are asked for.
    """
    times = ("measured_at", "committed_at", "added_at")
    names = ("id", "run_id", *times, "revision", "revision_has_changes", "comparison_version")
    asked = select(*(RECORDS.c[name] for name in (*names, *LINE))).order_by(RECORDS.c.measured_at, RECORDS.c.id)
    every = rows(connection, filtered(asked, wanted))
    newest = max((row.comparison_version for row in every), default=None)
    current = [row for row in every if outdated or row.comparison_version == newest]
    series = _series(connection, wanted, metrics, cell, _places(current, last))
    left_out = len(every) - len(current)
    undated = sum(not row.measured_at for row in current)
    unplaced = sum(row.revision is not None and not row.committed_at for row in current)
    notes = tuple(f"{count} runs {words}" for count, words in ((undated, UNDATED), (unplaced, UNPLACED)) if count)
    return Lines(series=tuple(series), runs=len(every), outdated=left_out, comparison_version=newest, notes=notes)


def _places(records: Sequence[Any], last: int | None) -> _Places:
    """Runs of one commit in one line are one point; ``records`` in the order they were measured.

    Commits have the order in which they were made where that is known of all of a line, else that of their measurement: two
    clocks give no order. Records older than a part of the fingerprint belong to the one machine that has the rest of it.
    """
    gathered: dict[Any, list[Any]] = {}
    machines = {row.fingerprint for row in records}
    for row in records:
        same = [machine for machine in machines if machine.startswith(f"{row.fingerprint}-")]
        own = row.run_id if row.revision is None or row.revision_has_changes else None
        machine = same[0] if len(same) == 1 else row.fingerprint
        gathered.setdefault((machine, row.scenario_digest, row.branch, row.revision, own), []).append(row)
    of_lines: dict[Any, list[list[Any]]] = {}
    for (*place, _, _), members in gathered.items():
        of_lines.setdefault(tuple(place), []).append(members)
    points: list[tuple[HistoryLine, Point]] = []
    number = np.full(max((row.id for row in records), default=0) + 1, -1)
    for every in of_lines.values():
        by_commit = all(any(run.committed_at for run in members) for members in every)
        made = [(_point(members, by_commit), members) for members in every]
        made.sort(key=lambda pair: (pair[0].when, pair[0].run_ids))
        newest = made[-1][1][-1]
        line = HistoryLine(**{name: getattr(newest, name) for name in LINE})
        for point, members in made[-last if last else 0 :]:
            number[[run.id for run in members]] = len(points)
            points.append((line, point))
    return _Places(points, number)


def _point(members: list[Any], by_commit: bool) -> Point:
    first = members[0]
    return Point(
        commit=first.revision,
        has_changes=bool(first.revision_has_changes),
        when=next((run.committed_at for run in members if by_commit and run.committed_at), first.measured_at or first.added_at),
        run_ids=tuple(run.run_id for run in members),
    )


def _series(connection: Connection, wanted: Wanted, metrics: Sequence[str], cell: str, places: _Places) -> list[Series]:
    whose = (FIGURES.c.metric, FIGURES.c.cell, FIGURES.c.arm)
    placed = np.flatnonzero(places.number >= 0)
    ids = [FIGURES.c.record_id >= (int(placed[0]) if len(placed) else 0)]
    if wanted != Wanted():
        ids.append(FIGURES.c.record_id.in_(filtered(select(RECORDS.c.id), wanted)))
    series = []
    every = rows(connection, select(*whose).where(FIGURES.c.metric.in_(metrics), *ids[1:]).distinct().limit(MOST_SERIES + 1))
    if len(every) > MOST_SERIES:
        raise UserError(
            f"{shown(connection.engine.url)}: has more than {MOST_SERIES:,} series; ask for fewer (--metric, --scenario, "
            "--fingerprint)"
        )
    for metric, where, arm in every:
        if not fnmatchcase(where, cell):
            continue
        names = (FIGURES.c.metric == metric, FIGURES.c.cell == where, FIGURES.c.arm == arm)
        asked = select(FIGURES.c.record_id, FIGURES.c.value).where(*names, FIGURES.c.value.is_not(None), *ids)
        series += [
            Series(line=line, cell=where, arm=arm, metric=metric, points=points, values=values)
            for line, points, values in _by_line(rows(connection, asked), places)
        ]
    return sorted(series, key=_order)


def _by_line(figures: Sequence[Any], places: _Places) -> Iterator[tuple[HistoryLine, tuple[Point, ...], tuple[float, ...]]]:
    """One figure of all records, separated by line: the points in their order, with the median of each."""
    if not figures:
        return
    ids, values = map(np.array, zip(*figures, strict=True))
    known = ids < len(places.number)  # records that are left out have no place
    number, values = places.number[ids[known]], values[known]
    order = np.argsort(number, kind="stable")
    order = order[number[order] >= 0]
    places_of, starts = np.unique(number[order], return_index=True)
    ends, ordered = [*starts.tolist(), len(order)][1:], values[order].tolist()
    medians = [ordered[i] if j - i == 1 else median(ordered[i:j]) for i, j in zip(starts.tolist(), ends, strict=True)]
    of_points = [places.points[i] for i in places_of.tolist()]
    for line, members in groupby(range(len(of_points)), key=lambda i: of_points[i][0]):
        own = list(members)
        yield line, tuple(of_points[i][1] for i in own), tuple(medians[i] for i in own)


def _order(series: Series) -> tuple[str, ...]:
    line = series.line
    return (
        line.scenario_name,
        line.scenario_digest,
        line.fingerprint,
        line.branch or "",
        series.cell,
        series.metric,
        series.arm,
    )
