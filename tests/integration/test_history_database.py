"""The history's database, a file and a real PostgreSQL server alike: nothing lost or half written, every older form read."""

from __future__ import annotations

import itertools
import multiprocessing
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, event, inspect, text
from sqlalchemy.exc import DBAPIError

from harness.errors import MissingExtraError, StorageError, UserError
from harness.regression.history.database import METADATA, SCHEMA_VERSION, bring_up_to_date, database_url, open_engine, shown
from harness.regression.history.store import History, Revision, Wanted
from harness.regression.history.trend import trend
from harness.scenario.metrics import METRICS
from tests.helpers import ROOT, postgres_server
from tests.helpers.synthetic_history import commit, figure, record, records_of

ALL_METRICS = tuple(figure(2.0, name, arm) for name in METRICS for arm in ("NTP", "SBD γ=0.1", "SBD γ=0.35"))
"""As many figures as a small run has."""
DATABASES = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of a PostgreSQL server, or the reason for skipping."""
    reason = postgres_server.why_not()
    if reason is not None:
        pytest.skip(reason)
    with postgres_server.server() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database with nothing in it."""
    if request.param == "sqlite":
        return str(tmp_path / "folder" / "history.sqlite")
    import psycopg

    url: str = request.getfixturevalue("server")
    name = f"history_{next(DATABASES)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")  # type: ignore[call-overload]
    return url.replace("/postgres?", f"/{name}?")


def test_a_record_is_read_back_as_it_was(where: str) -> None:
    """Every field, absent ones as None, on both kinds of database."""
    unknown = Revision()
    one = record(1, figure(3.0), figure(None, "accuracy"), added_at="2026-02-03T00:00:00+00:00")
    two = record(
        2, figure(-0.25, "decode_error.datasheet"), revision=unknown, software={}, added_at="2026-02-03T00:00:00+00:00"
    )
    with History(where) as history:
        history.add(one)
        history.add(two)
    with History(where) as history:
        assert history.record(one.run_id) == replace(one, figures=tuple(sorted(one.figures, key=lambda f: f.metric)))
        assert history.record(two.run_id) == two
        assert [found.run_id for found in history.records(Wanted())] == [two.run_id, one.run_id]
        assert [found.run_id for found in history.records(Wanted(), limit=1)] == [two.run_id]


def test_adding_a_run_twice_changes_nothing_unless_something_is_new(where: str) -> None:
    """More samples or newer formulas replace the figures; older formulas never do; what was known of a commit stays."""
    first = record(1, figure(3.0), figure(2.0, "nfe_speedup"))
    with History(where) as history:
        assert [history.add(first), history.add(first)] == ["added", "unchanged"]
        assert history.add(replace(first, samples=101, figures=(figure(3.1),))) == "replaced"
        newer = replace(first, samples=101, comparison_version=first.comparison_version + 1, figures=(figure(3.2),))
        assert [history.add(newer), history.add(first)] == ["replaced", "unchanged"]
        assert [one.value for one in history.record(first.run_id).figures] == [3.2]
        untold = replace(newer, path="/moved", revision=Revision(commit=commit(1)))
        assert history.add(untold) == "replaced"
        assert (history.record(first.run_id).path, history.record(first.run_id).revision) == ("/moved", first.revision)
        other = Revision(commit=commit(9), branch="feature")
        assert history.add(replace(untold, revision=other)) == "replaced"
        assert history.record(first.run_id).revision == other  # nothing of commit 1 is told of commit 9
        assert len(history.records(Wanted())) == 1


def test_records_are_chosen_by_scenario_branch_and_machine(where: str) -> None:
    """A percent sign or an underscore in a beginning stands for itself."""
    with History(where) as history:
        history.add(record(1))
        history.add(record(2, revision=Revision(commit=commit(2), branch="feature"), fingerprint="ba9876543210"))
        for wanted, expected in (
            (Wanted(branch="main"), [1]),
            (Wanted(fingerprint="ba"), [2]),
            (Wanted(scenario="synthetic"), [2, 1]),
            (Wanted(scenario="ddd"), [2, 1]),
            (Wanted(scenario="d%d"), []),
            (Wanted(fingerprint="_a"), []),
        ):
            assert [int(one.run_id[:8], 16) for one in history.records(wanted)] == expected, wanted
        with pytest.raises(UserError, match="no run"):
            history.record("ff")
        with pytest.raises(UserError, match="more than one run"):
            history.record("0000000")


