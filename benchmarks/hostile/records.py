"""Damaged records: bytes and places of every file of a run, read by every command that reads one.

A sound record is confirmed on one claim and refuted on another. A damaged one may be refused, void or inconclusive, or be
judged the same; the opposite verdict is wrong.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.hostile.cases import Case, Place
from benchmarks.hostile.world import CONFIRMED, OLDER, PUBLISHED, REFUTED, World, copied
from tests.helpers.fuzzed_files import JSON_TEXTS, damage, mutate

COUNT = 560
HEADER, SAMPLES, PACKED, EVENTS = "run.json", "samples.jsonl", "samples.jsonl.gz", "events.jsonl"
FILES = (HEADER, SAMPLES, PACKED, EVENTS)
Change = Callable[[Path, Random], None]
FIGURES: tuple[Any, ...] = (
    -1.0,
    0.0,
    1e-300,
    1e300,
    "Infinity",
    "-Infinity",
    "NaN",
    1e400,
    10**30,
    "0.1",
    None,
    [],
    {},
    True,
    "",
)
PATHS = (
    "decode_s",
    "prefill_s",
    "load_1min",
    "seed",
    "group",
    "repeat",
    "process",
    "rows",
    "passes",
    "started_at",
    "case_id",
    "meters",
)
BOMB_BYTES = 3 << 30


def case(world: World, number: int, chance: Random) -> Case:
    """Listed damage, then random damage of each file."""
    listed = _listed()
    command = number % len(COMMANDS)
    if number < len(listed):
        what, change = listed[number]
        return Case(what, partial(_read, world.good, change, command, chance, world.good))
    number -= len(listed)
    older = [*sorted(OLDER.glob("v*")), PUBLISHED]
    source = world.good if number % 4 else older[number // 4 % len(older)]
    changes: tuple[tuple[str, Callable[[str, Path, Random], None]], ...] = (
        (HEADER, _tree),
        (SAMPLES, _lines),
        (EVENTS, _lines),
        (SAMPLES, _bytes),
        (PACKED, _bytes),
        (HEADER, _bytes),
    )
    name, random_change = changes[number % 6]
    return Case(
        f"{name}: {random_change.__name__[1:]} changed, {source.name}",
        partial(_read, source, partial(random_change, name), number, chance, world.good),
    )


def _listed() -> list[tuple[str, Change]]:
    found: list[tuple[str, Change]] = []
    for name in FILES:
        found += [(f"{name}: {text[:20]!r}", partial(_text, name, text)) for text in JSON_TEXTS]
        found += [(f"{name}: cut at {share}", partial(_cut, name, share)) for share in (0.0, 0.01, 0.5, 0.99, 0.9999)]
    for path in PATHS:
        found += [(f"{path} is {value!r}", partial(_figure, path, value)) for value in FIGURES]
    found += [
        ("a bomb of 3 GiB", _bomb),
        ("a bomb of one line", partial(_bomb, line=True)),
        ("half of the lines twice", _twice),
    ]
    found += [("two gzip members", _members), ("lines in reverse", _reversed), ("U+2028 and U+0085 in a text", _separators)]
    found += [("a line of 50 MB", _long), ("an empty folder", _emptied), ("no samples", _sampleless), ("a deep event", _deep)]
    return found


def _read(source: Path, change: Callable[[Path, Random], None], number: int, chance: Random, good: Path, place: Place) -> None:
    run = copied(place, source)
    change(run, chance)
    before = _contents(run)
    if source == good:
        for claim, wrong in ((CONFIRMED, 1), (REFUTED, 0))[:: 1 if number % 2 else -1][: 1 + (number % 3 == 0)]:
            ended = place.sbd("verify", run, "--claim", claim)
            if ended.code == wrong:
                place.found("wrong_verdicts", f"{claim}: ended with {wrong}")
    COMMANDS[number % len(COMMANDS)](place, run, good)
    for name, data in before.items():
        if not (run / name).is_file() or (run / name).read_bytes() != data:
            place.found("lost", f"{name} was changed by a command that reads")


def _contents(run: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in sorted(run.iterdir())}


def _published(place: Place, run: Path, good: Path) -> None:
    """A copy holds every whole line, or there is none."""
    target = place.here / "published"
    ended = place.sbd("publish", run, target)
    if ended.code == 0:
        place.sbd("verify", target)
        place.sbd("publish", target, target)
        place.sbd("report", target, "--json")


def _kept(place: Place, run: Path, good: Path) -> None:
    database = str(place.here / "history.sqlite")
    if place.sbd("history", "add", run, "--db", database).code == 0:
        place.sbd("history", "list", "--db", database)
        place.sbd("history", "trend", "--db", database)


def _of(*words: str) -> Callable[[Place, Path, Path], None]:
    def act(place: Place, run: Path, good: Path) -> None:
        places = {"RUN": run, "GOOD": good}
        place.sbd(*(places.get(word, word) for word in words))

    return act


COMMANDS: tuple[Callable[[Place, Path, Path], None], ...] = (
    _of("verify", "RUN"),
    _of("report", "RUN", "--json"),
    _published,
    _of("compare", "GOOD", "RUN"),
    _of("gate", "RUN", "GOOD"),
    _kept,
    _of("capacity", "--model", "llama-3.1-8b", "--hardware", "h100-sxm", "--from-run", "RUN"),
    _of("report", "RUN", "--out", "page.html"),
    _of("roofline", "--model", "llama-3.1-8b", "--hardware", "h100-sxm", "--from-run", "RUN"),
    _of("gate", "GOOD", "RUN", "--deterministic-only"),
    _of("report", "GOOD", "RUN", "--json"),
)


def _samples_of(run: Path) -> list[bytes]:
    packed, plain = run / PACKED, run / SAMPLES
    data = (gzip.decompress(packed.read_bytes()) if packed.exists() else b"") + (plain.read_bytes() if plain.exists() else b"")
    return data.splitlines(keepends=True)


def _put_samples(run: Path, lines: list[bytes], name: str = SAMPLES) -> None:
    for one in (SAMPLES, PACKED):
        (run / one).unlink(missing_ok=True)
    data = b"".join(lines)
    (run / name).write_bytes(gzip.compress(data, 1) if name == PACKED else data)


def _file(run: Path, name: str) -> bytes:
    """What the file holds; samples are packed or unpacked to the name that is asked for."""
    if name in (SAMPLES, PACKED):
        _put_samples(run, _samples_of(run), name)
    return (run / name).read_bytes()


def _text(name: str, text: str, run: Path, chance: Random) -> None:
    _file(run, name)
    data = text.encode() + b"\n"
    (run / name).write_bytes(gzip.compress(data, 1) if name == PACKED and len(text) % 2 else data)


def _cut(name: str, share: float, run: Path, chance: Random) -> None:
    data = _file(run, name)
    (run / name).write_bytes(data[: int(len(data) * share)])


def _bytes(name: str, run: Path, chance: Random) -> None:
    (run / name).write_bytes(damage(chance, _file(run, name)))


def _tree(name: str, run: Path, chance: Random) -> None:
    (run / name).write_text(json.dumps(mutate(chance, json.loads(_file(run, name)))))


def _lines(name: str, run: Path, chance: Random) -> None:
    """One line of the file changed, somewhere inside."""
    lines = _file(run, name).split(b"\n")[:-1]
    if lines:
        place = chance.randrange(len(lines))
        lines[place] = json.dumps(mutate(chance, json.loads(lines[place]))).encode()
    (run / name).write_bytes(b"".join(line + b"\n" for line in lines))


def _figure(path: str, value: Any, run: Path, chance: Random) -> None:
    """One value of one sample; an infinite one is written as JSON's dialects do, 1e400 as a number that is too large."""
    lines = _samples_of(run)
    place = chance.randrange(len(lines))
    sample = json.loads(lines[place]) | {path: "PUT"}
    text = value if value in ("Infinity", "-Infinity", "NaN") else "1e400" if value == float("inf") else json.dumps(value)
    lines[place] = json.dumps(sample).replace('"PUT"', text).encode() + b"\n"
    _put_samples(run, lines)


