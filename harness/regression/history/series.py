"""Series of figures over commits from a history: one per machine, scenario, branch, cell, arm and metric.

Runs of one commit are one point, their median. A run without a known commit, or with changes in its checkout, is a point alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from fnmatch import fnmatchcase
from statistics import median
from typing import Any

from sqlalchemy import Connection, select

from harness.errors import UserError
from harness.frozen import frozen
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


@frozen
class Point:
    """A commit, or a run without one. ``when`` (ISO 8601, UTC) it was made or, if that is not known of all of its
    line, first measured or imported. ``software``: versions at its newest run, as JSON.
    """

    commit: str | None
    has_changes: bool
    when: str
    run_ids: tuple[str, ...]
    software: str

    @property
    def label(self) -> str:
        """``1a2b3c4d5e``, ``1a2b3c4d5e+changes`` or ``run 0f1e2d3c4b``."""
        if self.commit is None:
            return f"run {self.run_ids[0][:SHORT]}"
        return f"{self.commit[:SHORT]}{'+changes' if self.has_changes else ''}"


@frozen
class HistoryLine:
    """The machine, scenario and branch that figures share."""

    fingerprint: str
    machine: str
    scenario_name: str
    scenario_digest: str
    branch: str | None


LINE = tuple(field.name for field in fields(HistoryLine))


@frozen
class Series:
    """``values[i]`` is the figure at ``points[i]``, oldest first."""

    line: HistoryLine
    cell: str
    arm: str
    metric: str
    points: tuple[Point, ...]
    values: tuple[float, ...]


@frozen
class Lines:
    """All requested series. ``outdated`` of the ``runs`` are left out, because their formulas are older than
    ``comparison_version`` (None: no runs). ``notes``: what is not known of their order.
    """

    series: tuple[Series, ...]
    runs: int
    outdated: int
    comparison_version: int | None
    notes: tuple[str, ...]


_OfLine = tuple[HistoryLine, list[tuple[Point, list[int]]]]
"""The points of a line in their order, each with the ids of its records."""


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
    names = ("id", "run_id", *times, "revision", "revision_has_changes", "comparison_version", "software")
    asked = select(*(RECORDS.c[name] for name in (*names, *LINE))).order_by(RECORDS.c.measured_at, RECORDS.c.id)
    every = rows(connection, filtered(asked, wanted))
    newest = max((row.comparison_version for row in every), default=None)
    current = [row for row in every if outdated or row.comparison_version == newest]
    series = _series(connection, wanted, metrics, cell, _of_lines(current, last))
    undated = sum(not row.measured_at for row in current)
    unplaced = sum(row.revision is not None and not row.committed_at for row in current)
    notes = tuple(f"{count} runs {words}" for count, words in ((undated, UNDATED), (unplaced, UNPLACED)) if count)
    return Lines(
        series=tuple(series), runs=len(every), outdated=len(every) - len(current), comparison_version=newest, notes=notes
    )


def _of_lines(records: Sequence[Any], last: int | None) -> list[_OfLine]:
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
    of_places: dict[Any, list[list[Any]]] = {}
    for (*place, _, _), members in gathered.items():
        of_places.setdefault(tuple(place), []).append(members)
    lines = []
    for every in of_places.values():
        by_commit = all(any(run.committed_at for run in members) for members in every)
        made = [(_point(members, by_commit), members) for members in every]
        made.sort(key=lambda pair: (pair[0].when, pair[0].run_ids))
        newest = made[-1][1][-1]
        line = HistoryLine(**{name: getattr(newest, name) for name in LINE})
        lines.append((line, [(point, [run.id for run in members]) for point, members in made[-last if last else 0 :]]))
    return lines


def _point(members: list[Any], by_commit: bool) -> Point:
    first = members[0]
    return Point(
        commit=first.revision,
        has_changes=bool(first.revision_has_changes),
        when=next((run.committed_at for run in members if by_commit and run.committed_at), first.measured_at or first.added_at),
        run_ids=tuple(run.run_id for run in members),
        software=members[-1].software,
    )


def _series(connection: Connection, wanted: Wanted, metrics: Sequence[str], cell: str, lines: list[_OfLine]) -> list[Series]:
    of = FIGURES.c
    of_wanted = [] if wanted == Wanted() else [of.record_id.in_(filtered(select(RECORDS.c.id), wanted))]
    asked = select(of.metric, of.cell, of.arm).where(of.metric.in_(metrics), *of_wanted).distinct()
    every = rows(connection, asked.limit(MOST_SERIES + 1))
    if len(every) > MOST_SERIES:
        raise UserError(
            f"{shown(connection.engine.url)}: has more than {MOST_SERIES:,} series; ask for fewer (--metric, --scenario, "
            "--fingerprint)"
        )
    series = []
    first = min((number for _, points in lines for _, ids in points for number in ids), default=0)
    for metric, where, arm in every:
        if not fnmatchcase(where, cell):
            continue
        mine = (of.metric == metric, of.cell == where, of.arm == arm, of.record_id >= first, of.value.is_not(None))
        values = dict(rows(connection, select(of.record_id, of.value).where(*mine, *of_wanted)))
        for line, points in lines:
            measured = [(point, [values[number] for number in ids if number in values]) for point, ids in points]
            medians = [(point, median(figures)) for point, figures in measured if figures]
            if medians:
                own, figures = zip(*medians, strict=True)
                series.append(Series(line=line, cell=where, arm=arm, metric=metric, points=own, values=figures))
    return sorted(series, key=_order)


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
