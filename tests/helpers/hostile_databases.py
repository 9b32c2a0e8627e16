"""Histories that sbd did not write: other versions, columns with other values, damaged pages, and schemas with other tables.

Each begins as a copy of a sound history. A column takes any value: its table is made anew without types and constraints.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from harness.regression.history.database import FIGURES, RECORDS
from harness.regression.history.store import History
from tests.helpers.fuzzed_files import JUNK
from tests.helpers.hostile_files import LARGE, READ, WRONG, Hostile, Plant, in_place_of
from tests.helpers.synthetic_history import figure, record

DATABASE, RUNS, PAGE = "h.sqlite", 24, 4096
REFUSED = frozenset({2, 5})
LISTS = "WITH RECURSIVE more(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM more{end}) SELECT"


def sound(file: Path) -> Path:
    """A history of RUNS commits with two figures each, in one file without a log beside it."""
    with History(str(file)) as history:
        for number in range(RUNS):
            figures = (
                figure(3.0 + 0.01 * (number % 5)),
                figure(0.02, "time_per_token_s"),
                figure(0.04, "time_per_token_s", "NTP"),
            )
            history.add(record(number, *figures))
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = delete")
    return file


def _sql(*statements: str) -> Plant:
    """Statements of SQL, with no checks of keys."""

    def plant(folder: Path, chance: Random) -> None:
        with closing(sqlite3.connect(folder / DATABASE, isolation_level=None)) as connection:
            for one in statements:
                connection.execute(one)

    return plant


def bindable(value: Any) -> Any:
    """The value as SQLite can hold it: other trees as JSON, text that is no UTF-8 as its bytes."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass") if any("\ud800" <= one <= "\udfff" for one in value) else value
    if isinstance(value, dict | list):
        return json.dumps(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)
    return None if isinstance(value, float) and math.isnan(value) else value


def put(table: str, column: str, value: Any, rows: str = "1") -> Plant:
    """One column of the rows, whatever its type; bytes become a text where they were one."""

    def plant(folder: Path, chance: Random) -> None:
        with closing(sqlite3.connect(folder / DATABASE, isolation_level=None)) as connection:
            _without_rules(connection, table)
            cast = "CAST(? AS TEXT)" if isinstance(value, str) else "?"
            connection.execute(f"UPDATE {table} SET {column} = {cast} WHERE {rows}", (bindable(value),))

    return plant


def _without_rules(connection: sqlite3.Connection, table: str) -> None:
    """The table with the same columns and rows, and no types, keys or checks."""
    columns = ", ".join(row[1] for row in connection.execute(f"PRAGMA table_info({table})"))
    connection.execute(f"CREATE TABLE bare ({columns})")
    connection.execute(f"INSERT INTO bare SELECT * FROM {table}")
    connection.execute(f"DROP TABLE {table}")
    connection.execute(f"ALTER TABLE bare RENAME TO {table}")