def _bomb(run: Path, chance: Random, line: bool = False) -> None:
    _put_samples(run, _samples_of(run), PACKED)
    piece = gzip.compress((b" " * ((1 << 20) - 1) + (b" " if line else b"\n")) * 64, 9)
    with (run / PACKED).open("ab") as file:
        for _ in range(BOMB_BYTES >> 26):
            file.write(piece)


def _twice(run: Path, chance: Random) -> None:
    lines = _samples_of(run)
    _put_samples(run, lines + lines[: len(lines) // 2])


def _members(run: Path, chance: Random) -> None:
    lines = _samples_of(run)
    _put_samples(run, [])
    (run / PACKED).write_bytes(gzip.compress(b"".join(lines[:5])) + gzip.compress(b"".join(lines[5:])))


def _reversed(run: Path, chance: Random) -> None:
    _put_samples(run, _samples_of(run)[::-1])


def _separators(run: Path, chance: Random) -> None:
    lines = [line.replace(b'"p0"', '"p0\u2028\x85\u2029"'.encode()) for line in _samples_of(run)]
    _put_samples(run, lines)


def _long(run: Path, chance: Random) -> None:
    with (run / EVENTS).open("ab") as file:
        file.write(b'{"session": {"event": "x", "text": "' + b"x" * 50_000_000 + b'"}}\n')


def _deep(run: Path, chance: Random) -> None:
    with (run / EVENTS).open("ab") as file:
        file.write(b'{"session": {"event": ' + b"[" * 180 + b"]" * 180 + b"}}\n")


def _emptied(run: Path, chance: Random) -> None:
    for one in run.iterdir():
        one.unlink()


def _sampleless(run: Path, chance: Random) -> None:
    (run / SAMPLES).unlink()
