"""The database of a history: an SQLite file by default, a PostgreSQL server by URL; its tables, upgrades and errors in words.

Columns are plain, so that a dashboard or `sqlite3` can read them; no column name is a reserved word. SQLite has a write-ahead
log, so that readers never wait. Writers queue for the file, and each transaction takes its lock as it begins. A commit is on
the disk when it returns.

An older schema is brought to the present one in one transaction; of two programs at once one does it. Schema versions:

    1   first form
    2   a record has the time of its commit and the versions of the software; an index that a trend is read from
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any

from pydantic import ConfigDict, FailFast, Field, Json, TypeAdapter, ValidationError
from sqlalchemy import (
    URL,
    Boolean,
    Column,
    Connection,
    Double,
    Engine,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Select,
    Table,
    Text,
    create_engine,
    event,
    inspect,
    make_url,
    select,
    text,
    types,
)
from sqlalchemy.exc import ArgumentError, DBAPIError

from harness.errors import LONGEST_SHOWN, MissingExtraError, StorageError, UserError
from harness.paths import user_data_dir
from harness.record.regular_file import refuse_irregular


def _required(kind: type[types.TypeEngine[Any]], *names: str) -> list[Column[Any]]:
    return [Column(name, kind, nullable=False) for name in names]


METADATA = MetaData()
VERSION = Table("schema_version", METADATA, *_required(Integer, "version"))
RECORDS = Table(
    "records",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("run_id", Text, nullable=False, unique=True),
    *_required(Text, "path", "measured_at", "added_at"),
    Column("revision", Text),
    Column("revision_has_changes", Boolean),
    Column("branch", Text),
    *_required(Text, "fingerprint", "machine", "scenario_name", "scenario_digest"),
    *_required(Integer, "record_version", "comparison_version", "samples"),
    Column("committed_at", Text),
    Column("software", Text, nullable=False, server_default="{}"),
)
FIGURES = Table(
    "figures",
    METADATA,
    Column("record_id", Integer, ForeignKey("records.id", ondelete="CASCADE"), primary_key=True),
    *(Column(name, Text, primary_key=True) for name in ("cell", "arm", "metric")),
    *(Column(name, Double) for name in ("value", "low", "high")),
    *_required(Integer, "n"),
    *_required(Text, "unit", "better"),
    Column("reason", Text),
)
TREND_INDEX = Index(
    "figures_of_a_metric", FIGURES.c.metric, FIGURES.c.cell, FIGURES.c.arm, FIGURES.c.record_id, FIGURES.c.value
)
"""Holds everything that a trend reads of a figure."""


SCHEMES = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgresql+psycopg": "postgresql+psycopg"}
ALLOWED = "allowed are a file name, sqlite:///FILE, or postgresql://USER@HOST/DATABASE"
REMEDY = "restore it from a backup, or give another --db"
BUSY_S = 60.0
"""Seconds that a writer waits for the lock."""


def default_database() -> Path:
    """The history of this user: ``$XDG_DATA_HOME/sbd/history/history.sqlite``, or under ``~/.local/share``."""
    return user_data_dir("history") / "history.sqlite"


def database_url(where: str) -> URL:
    """What ``where`` names, a file or a URL.

    Raises:
        UserError: a scheme that is not supported, or no URL at all.
        MissingExtraError: PostgreSQL's driver is not installed.
    """
    if "://" not in where:
        path = os.path.expanduser(where)
        if "\0" in path or path.startswith("~"):
            raise UserError(f"--db {where!r}: holds a NUL byte, or the ~ of a user that this system does not know; {ALLOWED}")
        return URL.create("sqlite", database=os.path.abspath(path))
    try:
        url = make_url(where)
    except (ArgumentError, ValueError) as error:  # a port that is no number
        raise UserError(f"--db: cannot be read as a URL; {ALLOWED}") from error  # not shown: it may hold a password
    if url.drivername not in SCHEMES:
        raise UserError(f"--db {shown(url)}: {url.drivername} is not supported; {ALLOWED}")
    if url.drivername == "sqlite":
        if url.database in (None, "", ":memory:"):
            raise UserError(f"--db {where}: names no file, and a history in memory would be lost; {ALLOWED}")
        return database_url(str(url.database))
    if importlib.util.find_spec("psycopg") is None:
        raise MissingExtraError(
            f"--db {shown(url)} needs psycopg, not installed here; pip install 'sbd-bench[postgres]' (in a checkout: "
            "pip install '.[postgres]'). A history in a file needs nothing more"
        )
    return url.set(drivername=SCHEMES[url.drivername])


def shown(url: URL) -> str:
    """The database in words, its password hidden."""
    return str(url.database) if url.drivername == "sqlite" else url.render_as_string(hide_password=True)


def open_engine(url: URL) -> Engine:
    """An engine, to be disposed of; a writing transaction has the execution option ``sbd_writes``.

    Raises:
        UserError: the file, or one beside it, is a folder, a pipe or a device.
        StorageError: the folder of the file cannot be made.
    """
    if url.drivername != "sqlite":
        return create_engine(url)
    file = os.path.realpath(str(url.database))
    try:
        Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
        for beside in ("", "-wal", "-shm", "-journal"):
            refuse_irregular(Path(file + beside))
    except OSError as error:
        raise StorageError(f"{url.database}: its folder cannot be made ({error.strerror}); give another --db") from error
    engine = create_engine(url, connect_args={"timeout": BUSY_S})
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def _prepare(connection: Any, _record: Any) -> None:
    connection.setlimit(0, 10**7)  # SQLITE_LIMIT_LENGTH: no text of more bytes is read or written
    connection.execute("PRAGMA synchronous = full")
    connection.execute("PRAGMA foreign_keys = on")


def _begin(connection: Any) -> None:
    """Begin each transaction here: the driver begins at the first write, too late after a read of the version."""
    if writes := connection.get_execution_options().get("sbd_writes"):  # a file that is only read is left as it is
        connection.exec_driver_sql("PRAGMA journal_mode = wal")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def in_words(place: str) -> Iterator[None]:
    """Errors of a database in words, with the remedy.

    Raises:
        UserError: the file is no database.
        StorageError: any other error of the database, or a row that sbd does not write.
    """
    try:
        yield
    except ValidationError as error:
        first = error.errors()[0]
        raise StorageError(
            f"{place}: is damaged ({error.title} holds {first['input']!r:.99}: {first['msg']}); {REMEDY}, nothing was written"
        ) from error
    except (DBAPIError, UnicodeDecodeError) as error:  # the text of an error quotes a schema that is no UTF-8
        words = " ".join(str(getattr(error, "orig", error)).split())[:LONGEST_SHOWN]
        if "file is not a database" in words:
            raise UserError(f"{place}: is not an SQLite database; {ALLOWED}") from error
        if "locked" in words:
            raise StorageError(
                f"{place}: another program kept it locked for {BUSY_S:g} s; try again, or give another --db"
            ) from error
        raise StorageError(
            f"{place}: the database refused ({words}); check that it is there and may be written; if it is damaged, {REMEDY}"
        ) from error


SOUND = """SELECT CASE WHEN (SELECT page_count FROM pragma_page_count) < 2500
THEN (SELECT integrity_check FROM pragma_integrity_check(1)) = 'ok'
ELSE (SELECT count(*) FROM figures NOT INDEXED) = (SELECT count(*) FROM figures INDEXED BY figures_of_a_metric)
AND (SELECT count(*) FROM records NOT INDEXED) = (SELECT count(*) FROM records INDEXED BY sqlite_autoindex_records_1) END
AND NOT EXISTS (SELECT * FROM sqlite_master WHERE type = 'trigger')"""
"""Whether a file of SQLite is as sbd makes it. A whole check takes 0.2 s for 1,000 runs and 1.7 s for 10,000. More than 1,000
have the head of every page read instead, which sees no difference within a page: 0.1 s for 10,000.
"""
TIME = Annotated[str, Field(pattern=r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\+00:00)?)?$")]
NUMBER = Annotated[int, Field(ge=0, le=10**7)]
MAY_BE = {
    "measured_at": TIME,
    "added_at": TIME,
    "committed_at": TIME,
    "id": NUMBER,
    "record_id": NUMBER,
    "software": Json[dict[str, str]],
}
"""What these columns may hold, where that is less than their type."""


def rows(connection: Connection, asked: Select[Any]) -> Sequence[Any]:
    """What a query of columns gives, each value of the kind that its column holds. Raises ValidationError."""
    answer = connection.execute(asked).all()
    for column, values in zip(asked.selected_columns, zip(*answer, strict=True), strict=False):
        kind: Any = MAY_BE.get(column.name, column.type.python_type)
        every: Any = Annotated[GenericAlias(tuple, (kind | None if column.nullable else kind, ...)), FailFast()]
        config = ConfigDict(strict=True, allow_inf_nan=False, title=f"{column.table}.{column.name}")
        TypeAdapter(every, config=config).validate_python(values)
    return answer


LOCK = 0x5BD_0_5
"""Key of PostgreSQL's advisory lock; SQLite locks the file as the transaction begins."""
SCHEMA_VERSION = 2
Upgrades = Mapping[int, Sequence[str]]
UPGRADES: Upgrades = {
    1: (
        "ALTER TABLE records ADD COLUMN committed_at TEXT",
        "ALTER TABLE records ADD COLUMN software TEXT NOT NULL DEFAULT '{}'",
        "CREATE INDEX figures_of_a_metric ON figures (metric, cell, arm, record_id, value)",
    )
}
"""By schema version, the statements that lead to the next one. What was released here is never changed."""


