"""The one place that opens a history's database: a file by default, a PostgreSQL server by URL; its errors in the user's words.

SQLite: a write-ahead log, so that readers never wait; writers queue for the file, each transaction taking its lock as it
begins. A commit is on the disk when it returns.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from harness.errors import MissingExtraError, StorageError, UserError
from harness.paths import user_data_dir

SCHEMES = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgresql+psycopg": "postgresql+psycopg"}
ALLOWED = "allowed are a file name, sqlite:///FILE, or postgresql://USER@HOST/DATABASE"
BUSY_S = 60.0
"""How long a writer waits for its turn before it gives up."""


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
        return URL.create("sqlite", database=str(Path(where).expanduser().absolute()))
    try:
        url = make_url(where)
    except ArgumentError as error:
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
        StorageError: the folder of the file cannot be made.
    """
    if url.drivername != "sqlite":
        return create_engine(url)
    try:
        Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{url.database}: its folder cannot be made ({error.strerror}); give another --db") from error
    engine = create_engine(url, connect_args={"timeout": BUSY_S})
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def _prepare(connection: Any, _record: Any) -> None:
    if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        connection.execute("PRAGMA journal_mode = wal")
    connection.execute("PRAGMA synchronous = full")
    connection.execute("PRAGMA foreign_keys = on")


def _begin(connection: Any) -> None:
    """The driver would begin by itself at the first write: too late for who reads a version first and then acts on it."""
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("sbd_writes") else "BEGIN")


@contextmanager
def in_words(place: str) -> Iterator[None]:
    """What a database refuses, said with the remedy.

    Raises:
        UserError: the file is no database.
        StorageError: everything else that a database refuses.
    """
    try:
        yield
    except DBAPIError as error:
        said = " ".join(str(error.orig).split())
        if "file is not a database" in said:
            raise UserError(f"{place}: is not an SQLite database; {ALLOWED}") from error
        if "locked" in said:
            raise StorageError(
                f"{place}: another program kept it locked for {BUSY_S:g} s; try again, or give another --db"
            ) from error
        raise StorageError(f"{place}: the database refused ({said}); check that it is there and may be written") from error