def _write(where: str, first: int, count: int) -> None:
    with History(where) as history:
        for number in range(first, first + count):
            history.add(record(number, *ALL_METRICS))


def _write_at_once(where: str, each: int) -> None:
    """Two processes write ``each`` records of their own and as many that both write, into a database that neither has made."""
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write, args=(where, first, 2 * each)) for first in (0, each)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    with History(where) as history:
        assert {one.run_id for one in history.records(Wanted())} == {record(number).run_id for number in range(3 * each)}
        with history.reading() as connection:
            whole = connection.execute(text("SELECT count(*) FROM figures GROUP BY record_id")).scalars().all()
    assert whole == [len(ALL_METRICS)] * 3 * each


def test_two_processes_writing_at_once_lose_nothing(where: str) -> None:
    """2 x 50 records, half of them the same ones."""
    _write_at_once(where, 25)


@pytest.mark.full
def test_two_processes_writing_1000_records_lose_nothing(where: str) -> None:
    """2 x 500 records of their own, and 500 that both write."""
    _write_at_once(where, 500)


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from harness.regression.history import store as history
from tests.helpers.synthetic_history import record
from tests.integration.test_history_database import ALL_METRICS, BEFORE_KILL

def half_of_them(connection, record_id, figures):
    whole(connection, record_id, figures[: len(figures) // 2])
    os.kill(os.getpid(), signal.SIGKILL)

whole = history._insert_figures
with history.History(sys.argv[2]) as kept:
    for number in range(BEFORE_KILL + 1):
        history._insert_figures = half_of_them if number == BEFORE_KILL else whole
        kept.add(record(number, *ALL_METRICS))
"""
BEFORE_KILL = 5


def test_a_writer_that_is_killed_in_the_middle_leaves_whole_records_only(where: str) -> None:
    """kill -9 between the figures of the sixth record: the five before it are whole, it is not there, and writing goes on."""
    writer = subprocess.run([sys.executable, "-c", KILLED, str(ROOT), where], check=False)
    assert writer.returncode == -signal.SIGKILL
    with History(where) as history:
        assert [history.record(record(number).run_id).figures != () for number in range(BEFORE_KILL)] == [True] * BEFORE_KILL
        with history.reading() as connection:
            counts = connection.execute(text("SELECT count(*) FROM figures GROUP BY record_id")).scalars().all()
            if connection.dialect.name == "sqlite":
                assert connection.execute(text("PRAGMA integrity_check")).scalar_one() == "ok"
        assert counts == [len(ALL_METRICS)] * BEFORE_KILL and len(history.records(Wanted())) == BEFORE_KILL
        assert history.add(record(BEFORE_KILL, *ALL_METRICS)) == "added"


def _columns(where: str) -> dict[str, dict[str, tuple[str, bool]]]:
    engine = open_engine(database_url(where))
    found = inspect(engine)
    tables = {
        table: {one["name"]: (str(one["type"]), bool(one["nullable"])) for one in found.get_columns(table)}
        for table in sorted(found.get_table_names())
    }
    engine.dispose()
    return tables


FIRST_FORM = (
    "CREATE TABLE schema_version (version INTEGER NOT NULL)",
    "INSERT INTO schema_version (version) VALUES (1)",
    """CREATE TABLE records (
        id {key}, run_id TEXT NOT NULL UNIQUE, path TEXT NOT NULL, measured_at TEXT NOT NULL, added_at TEXT NOT NULL,
        revision TEXT, revision_has_changes BOOLEAN, branch TEXT, fingerprint TEXT NOT NULL, machine TEXT NOT NULL,
        scenario_name TEXT NOT NULL, scenario_digest TEXT NOT NULL, record_version INTEGER NOT NULL,
        comparison_version INTEGER NOT NULL, samples INTEGER NOT NULL)""",
    """CREATE TABLE figures (
        record_id INTEGER NOT NULL REFERENCES records (id) ON DELETE CASCADE, cell TEXT NOT NULL, arm TEXT NOT NULL,
        metric TEXT NOT NULL, value {double}, low {double}, high {double}, n INTEGER NOT NULL,
        unit TEXT NOT NULL, better TEXT NOT NULL, reason TEXT, PRIMARY KEY (record_id, cell, arm, metric))""",
)
"""As the program made it then; SQLite and PostgreSQL name two types differently."""
OWN_WORDS = {
    "sqlite": {"{key}": "INTEGER NOT NULL PRIMARY KEY", "{double}": "DOUBLE"},
    "postgresql": {"{key}": "INTEGER GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY", "{double}": "DOUBLE PRECISION"},
}


def make_first_form(where: str) -> None:
    """A history as the first version of the schema had it, empty."""
    engine = open_engine(database_url(where))
    with engine.execution_options(sbd_writes=True).begin() as connection:
        for statement in FIRST_FORM:
            for word, own in OWN_WORDS[connection.dialect.name].items():
                statement = statement.replace(word, own)
            connection.execute(text(statement))
    engine.dispose()


def test_an_upgrade_leads_to_the_tables_that_are_used(where: str, tmp_path: Path) -> None:
    """Column by column what the tables of the program would be made as, and the index that a trend is read from."""
    make_first_form(where)
    with History(where) as history, history.reading() as connection:
        (index,) = (one for one in inspect(connection).get_indexes("figures") if not one["unique"])
        assert index["column_names"] == ["metric", "cell", "arm", "record_id", "value"]
        made = connection.dialect.name
    if made == "postgresql":
        import psycopg

        other = where.replace("/history_", "/other_")
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {database_url(other).database}")  # type: ignore[call-overload]
    else:
        other = str(tmp_path / "other.sqlite")
    engine = open_engine(database_url(other))
    METADATA.create_all(engine)
    engine.dispose()
    assert _columns(where) == _columns(other)


def test_a_database_of_the_first_form_is_brought_up_to_date(where: str) -> None:
    """Its records stay, what they did not have is absent, and new ones can be added."""
    make_first_form(where)
    engine = open_engine(database_url(where))
    with engine.execution_options(sbd_writes=True).begin() as connection:
        connection.execute(
            text(
                "INSERT INTO records (run_id, path, measured_at, added_at, revision, fingerprint, machine, scenario_name, "
                "scenario_digest, record_version, comparison_version, samples) VALUES ('old', '/old', "
                "'2026-01-01T00:00:00+00:00', "
                f"'2026-01-02T00:00:00+00:00', '{commit(0)}', 'f', 'm', 's', 'd', 1, 1, 7)"
            )
        )
        connection.execute(
            text("INSERT INTO figures SELECT id, 'c', 'a', 'wall_speedup', 3, 2, 4, 40, 'x', 'higher', NULL FROM records")
        )
    engine.dispose()
    with History(where) as history:
        old = history.record("old")
        assert (old.revision.committed_at, old.software, old.figures[0].value) == (None, {}, 3.0)
        assert history.add(record(1, figure(3.0))) == "added"
        with history.reading() as connection:
            assert connection.execute(text("SELECT version FROM schema_version")).scalars().all() == [SCHEMA_VERSION]


def test_an_upgrade_that_fails_leaves_the_database_as_it_was(where: str) -> None:
    """Half of it was done: after the failure neither its column nor its number is there."""
    make_first_form(where)
    before = _columns(where)
    engine = open_engine(database_url(where))
    with pytest.raises(DBAPIError):
        bring_up_to_date(engine, where, {1: ("ALTER TABLE records ADD COLUMN committed_at TEXT", "no statement")})
    with engine.connect() as connection:
        assert connection.execute(text("SELECT version FROM schema_version")).scalars().all() == [1]
    engine.dispose()
    assert _columns(where) == before


def test_of_two_programs_that_migrate_at_once_one_waits(tmp_path: Path) -> None:
    """From before the version is read until it is written nobody else may begin; on PostgreSQL see the two processes above."""
    file = tmp_path / "h.sqlite"
    engine = open_engine(database_url(str(file)))
    other = sqlite3.connect(file, isolation_level=None, timeout=0)

    @event.listens_for(engine, "before_cursor_execute")
    def _try_to_begin(connection: Connection, cursor: object, statement: str, *rest: object) -> None:
        if connection.get_execution_options().get("sbd_writes") and not statement.startswith(("BEGIN", "PRAGMA journal_mode")):
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("BEGIN IMMEDIATE")
            tried.append(statement)

    tried: list[str] = []
    bring_up_to_date(engine, str(file))
    assert "schema_version" not in tried[0] and any("CREATE TABLE records" in statement for statement in tried)
    other.close()
    engine.dispose()


def test_a_database_of_a_newer_program_is_refused(where: str) -> None:
    """With what to do; nothing in it is touched."""
    with History(where):
        pass
    engine = open_engine(database_url(where))
    with engine.execution_options(sbd_writes=True).begin() as connection:
        connection.execute(text("UPDATE schema_version SET version = 99"))
    engine.dispose()
    with pytest.raises(UserError, match=r"schema version 99, newer than this program's \d+; upgrade sbd"):
        History(where)


def test_another_programs_database_is_refused(where: str) -> None:
    """A table of the same name without a version is not taken for ours."""
    engine = open_engine(database_url(where))
    with engine.execution_options(sbd_writes=True).begin() as connection:
        connection.execute(text("CREATE TABLE records (tune TEXT)"))
    engine.dispose()
    with pytest.raises(UserError, match="not a history of sbd"):
        History(where)


def test_a_trend_is_the_same_on_both(where: str) -> None:
    """One step, found in what was written and read back."""
    with History(where) as history:
        for one in records_of([3.0] * 12 + [3.3] * 12):
            history.add(one)
        found = trend(history, Wanted(), ["wall_speedup"])
    ((_, change),) = found.found
    assert (change.change.index, change.last_old.commit, change.first_new.commit) == (12, commit(11), commit(12))


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    """A text file, a folder, a place that cannot be."""
    note = tmp_path / "note.sqlite"
    note.write_text("a shopping list, long enough to be read as a page" * 100)
    with pytest.raises(UserError, match="not an SQLite database"):
        History(str(note))
    assert note.read_text().startswith("a shopping list")
    with pytest.raises(UserError, match="is a folder; it must be a regular file"):
        History(str(tmp_path))
    with pytest.raises(StorageError, match="its folder cannot be made"):
        History(str(note / "below" / "it.sqlite"))


def test_a_file_that_another_program_keeps_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waited for, then said."""
    monkeypatch.setattr("harness.regression.history.database.BUSY_S", 0.05)
    file = tmp_path / "h.sqlite"
    with History(str(file)) as history:
        holder = sqlite3.connect(file, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="kept it locked"):
            history.add(record(1))
        assert history.records(Wanted()) == []  # readers do not wait
        holder.close()
        assert history.add(record(1)) == "added"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("mysql://u:secret@h/d", "mysql is not supported; allowed are"),
        ("postgresql+asyncpg://u:secret@h/d", "postgresql\\+asyncpg is not supported"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "would be lost"),
        ("://", "cannot be read as a URL"),
    ],
)
def test_what_names_no_database_is_a_users_mistake(given: str, words: str) -> None:
    """The message says what is allowed and never shows a password."""
    with pytest.raises(UserError, match=words) as caught:
        database_url(given)
    assert "secret" not in str(caught.value)


def test_urls_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file by name or URL is one place; a server's driver is ours to choose, its password is hidden."""
    monkeypatch.chdir(tmp_path)
    assert database_url("h.sqlite") == database_url(f"sqlite:///{tmp_path}/h.sqlite") == database_url("sqlite:///h.sqlite")
    url = database_url("postgresql://u:secret@h/d")
    assert (url.drivername, shown(url)) == ("postgresql+psycopg", "postgresql+psycopg://u:***@h/d")


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    """Said with the server's own reason, not its password."""
    with pytest.raises(StorageError, match="the database refused") as caught:
        History(f"postgresql://u:secret@/d?host={tmp_path}")
    assert "secret" not in str(caught.value)


def test_without_psycopg_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The base installation has no driver for PostgreSQL."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"sbd-bench\[postgres\]"):
        database_url("postgresql://u:secret@h/d")