def _pages(data: bytes, first: int, count: int, folder: Path, chance: Random) -> None:
    """Whole pages overwritten."""
    file = folder / DATABASE
    whole = bytearray(file.read_bytes())
    for page in range(first, min(first + count, len(whole) // PAGE)):
        whole[page * PAGE : (page + 1) * PAGE] = (data * PAGE)[:PAGE]
    file.write_bytes(whole)


def _header(place: int, data: bytes, folder: Path, chance: Random) -> None:
    file = folder / DATABASE
    whole = file.read_bytes()
    file.write_bytes(whole[:place] + data + whole[place + len(data) :])


def _cut(share: float, folder: Path, chance: Random) -> None:
    data = (folder / DATABASE).read_bytes()
    (folder / DATABASE).write_bytes(data[: int(len(data) * share)])


def _beside(name: str, write: Callable[[Path], object], folder: Path, chance: Random) -> None:
    """A file beside the database, by which SQLite goes on after a crash."""
    write(folder / (DATABASE + name))


def _many(table: str, count: int) -> Plant:
    """So many more rows, all alike but for the id."""
    held = RECORDS if table == "records" else FIGURES
    key, own = ("id", "run_id") if table == "records" else ("record_id", "cell")
    columns = [column.name for column in held.columns]
    values = {key: "x + 100", own: "'x' || x"} if table == "records" else {key: "1", own: "'c' || x"}
    chosen = ", ".join(values.get(name, f"(SELECT {name} FROM {table} LIMIT 1)") for name in columns)
    more = LISTS.format(end=f" WHERE x < {count}")
    return _sql(f"INSERT INTO {table} ({', '.join(columns)}) {more} {chosen} FROM more")


def _as_view(table: str, endless: bool) -> Plant:
    """A view in the place of a table; an endless one yields rows for ever."""
    rows = f"SELECT held.* FROM held, ({LISTS.format(end='')} x FROM more)" if endless else "SELECT * FROM held"
    return _sql(f"ALTER TABLE {table} RENAME TO held", f"CREATE VIEW {table} AS {rows}")


def _versions() -> Iterator[Hostile]:
    values = (-1, 0, 3, 10**18, 2.5, "x", "2x", None, b"\x02", "NaN", 1e300, "9" * 400)
    for value in values:
        yield Hostile(f"the version is {str(value)[:12]!r}", put("schema_version", "version", value), exits=REFUSED)
    plants = {
        "the version is that of the first form": put("schema_version", "version", 1),
        "two versions": _sql("INSERT INTO schema_version VALUES (2)"),
        "no version": _sql("DELETE FROM schema_version"),
        "no table of versions": _sql("DROP TABLE schema_version"),
        "a million versions": _sql(f"INSERT INTO schema_version {LISTS.format(end=' WHERE x < 1000000')} 2 FROM more"),
        "versions without end": _as_view("schema_version", endless=True),
    }
    yield from (Hostile(what, plant, exits=REFUSED) for what, plant in plants.items())


VALUES = (
    None,
    "",
    "x",
    -1,
    0,
    10**9,
    2**62,
    0.5,
    math.inf,
    1e308,
    "\ud800",
    b"\x00\xff",
    "\x1b[31mhstl7\n::error::hstl7",
    "[" * 3000,
    "</script><hstl7>",
    '{"a": 1}',
    "x" * 100_000,
    "2026-13-45T99:99:99",
    "9" * 400,
    "\x00hstl7",
)


def _columns() -> Iterator[Hostile]:
    """Every column with values in turn, in all rows or in one."""
    turn = 0
    for table in (RECORDS, FIGURES):
        for column in table.columns:
            for step in range(5):
                value = VALUES[(turn * 3 + step * 4) % len(VALUES)]
                one = (turn + step) % 3 == 0
                rows = "rowid = 7" if one else "1"
                what = f"{table.name}.{column.name} is {str(value)[:20]!r} in {'one row' if one else 'all'}"
                yield Hostile(what, put(table.name, column.name, value, rows))
            turn += 1
    for value in ("{", "[]", "null", '{"a": "\\ud800"}', '{"a": 1}', '{"a": {"b": []}}', "[" * 100_000, '{"a": 1e999}'):
        yield Hostile(f"software is {value[:12]!r}", put("records", "software", value))
    for value in (2**31, 2**40, 2**62, -1, -(2**63)):
        yield Hostile(f"a row has the id {value}", _sql(f"UPDATE records SET id = {value} WHERE id = 5"))


def _files() -> Iterator[Hostile]:
    for share in (0.0, 0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99):
        exits = READ if share == 0 else REFUSED  # an empty file is a new database
        yield Hostile(f"cut at {share}", partial(_cut, share), exits=exits)
    for data in (b"\x00", b"\xff", b"{}"):
        for first, count in ((0, 1), (1, 1), (2, 1), (3, 1), (4, 2), (6, 4), (1, 99)):
            yield Hostile(f"{count} pages from {first} are {data!r}", partial(_pages, data, first, count))
    for place, data in (
        (0, b"x"),
        (16, b"\x00\x01"),
        (16, b"\xff\xff"),
        (18, b"\x09\x09"),
        (20, b"\xff"),
        (24, b"\xff" * 4),
        (28, b"\xff" * 4),
        (32, b"\x00\x00\x00\x02\x00\x00\x00\x09"),
        (40, b"\xff" * 4),
        (44, b"\xff" * 4),
        (56, b"\x00\x00\x00\x03"),
        (56, b"\xff" * 4),
        (100, b"\x05"),
        (100, b"\xff" * 12),
    ):
        yield Hostile(f"byte {place} begins {data!r}", partial(_header, place, data))
    for name, write in {**WRONG, **LARGE}.items():
        if not name.startswith(("text ", "a link to /dev")):  # a database may lie behind a link
            yield Hostile(f"in its place: {name}", in_place_of(write, DATABASE))
    beside = ("noise", "a pipe", "a folder", "a link to /dev/zero", "0xff")
    for suffix in ("-wal", "-shm", "-journal"):
        for name in beside:
            yield Hostile(f"{suffix} beside it: {name}", partial(_beside, suffix, WRONG[name]))


SCHEMAS: dict[str, Plant] = {
    **{f"{table} is a view": _as_view(table, endless=False) for table in ("records", "figures")},
    **{f"{table} has no end": _as_view(table, endless=True) for table in ("records", "figures")},
    **{f"no table {table}": _sql(f"DROP TABLE {table}") for table in ("records", "figures")},
    "a trigger that empties the table": _sql(
        "CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM records; DELETE FROM figures; END"
    ),
    "a trigger that refuses": _sql("CREATE TRIGGER t BEFORE INSERT ON records BEGIN SELECT RAISE(ABORT, 'hstl7'); END"),
    "a trigger that ignores": _sql("CREATE TRIGGER t BEFORE INSERT ON records BEGIN SELECT RAISE(IGNORE); END"),
    "a trigger that changes": _sql("CREATE TRIGGER t AFTER INSERT ON figures BEGIN UPDATE figures SET value = 9; END"),
    "a trigger without end": _sql(
        "CREATE TRIGGER t AFTER INSERT ON records BEGIN INSERT INTO schema_version SELECT 2 FROM "
        f"({LISTS.format(end='')} x FROM more); END"
    ),
    "another program's": _sql(
        "DROP TABLE records", "DROP TABLE figures", "DROP TABLE schema_version", "CREATE TABLE users (a)"
    ),
    "another program's versions": _sql(
        "DROP TABLE schema_version", "CREATE TABLE schema_version (a, b)", "INSERT INTO schema_version VALUES (1, 2)"
    ),
    "a column more": _sql("ALTER TABLE records ADD COLUMN hstl7 TEXT NOT NULL DEFAULT 'x'"),
    "a computed column": _sql("ALTER TABLE figures ADD COLUMN hstl7 AS (zeroblob(1000000000))"),
    "an index of another order": _sql("DROP INDEX figures_of_a_metric", "CREATE INDEX figures_of_a_metric ON figures (unit)"),
    "no index": _sql("DROP INDEX figures_of_a_metric"),
    "runs twice": _sql(
        "CREATE TABLE kept AS SELECT * FROM records",
        "DROP TABLE records",
        "CREATE TABLE records AS SELECT * FROM kept",
        "INSERT INTO records SELECT * FROM kept",
    ),
    "figures of no run": _sql("UPDATE figures SET record_id = record_id + 1000"),
    "one text of 500 MB": _sql("UPDATE records SET machine = CAST(zeroblob(500000000) AS TEXT) WHERE id = 3"),
    "many texts of 20 MB": _sql("UPDATE records SET path = replace(hex(zeroblob(10000000)), '00', 'xx')"),
    "300,000 runs": _many("records", 300_000),
    "a million figures": _many("figures", 1_000_000),
    "a collation that is not there": _sql(
        "PRAGMA writable_schema = on",
        "UPDATE sqlite_master SET sql = replace(sql, 'path TEXT', 'path TEXT COLLATE hstl7') WHERE name = 'records'",
    ),
    "a schema that is no SQL": _sql(
        "PRAGMA writable_schema = on", "UPDATE sqlite_master SET sql = 'hstl7' WHERE name = 'figures'"
    ),
    "a schema of 1 MB": _sql(
        "PRAGMA writable_schema = on",
        "UPDATE sqlite_master SET sql = sql || ' /* ' || hex(zeroblob(500000)) || ' */' WHERE name = 'figures'",
    ),
    "a check that fails": _sql(
        "PRAGMA writable_schema = on",
        "UPDATE sqlite_master SET sql = replace(sql, 'path TEXT', 'path TEXT CHECK (path = 1)') WHERE name = 'records'",
    ),
}


def _without_column(table: str, name: str, folder: Path, chance: Random) -> None:
    with closing(sqlite3.connect(folder / DATABASE, isolation_level=None)) as connection:
        connection.execute("DROP INDEX figures_of_a_metric")
        _without_rules(connection, table)
        connection.execute(f"ALTER TABLE {table} DROP COLUMN {name}")


def _listed() -> Iterator[Hostile]:
    yield from _versions()
    yield from _columns()
    yield from _files()
    yield from (Hostile(what, plant) for what, plant in SCHEMAS.items())
    for table in (RECORDS, FIGURES):
        for column in table.columns:
            without = partial(_without_column, table.name, column.name)
            yield Hostile(f"{table.name} lacks {column.name}", without, exits=REFUSED)


HOSTILE = list(_listed())


def random_value(folder: Path, chance: Random) -> None:
    """Any column with any junk, in some rows; each value as often."""
    table = chance.choice((RECORDS, FIGURES))
    for _ in range(chance.randint(1, 3)):
        column = chance.choice([column.name for column in table.columns])
        rows = chance.choice(("1", "rowid % 2", "rowid = 3", "rowid = 24"))
        put(table.name, column, chance.choice((*JUNK, *VALUES)), rows)(folder, chance)
