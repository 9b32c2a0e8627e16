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

from benchmarks.hostile.cases import Case, Place
from benchmarks.hostile.world import CONFIRMED, OLDER, PUBLISHED, REFUTED, World, copied
from tests.helpers.fuzzed_files import damage, mutate

COUNT = 560
HEADER, SAMPLES, PACKED, EVENTS = "run.json", "samples.jsonl", "samples.jsonl.gz", "events.jsonl"


def case(world: World, number: int, chance: Random) -> Case:
    """Of the sound record, of the published one and of every version in turn."""
    older = [*sorted(OLDER.glob("v*")), PUBLISHED]
    source = world.good if number % 4 else older[number // 4 % len(older)]
    name, change = CHANGES[number % len(CHANGES)]
    what = f"{name}: {change.__name__[1:]} changed, {source.name}"
    return Case(what, partial(_read, source, partial(change, name), number, chance, world.good))


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


CHANGES: tuple[tuple[str, Callable[[str, Path, Random], None]], ...] = (
    (HEADER, _tree),
    (SAMPLES, _lines),
    (EVENTS, _lines),
    (SAMPLES, _bytes),
    (PACKED, _bytes),
    (HEADER, _bytes),
)