def bring_up_to_date(engine: Engine, place: str, upgrades: Upgrades = UPGRADES) -> None:
    """Make the tables, or upgrade older ones, in one transaction, which begins by locking the file where it is SQLite.

    ``place``: the database in words, for messages.

    Raises:
        UserError: it was made by a newer version, or is not a history.
    """
    with engine.connect() as connection:
        if _version(connection, place) == SCHEMA_VERSION:
            if connection.dialect.name == "sqlite" and not connection.exec_driver_sql(SOUND).scalar():
                raise StorageError(f"{place}: is damaged (a page, an index or a trigger is not as sbd makes it); {REMEDY}")
            return
    with engine.execution_options(sbd_writes=True).begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
        version = _version(connection, place)  # another program may have been first
        if version > SCHEMA_VERSION:
            raise UserError(
                f"{place}: is a history of schema version {version}, newer than this program's {SCHEMA_VERSION}; upgrade sbd, "
                "or give another --db"
            )
        if not version:
            METADATA.create_all(connection)
            connection.execute(VERSION.insert().values(version=SCHEMA_VERSION))
        elif version < SCHEMA_VERSION:
            for statement in (statement for older in range(version, SCHEMA_VERSION) for statement in upgrades[older]):
                connection.execute(text(statement))
            connection.execute(VERSION.update().values(version=SCHEMA_VERSION))


def _version(connection: Connection, place: str) -> int:
    """Version of the schema; 0: the database is empty."""
    tables = METADATA.tables.keys() & inspect(connection).get_table_names()
    if len(tables) == len(METADATA.tables):
        versions = [row.version for row in rows(connection, select(VERSION).limit(2))]
        if len(versions) == 1 and versions[0] > 0:
            return int(versions[0])
    elif not tables:
        return 0
    raise UserError(f"{place}: is a database, but not a history of sbd; give another --db")
