"""Databases of runs that another program, a crash or somebody on purpose left: each is read, or refused by its name."""

from __future__ import annotations

import fcntl
import shutil
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.hostile.cases import Case, Place
from benchmarks.hostile.words import check_page, check_terminal
from benchmarks.hostile.world import World, copied
from tests.helpers.fuzzed_files import damage
from tests.helpers.hostile_databases import DATABASE, HOSTILE, random_value, sound
from tests.helpers.hostile_files import Hostile

RANDOM = 80
COUNT = len(HOSTILE) + RANDOM
READERS: tuple[tuple[str, ...], ...] = (
    ("list", "--limit", "100"),
    ("show", "00000007"),
    ("trend",),
    ("list", "--json"),
    ("trend", "--html", "trend.html"),
    ("show", "00000007", "--json"),
    ("trend", "--json"),
    ("rebuild",),
)


def case(world: World, number: int, chance: Random) -> Case:
    """Listed ones, then values and bytes at random."""
    one = HOSTILE[number] if number < len(HOSTILE) else _random(chance)
    return Case(one.what, partial(_read, world, one, number, chance))


def _random(chance: Random) -> Hostile:
    return Hostile("values changed", random_value) if chance.random() < 0.7 else Hostile("bytes changed", _bytes)


def _bytes(folder: Path, chance: Random) -> None:
    (folder / DATABASE).write_bytes(damage(chance, (folder / DATABASE).read_bytes()))


def made_once(file: Path, make: partial[Path]) -> Path:
    """A file or folder of the world, made by the first process that asks."""
    with file.with_name(f"{file.name}.lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        if not file.exists():
            make()
    return file


def _read(world: World, one: Hostile, number: int, chance: Random, place: Place) -> None:
    """Two readers and a writer, in turn by the number."""
    shutil.copy(made_once(world.root / DATABASE, partial(sound, world.root / DATABASE)), place.here / DATABASE)
    good = copied(place, world.good, "good")
    one.plant(place.here, chance)
    commands = [READERS[number % len(READERS)], READERS[(number + 3) % len(READERS)]]
    if number % 3 == 0:
        commands.append(("add", str(good)))
    for words in commands:
        ended = place.sbd("history", *words, "--db", DATABASE, exits=one.exits, names=DATABASE)
        check_terminal(place, ended, controls="--json" not in words)
        check_page(place, place.here / "trend.html")
