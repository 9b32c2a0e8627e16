"""Folders of published runs in which one is damaged, has a name of any bytes, or is no folder: the others are listed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from urllib.parse import unquote

from benchmarks.hostile.cases import Case, Place
from benchmarks.hostile.records import EVENTS, HEADER, SAMPLES, _bytes, _lines, _tree
from benchmarks.hostile.words import check_page, check_terminal
from benchmarks.hostile.world import World, copied
from tests.helpers.hostile_files import LARGE, NAMES, WRONG, in_place_of

FOLDER, BAD = "all", "bad"
SOUND = ("one", "two")
RANDOM = 30
Spoil = Callable[[Path, Place, Random], object]


def _file(write: Callable[[Path], object], name: str, run: Path, place: Place, chance: Random) -> None:
    in_place_of(write, name)(run, chance)


def _changed(change: Callable[[str, Path, Random], None], name: str, run: Path, place: Place, chance: Random) -> None:
    change(name, run, chance)


def _instead(make: Callable[[Path], object], run: Path, place: Place, chance: Random) -> None:
    """Something else in the place of the folder."""
    shutil.rmtree(run)
    make(run)


def _elsewhere(run: Path, place: Place, chance: Random) -> None:
    """A link to a record outside."""
    run.rename(place.root / "outside")
    run.symlink_to(place.root / "outside")


def _secret(name: str, run: Path, place: Place, chance: Random) -> None:
    """A file of the folder that is a link to one of the user's."""
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(place.mine)


def _emptied(run: Path, place: Place, chance: Random) -> None:
    for one in run.iterdir():
        one.unlink()


def _unreadable(run: Path, place: Place, chance: Random) -> None:
    (run / HEADER).unlink()


def _listed() -> list[tuple[str, Spoil]]:
    some = [what for what in WRONG if not what.startswith("text ")]
    found: list[tuple[str, Spoil]] = []
    for name in (HEADER, SAMPLES, EVENTS, "report.html", "seal.json"):
        chosen = [*some[:7], *(list(LARGE)[3:4] if name != "report.html" else [])]
        found += [(f"{name}: {what}", partial(_file, (WRONG | LARGE)[what], name)) for what in chosen]
        found.append((f"{name}: a link to a file of the user's", partial(_secret, name)))
    found += [(f"in its place: {what}", partial(_instead, WRONG[what])) for what in some[:7] if what != "a folder"]
    found += [("a link to a folder outside", _elsewhere), ("an empty folder", _emptied), ("no header", _unreadable)]
    return found


LISTED = _listed()
NAMED = [(name, bad) for name in NAMES for bad in (False, True)]
"""A run of a name: a sound one, or one whose header cannot be read."""
COUNT = len(LISTED) + len(NAMED) + RANDOM


def case(world: World, number: int, chance: Random) -> Case:
    """Listed damage, names, then random damage."""
    if number < len(LISTED):
        what, spoil = LISTED[number]
        return Case(what, partial(_gallery, world, BAD, spoil, chance))
    number -= len(LISTED)
    if number < len(NAMED):
        name, bad = NAMED[number]
        spoil = partial(_file, WRONG["noise"], HEADER) if bad else _nothing
        return Case(f"a {'damaged' if bad else 'sound'} run named {name!r}", partial(_gallery, world, name, spoil, chance))
    how, name = ((_tree, HEADER), (_lines, SAMPLES), (_lines, EVENTS), (_bytes, HEADER))[number % 4]
    return Case(f"{name}: {how.__name__[1:]} changed", partial(_gallery, world, BAD, partial(_changed, how, name), chance))


def _nothing(run: Path, place: Place, chance: Random) -> None:
    """The run stays sound."""


def _gallery(world: World, name: str, spoil: Spoil, chance: Random, place: Place) -> None:
    for one in (*SOUND, name):
        copied(place, world.good, os.path.join(FOLDER, one))
    folder = place.here / FOLDER
    for one in (*SOUND, name):
        (folder / one / "report.html").write_text("<!doctype html><title>a page</title>")
    spoil(folder / name, place, chance)
    ended = place.sbd("gallery", FOLDER, exits=frozenset({0, 2, 5}))
    check_terminal(place, ended)
    index = folder / "index.html"
    if not index.exists():
        place.found("untold", f"one run that is not sound, and none is listed: {ended.err.strip()[-200:]}")
        return
    check_page(place, index, addresses=False)  # a folder's name is in its links
    links = _links(index)
    for one in SOUND:
        if not any(link.startswith(f"{one}/") for link in links):
            place.found("untold", f"the sound run {one} is not listed")
    for link in links:
        if ":" in link.partition("/")[0]:
            place.found("injected", f"a link with a scheme: {link!r}")
        elif not os.path.lexists(os.path.join(os.fsencode(folder), _path_of(link))):
            place.found("untold", f"a link to nothing: {link!r}")
    if name == BAD and BAD not in index.read_text() + ended.out + ended.err and not _gone(folder / name):
        place.found("untold", f"{name!r} is not listed, and nothing is said of it")


def _gone(run: Path) -> bool:
    return not (run / HEADER).exists() or (run.is_symlink() and not run.is_dir())


def _path_of(link: str) -> bytes:
    return os.fsencode(unquote(link.partition("#")[0].partition("?")[0], errors="surrogateescape"))


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """The addresses of links."""
        self.found += [value for name, value in attributes if tag == "a" and name == "href" and value]


def _links(page: Path) -> list[str]:
    parser = _Links()
    parser.feed(page.read_text())
    return [link for link in parser.found if not link.startswith(("#", "https:"))]
