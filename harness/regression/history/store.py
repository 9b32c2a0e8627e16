"""The history of runs: what it keeps of each, added once by several programs at once, and read back as lists and series.

Of a run it keeps place, time, machine and commit, and its figures with unit, interval and reason. The figures are a cache keyed
by the run and the version of the formulas; the run itself stays at ``path``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from typing import Any, Literal

from sqlalchemy import Connection, RowMapping, Select, delete, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from harness.analysis.answer import Derived
from harness.analysis.results import ArmResult, Comparison
from harness.errors import RecordError, UserError
from harness.frozen import frozen, positional
from harness.record.same import checkout_of, machine_of, software_of
from harness.record.schema import Run
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
from harness.scenario.metrics import METRICS, Better, names_of
from harness.stats.quantity import Quantity, absent

TRACKED = names_of(lambda metric: metric.tracked)
DEFAULT_METRICS = names_of(lambda metric: metric.by_default)
OF_REQUESTS = names_of(lambda metric: metric.of_requests and metric.tracked)
ONE_BY_DEFINITION = ("wall_speedup", "nfe_speedup")


@frozen
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
        named = [metric for metric in TRACKED if metric == name or metric.startswith(f"{name}.")]
        if not named:
            raise UserError(f"--metric {name}: is not followed; known are {', '.join(TRACKED)}")
        meant += named
    return tuple(dict.fromkeys(meant)) or DEFAULT_METRICS


@frozen
class Revision:
    """The measured revision. None: not known; ``has_changes`` is True where the checkout differed from the commit.

    ``committed_at``: when the commit was made, ISO 8601.
    """

    commit: str | None = None
    has_changes: bool | None = None
    branch: str | None = None
    committed_at: str | None = None


@frozen
class HistoryRecord:
    """One run. Times are ISO 8601 in UTC, which sort as text; ``samples`` counts all samples of the run when it was added.

    ``measured_at`` is empty where the files of an imported run have no time: the order is then that of importing.
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


def figures_of(comparison: Comparison) -> tuple[TrackedFigure, ...]:
    """Every followed figure, cell by cell, without those that hold for NTP by definition.

    A cell is named ``reference/word_problems/b1``, or ``reference/all/b1`` over several tasks.
    """
    return tuple(
        TrackedFigure(
            cell=f"{cell.part}/{cell.task or 'all'}/b{cell.batch_size}",
            arm=arm.label,
            metric=name,
            value=quantity.value,
            low=quantity.low,
            high=quantity.high,
            n=quantity.n,
            unit=METRICS[name].unit,
            better=METRICS[name].better,
            reason=quantity.reason,
        )
        for cell in comparison.cells
        for arm in cell.arms
        for name, quantity in _quantities(arm).items()
        if not (arm.is_ntp and name in ONE_BY_DEFINITION)
    )


def _quantities(arm: ArmResult) -> dict[str, Quantity]:
    found = {
        "wall_speedup": arm.wall_speedup,
        "nfe_speedup": arm.nfe_speedup,
        "time_per_token_s": reciprocal(arm.tokens_per_s),
        "tokens_per_s": arm.tokens_per_s,
        "ceiling_share": arm.ceiling_share,
        "accuracy": arm.accuracy,
        "accuracy_difference": arm.accuracy_difference,
    }
    found |= {name: arm.figures[name] for name in OF_REQUESTS if name in arm.figures}
    for one in arm.predictions:
        found[f"decode_error.{one.price}"] = one.decode_error
        if not arm.is_ntp:
            found[f"wall_speedup_error.{one.price}"] = one.wall_speedup_error
    return found


def reciprocal(rate: Quantity) -> Quantity:
    """Seconds per token from tokens per second, with its interval inverted."""
    if not rate.value:
        return absent(rate.reason or "no tokens were decoded", rate.n)
    low, high = (None if end is None or end == 0 else 1 / end for end in (rate.high, rate.low))
    return replace(rate, value=1 / rate.value, low=low, high=high)


def record_of(derived: Derived, path: str, revision: Revision) -> HistoryRecord:
    """The figures of a run, which was read from the directory ``path`` (absolute).

    ``revision``: from the user or git; the run's own record fills in what is None there.

    Raises:
        RecordError: a time in the record cannot be read.
    """
    run, comparison = derived.run, derived.comparison
    header, machine = run.header, machine_of(run.header)
    return HistoryRecord(
        run_id=header.run_id,
        path=path,
        measured_at="" if header.imported and "measured_at" in header.imported.lacks else utc(header.created_at, header.run_id),
        revision=_completed(revision, run),
        fingerprint=machine.fingerprint,
        machine=machine.words,
        software=software_of(header),
        scenario_name=header.scenario_name,
        scenario_digest=header.scenario_digest,
        record_version=header.record_version,
        comparison_version=comparison.version,
        samples=len(run.samples),
        figures=figures_of(comparison),
    )


def _completed(given: Revision, run: Run) -> Revision:
    """The revision, completed by the record (no commit: not run from a checkout). Changes are of the recorded commit only."""
    environment = checkout_of(run.header.environment)
    named, changes = environment.get("commit"), environment.get("commit_has_changes")
    recorded = named if isinstance(named, str) and named else None
    commit = given.commit or recorded
    known = given.has_changes is None and commit == recorded and isinstance(changes, bool)
    made = given.committed_at or (environment.get("committed_at") if commit == recorded else None)
    at = None if made is None else utc(str(made), f"commit {commit}")
    return Revision(commit=commit, has_changes=changes if known else given.has_changes, branch=given.branch, committed_at=at)


Added = Literal["added", "replaced", "unchanged"]
REVISION = {"revision": "commit", "revision_has_changes": "has_changes", "branch": "branch", "committed_at": "committed_at"}
"""By column of the table, the field of Revision."""
CONVERTED = ("revision", "software", "figures", "added_at")
PLAIN = tuple(field.name for field in fields(HistoryRecord) if field.name not in CONVERTED)
"""Fields of a record that are columns as they are."""
FIGURE = tuple(FIGURES.c[field.name] for field in fields(TrackedFigure))


@positional
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
        row: dict[str, object] = {name: getattr(record, name) for name in PLAIN}
        row |= {column: getattr(record.revision, name) for column, name in REVISION.items()}
        row["software"] = json.dumps(record.software, sort_keys=True)
        row["added_at"] = record.added_at or datetime.now(UTC).isoformat(timespec="seconds")
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
