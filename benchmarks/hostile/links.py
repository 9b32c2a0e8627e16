"""Links, devices, pipes and folders in place of every file of a run and of every output.

Through none of them anything of the user's is read into a page or a copy, written or replaced, and no command waits for a pipe.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.hostile.cases import SECRET, Case, Place
from benchmarks.hostile.world import World, copied
from tests.helpers.hostile_files import WRONG

Plant = Callable[[Path, Place], None] | None
OF_A_RUN = (
    "run.json",
    "samples.jsonl",
    "samples.jsonl.gz",
    "events.jsonl",
    ".begun",
    "report.html",
    "report.json",
    "side_by_side.html",
)
READERS: tuple[tuple[str, ...], ...] = (
    ("verify", "RUN"),
    ("report", "RUN"),
    ("publish", "RUN", "TARGET"),
    ("publish", "RUN", "RUN"),
    ("publish", "GOOD", "RUN"),
    ("report", "GOOD", "RUN"),
)
OUTPUTS: tuple[tuple[str, ...], ...] = (
    ("report", "GOOD", "--out", "OUT"),
    ("report", "GOOD", "--markdown", "OUT"),
    ("report", "GOOD", "GOOD", "--out", "OUT"),
    ("verify", "GOOD", "--to", "json=OUT"),
    ("verify", "GOOD", "--to", "junit=OUT"),
    ("gate", "GOOD", "GOOD", "--to", "markdown=OUT"),
    ("gate", "GOOD", "GOOD", "--to", "github=OUT"),
    ("publish", "GOOD", "OUT"),
    ("history", "add", "GOOD", "--db", "OUT"),
    ("history", "trend", "--db", "h.sqlite", "--html", "OUT"),
    ("gallery", "FOLDER"),
)


def _link(path: Path, place: Place) -> None:
    path.symlink_to(place.mine)


def _relative(path: Path, place: Place) -> None:
    path.symlink_to(os.path.relpath(place.mine, path.parent))


def _chain(path: Path, place: Place) -> None:
    between = path.with_name(f"{path.name}.between")
    between.symlink_to(place.mine)
    path.symlink_to(between)


def _dangling(path: Path, place: Place) -> None:
    path.symlink_to(place.root / "absent.txt")


def _to_folder(path: Path, place: Place) -> None:
    path.symlink_to(place.root)


def _device(path: Path, place: Place) -> None:
    """A node of our own for the null device; a link to a full one where nodes may not be made."""
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        path.symlink_to("/dev/null")


def _hard(path: Path, place: Place) -> None:
    os.link(place.mine, path)


PLANTED: dict[str, Plant] = {
    "a link": _link,
    "a relative link": _relative,
    "a chain": _chain,
    "a link to nothing": _dangling,
    "a link to itself": None,
    "a link to a folder": _to_folder,
    "a link to /dev/zero": None,
    "a folder": None,
    "a pipe": None,
    "a device": _device,
    "a socket": None,
    "a hard link": _hard,
}
"""What lies in a file's place; where nothing is named, it is one of tests/helpers/hostile_files."""
OF_RUNS = [(name, what, command) for name in OF_A_RUN for what in PLANTED for command in READERS]
OF_OUTPUTS = [
    (command, what) for command in OUTPUTS for what in PLANTED if (command[0], what) != ("history", "a link to nothing")
]
"""A database is the user's own, and may lie behind a link."""
COUNT = len(OF_OUTPUTS) + len(OF_RUNS) // 3


def case(world: World, number: int, chance: Random) -> Case:
    """Every output with everything in its place; then a third of a run's files by commands, spread evenly."""
    if number < len(OF_OUTPUTS):
        command, what = OF_OUTPUTS[number]
        return Case(f"{what} as {' '.join(command)}", partial(_written, world, command, what))
    name, what, command = OF_RUNS[3 * (number - len(OF_OUTPUTS)) + (number + number // 2) % 3]
    return Case(f"{what} in place of {name}: {' '.join(command)}", partial(_read, world, name, what, command))


def _plant(what: str, path: Path, place: Place) -> int:
    """Make it; returns its kind of file."""
    if plant := PLANTED[what]:
        plant(path, place)
    else:
        WRONG[what](path)
    return stat.S_IFMT(path.lstat().st_mode)


def _words(world: World, place: Place, command: tuple[str, ...], out: Path) -> list[str]:
    run, target = str(place.here / "run"), str(place.here / "target")
    places = {"RUN": run, "TARGET": target, "GOOD": str(place.here / "good"), "FOLDER": str(out.parent), "OUT": str(out)}
    return [places.get(word, word.replace("=OUT", f"={out}")) for word in command]


def _read(world: World, name: str, what: str, command: tuple[str, ...], place: Place) -> None:
    run = copied(place, world.good)
    copied(place, world.good, "good")
    file = run / name
    file.unlink(missing_ok=True)
    kind = _plant(what, file, place)
    samples = (place.here / "good" / "samples.jsonl").read_bytes()
    place.sbd(*_words(world, place, command, file))
    _nothing_got_out(place, file, kind)
    if not (place.here / "good" / "samples.jsonl").is_file() or (place.here / "good" / "samples.jsonl").read_bytes() != samples:
        place.found("lost", "the samples of the other run")


def _written(world: World, command: tuple[str, ...], what: str, place: Place) -> None:
    copied(place, world.good, "good")
    out = place.here / "all" / ("index.html" if command[0] == "gallery" else "out")
    out.parent.mkdir()
    if command[0] == "gallery":
        copied(place, world.good, "all/one")
    if "h.sqlite" in command:
        place.sbd("history", "add", place.here / "good", "--db", "h.sqlite")
    kind = _plant(what, out, place)
    place.sbd(*_words(world, place, command, out))
    if what != "a folder" or command[0] != "publish":
        _nothing_got_out(place, out, kind)


def _nothing_got_out(place: Place, file: Path, kind: int) -> None:
    """What is no regular file is still the same, and the secret is nowhere below the folder but where it was planted."""
    if (place.root / "absent.txt").exists():
        place.found("lost", "something was written through a dangling link")
    if not stat.S_ISREG(kind) and (not os.path.lexists(file) or stat.S_IFMT(file.lstat().st_mode) != kind):
        place.found("lost", f"{file.name} was replaced")
    for folder, _, names in os.walk(place.here):
        for one in (Path(folder) / name for name in names):
            if one != file and one.is_file() and not one.is_symlink() and SECRET.strip().encode() in one.read_bytes():
                place.found("lost", f"the user's file was copied to {one.relative_to(place.here)}")
