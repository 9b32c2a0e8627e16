"""The history of runs: added once each, by several programs at once, and read back as lists and series."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Any, Literal

from sqlalchemy import Connection, RowMapping, Select, delete, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from harness.errors import UserError
from harness.frozen import frozen
from harness.regression.history.database import (
    FIGURES,
    RECORDS,
    bring_up_to_date,
    database_url,
    in_words,
    open_engine,
    rows,
    shown,
)
from harness.regression.history.derive import HistoryRecord, Revision, TrackedFigure

Added = Literal["added", "replaced", "unchanged"]
REVISION = {"revision": "commit", "revision_has_changes": "has_changes", "branch": "branch", "committed_at": "committed_at"}
"""By column of the table, the field of Revision."""
CONVERTED = ("revision", "software", "figures", "added_at")
PLAIN = tuple(field.name for field in fields(HistoryRecord) if field.name not in CONVERTED)
"""Fields of a record that are columns as they are."""
FIGURE = tuple(FIGURES.c[field.name] for field in fields(TrackedFigure))


@frozen
class Wanted:
    """Which records to read. None: all; a fingerprint or digest by its beginning."""

    scenario: str | None = None
    branch: str | None = None
    fingerprint: str | None = None


class History:
    """A database of runs; a context manager."""

    def __init__(self, where: str) -> None:
        """Open the database ``where``, a file name or a URL; make it or bring it up to date.

        Raises:
            UserError: what ``where`` names is not supported, no history, or one of a newer version.
            MissingExtraError: PostgreSQL's driver is not installed.
            StorageError: the database refuses.
        """
        url = database_url(where)
        self.place = shown(url)
        self._engine = open_engine(url)
        try:
            with in_words(self.place):
                bring_up_to_date(self._engine, self.place)
        except BaseException:
            self.close()
            raise

    def add(self, record: HistoryRecord) -> Added:
        """Add a run, whole or not at all. A stored run is replaced only for something new: more samples, newer formulas,
        another place or commit. Figures of newer formulas than this program's stay.

        Raises:
            StorageError: the database refuses; nothing was changed.
        """
        row = _row_of(record)
        with in_words(self.place), self._engine.execution_options(sbd_writes=True).begin() as connection:
            # gives the new row's id, or nothing where the run is stored; waits for another program's insertion
            dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
            once = dialect.insert(RECORDS).values(row).on_conflict_do_nothing(index_elements=["run_id"])
            made = connection.execute(once.returning(RECORDS.c.id)).scalar_one_or_none()
            if made is not None:
                _insert_figures(connection, made, record.figures)
                return "added"
            stored = select(RECORDS).where(RECORDS.c.run_id == record.run_id).with_for_update()
            kept = rows(connection, stored)[0]._mapping
            # kept when added again: when it came, and facts about the same commit that are missing now
            untold = [name for name in REVISION if row[name] is None and row["revision"] in (None, kept["revision"])]
            new = row | {name: kept[name] for name in ("added_at", *untold)}
            if kept["comparison_version"] > record.comparison_version or all(kept[name] == new[name] for name in new):
                return "unchanged"
            connection.execute(update(RECORDS).where(RECORDS.c.id == kept["id"]).values(new))
            connection.execute(delete(FIGURES).where(FIGURES.c.record_id == kept["id"]))
            _insert_figures(connection, kept["id"], record.figures)
            return "replaced"

    def records(self, wanted: Wanted, limit: int | None = None) -> list[HistoryRecord]:
        """The newest runs first, without their figures."""
        asked = filtered(select(RECORDS), wanted).order_by(RECORDS.c.measured_at.desc(), RECORDS.c.id.desc()).limit(limit)
        with self.reading() as connection:
            return [_record_of(row._mapping, ()) for row in rows(connection, asked)]

    def record(self, run_id: str) -> HistoryRecord:
        """One run with its figures; the beginning of its id is enough.

        Raises:
            UserError: no run matches, or more than one.
        """
        with self.reading() as connection:
            begins = RECORDS.c.run_id.startswith(run_id, autoescape=True)
            runs = rows(connection, select(RECORDS).where(begins).limit(2))
            if len(runs) != 1:
                what = "no run" if not runs else "more than one run"
                raise UserError(f"{run_id}: {what} of {self.place} has an id that begins so; `sbd history list` shows them")
            of_run = select(*FIGURE).where(FIGURES.c.record_id == runs[0].id)
            kept = rows(connection, of_run.order_by(FIGURES.c.cell, FIGURES.c.arm, FIGURES.c.metric))
            return _record_of(runs[0]._mapping, tuple(TrackedFigure(**row._mapping) for row in kept))

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection that sees one state of the database throughout. Raises StorageError as ``add`` does."""
        sees = {"isolation_level": "REPEATABLE READ"} if self._engine.dialect.name == "postgresql" else {}
        with in_words(self.place), self._engine.execution_options(**sees).connect() as connection:
            yield connection

    def close(self) -> None:
        """Close the database."""
        self._engine.dispose()

    def __enter__(self) -> History:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def filtered(asked: Select[Any], wanted: Wanted) -> Select[Any]:
    """The same query for the wanted records only."""
    if wanted.scenario is not None:
        named = RECORDS.c.scenario_name == wanted.scenario
        asked = asked.where(named | RECORDS.c.scenario_digest.startswith(wanted.scenario, autoescape=True))
    if wanted.branch is not None:
        asked = asked.where(RECORDS.c.branch == wanted.branch)
    if wanted.fingerprint is not None:
        asked = asked.where(RECORDS.c.fingerprint.startswith(wanted.fingerprint, autoescape=True))
    return asked


def _row_of(record: HistoryRecord) -> dict[str, object]:
    row = {name: getattr(record, name) for name in PLAIN}
    row |= {column: getattr(record.revision, name) for column, name in REVISION.items()}
    return row | {
        "software": json.dumps(record.software, sort_keys=True),
        "added_at": record.added_at or datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _record_of(row: RowMapping, figures: tuple[TrackedFigure, ...]) -> HistoryRecord:
    return HistoryRecord(
        **{name: row[name] for name in PLAIN},
        added_at=row["added_at"],
        revision=Revision(**{name: row[column] for column, name in REVISION.items()}),
        software=json.loads(row["software"]),
        figures=figures,
    )


def _insert_figures(connection: Connection, record_id: int, figures: Sequence[TrackedFigure]) -> None:
    if figures:
        connection.execute(insert(FIGURES), [asdict(figure) | {"record_id": record_id} for figure in figures])
