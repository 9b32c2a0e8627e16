"""Databases that sbd did not leave so: each is told with its place and the remedy, and not written to."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from harness.errors import StorageError, UserError
from harness.regression.history import series
from harness.regression.history.store import History, Wanted
from harness.regression.history.trend import trend
from tests.helpers.synthetic_history import figure, record

HUGE = 10 * 2**30


def made(place: Path) -> Path:
    """A history of some runs, its log emptied."""
    with History(str(place)) as history:
        for number in range(30):
            history.add(record(number, figure(3.0), figure(0.01, "time_per_token_s")))
    sql("PRAGMA wal_checkpoint(TRUNCATE)")(place)
    return place


def sql(*statements: str) -> Callable[[Path], object]:
    """Run them on the file."""

    def change(place: Path) -> None:
        with closing(sqlite3.connect(place, isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)

    return change


def read_whole(place: Path) -> None:
    """List, show, add and follow, as the commands do."""
    with History(str(place)) as history:
        history.records(Wanted())
        history.record(record(7).run_id)
        trend(history, Wanted(), ["wall_speedup", "time_per_token_s"])
        history.add(record(7, figure(3.0), samples=200))


def zeros(place: Path) -> None:
    """A page in the middle."""
    with place.open("r+b") as file:
        file.seek(4096 * 5)
        file.write(bytes(4096))


def garble(place: Path) -> None:
    """SQLite quotes its schema in an error, which Python then cannot read."""
    place.write_bytes(place.read_bytes().replace(b"CREATE TABLE figures", b"CREATE TABLE\xff\xe9igures"))


SHORT_INDEX = (
    "PRAGMA writable_schema = on",
    "CREATE TABLE aside AS SELECT * FROM sqlite_master WHERE name = 'figures_of_a_metric'",
    "DELETE FROM sqlite_master WHERE name = 'figures_of_a_metric'",
    "PRAGMA writable_schema = reset",
    "DELETE FROM figures WHERE record_id = 7",
    "PRAGMA writable_schema = on",
    "INSERT INTO sqlite_master SELECT * FROM aside",
    "DROP TABLE aside",
    "PRAGMA writable_schema = reset",
)
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "version text": (sql("UPDATE schema_version SET version = 'two'"), "schema_version.version holds 'two'"),
    "version blob": (sql("UPDATE schema_version SET version = x'0001'"), "schema_version.version holds"),
    "software": (sql("UPDATE records SET software = '{\"a\": 1}' WHERE id = 8"), "records.software holds"),
    "deep": (sql("UPDATE records SET software = printf('%.*c', 100000, '[') WHERE id = 8"), "records.software holds"),
    "long number": (sql("UPDATE records SET software = printf('%.*c', 10000, '9') WHERE id = 8"), "records.software holds"),
    "empty": (sql("UPDATE records SET software = '' WHERE id = 8"), "records.software holds"),
    "time": (sql("UPDATE records SET measured_at = 'yesterday' WHERE id = 8"), "records.measured_at holds 'yesterday'"),
    "name": (sql("UPDATE records SET machine = x'ff00' WHERE id = 8"), "records.machine holds"),
    "no UTF-8": (sql("UPDATE records SET machine = CAST(x'ff80' AS TEXT) WHERE id = 8"), "Could not decode"),
    "samples": (sql("UPDATE records SET samples = 'many' WHERE id = 8"), "records.samples holds 'many'"),
    "figure": (sql("UPDATE figures SET value = 'much' WHERE record_id = 8"), "figures.value holds 'much'"),
    "infinite": (sql("UPDATE figures SET value = 9e999 WHERE record_id = 8"), "figures.value holds inf"),
    "cell": (sql("UPDATE figures SET cell = x'00' WHERE record_id = 8"), "figures.cell holds"),
    "great id": (sql("UPDATE records SET id = 4000000000000000000 WHERE id = 8"), "records.id holds 4000000000000000000"),
    "negative id": (sql("UPDATE records SET id = -5 WHERE id = 8"), "records.id holds -5"),
    "long text": (sql("UPDATE records SET machine = printf('%.*c', 20000000, 'x') WHERE id = 8"), "too big"),
    "trigger": (sql("CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM figures; END"), "a trigger is not as sbd"),
    "index": (sql(*SHORT_INDEX), "an index or a trigger is not as sbd"),
    "column": (sql("ALTER TABLE records DROP COLUMN branch"), "no such column"),
    "cut off": (lambda place: os.truncate(place, 20_000), "restore it from a backup"),
    "page of zeros": (zeros, "restore it from a backup"),
    "schema of no UTF-8": (garble, "restore it from a backup"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_told_with_the_remedy(damage: str, tmp_path: Path) -> None:
    """The place, what is wrong, and what to do; the file is as it was."""
    place = made(tmp_path / "h.sqlite")
    change, words = DAMAGES[damage]
    change(place)
    before = place.read_bytes()
    with pytest.raises(StorageError) as refused:
        read_whole(place)
    said = str(refused.value)
    assert said.startswith(str(place)) and words in said and "restore it from a backup, or give another --db" in said
    assert len(said) < 800 and place.read_bytes() == before


def test_the_first_wrong_value_of_a_column_is_told_alone(tmp_path: Path) -> None:
    """A million errors took 1.5 GB."""
    place = made(tmp_path / "h.sqlite")
    sql("UPDATE records SET machine = x'00'")(place)
    with pytest.raises(StorageError) as refused:
        read_whole(place)
    assert refused.value.__cause__.error_count() == 1


def test_figures_of_no_run_are_in_no_series(tmp_path: Path) -> None:
    """Their run was removed by another program."""
    place = made(tmp_path / "h.sqlite")
    sql("PRAGMA foreign_keys = off", "UPDATE figures SET record_id = record_id + 1000")(place)
    with History(str(place)) as history:
        assert trend(history, Wanted(), ["wall_speedup"]).judged == ()


def test_more_series_than_a_trend_can_have_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million cells; a part of them may be asked for."""
    place = made(tmp_path / "h.sqlite")
    monkeypatch.setattr(series, "MOST_SERIES", 1)
    with History(str(place)) as history:
        assert len(trend(history, Wanted(), ["wall_speedup"]).judged) == 1
        with pytest.raises(UserError, match=rf"{place}: has more than 1 series; ask for fewer"):
            trend(history, Wanted(), ["wall_speedup", "time_per_token_s"])
        assert trend(history, Wanted(scenario="none"), ["wall_speedup", "time_per_token_s"]).judged == ()


OTHERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "version -1": (sql("UPDATE schema_version SET version = -1"), "not a history of sbd"),
    "no version": (sql("DELETE FROM schema_version"), "not a history of sbd"),
    "view": (sql("ALTER TABLE figures RENAME TO f", "CREATE VIEW figures AS SELECT * FROM f"), "not a history of sbd"),
    "zeros": (lambda place: (os.truncate(place, 0), os.truncate(place, HUGE)), "not an SQLite database"),
    "pipe": (lambda place: (place.unlink(), os.mkfifo(place)), "is a pipe"),
    "device": (lambda place: (place.unlink(), place.symlink_to("/dev/zero")), "is a device"),
    "circle": (lambda place: (place.unlink(), place.symlink_to(place)), "is a symbolic link"),
    "log that is a pipe": (lambda place: os.mkfifo(f"{place}-wal"), "is a pipe"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_what_is_no_history_is_the_users_mistake(other: str, tmp_path: Path) -> None:
    """Another program's database, or no file at all."""
    place = made(tmp_path / "h.sqlite")
    change, words = OTHERS[other]
    change(place)
    with pytest.raises(UserError, match=words):
        read_whole(place)


@pytest.mark.parametrize(
    "change",
    [
        lambda place: os.truncate(place, HUGE),
        lambda place: Path(f"{place}-wal").write_bytes(os.urandom(100_000)),
        lambda place: None,
    ],
    ids=["room behind it", "a log that is no log", "a link to it"],
)
def test_what_is_whole_is_read(change: Callable[[Path], object], tmp_path: Path) -> None:
    """Room on the disk that is not used, a log that SQLite knows to be none, a name that leads to the file."""
    change(made(tmp_path / "h.sqlite"))
    (tmp_path / "link").symlink_to(tmp_path / "h.sqlite")
    read_whole(tmp_path / "link")


def test_a_link_makes_no_folder_elsewhere(tmp_path: Path) -> None:
    """The folder is made where the name says, not where it leads to."""
    (tmp_path / "link").symlink_to(tmp_path / "absent" / "h.sqlite")
    with pytest.raises((UserError, StorageError)):
        read_whole(tmp_path / "link")
    assert not (tmp_path / "absent").exists()


def test_another_programs_file_is_left_as_it_is(tmp_path: Path) -> None:
    """Its journal's mode is its own."""
    place = tmp_path / "tunes.sqlite"
    sql("CREATE TABLE tunes (name TEXT)", "CREATE TABLE records (name TEXT)")(place)
    before = place.read_bytes()
    with pytest.raises(UserError, match="not a history of sbd"):
        read_whole(place)
    assert place.read_bytes() == before
