"""Result files of other tools, imported: one thing is wrong with one of them, and what is accepted is read as a record."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.hostile.cases import UNREADABLE, Case, Place
from benchmarks.hostile.words import check_page, check_terminal
from benchmarks.hostile.world import World
from tests.helpers.fuzzed_files import damage, mutate
from tests.helpers.hostile_files import LARGE, NAMES, REFUSED, WRONG, Hostile, in_place_of
from tests.helpers.hostile_imports import HOSTILE, IMPORTS, LARGEST, PLAIN, TOOLS, Tool, text_of, tree_of

RANDOM = 30
"""Random changes of each tool's file."""
UNPROVEN = "times are zero"
"""Cases of such files have no time that could confirm a claim."""


def _listed() -> list[tuple[Tool, Hostile]]:
    vllm = TOOLS[0]
    found = [(tool, one) for tool in TOOLS for one in HOSTILE[tool.name]] + LARGEST
    for what, write in (WRONG | LARGE).items():
        found.append((vllm, Hostile(what, in_place_of(write, vllm.file), exits=REFUSED, names=vllm.file)))
    return found


LISTED = _listed()
COUNT = len(LISTED) + len(NAMES) + RANDOM * len(TOOLS)


def case(world: World, number: int, chance: Random) -> Case:
    """Listed files, names of files, then random changes of each tool's."""
    if number < len(LISTED):
        tool, one = LISTED[number]
        return Case(one.what, partial(_imported, tool, one, number, chance))
    number -= len(LISTED)
    if number < len(NAMES):
        return Case(f"a file named {NAMES[number]!r}", partial(_named, NAMES[number]))
    tool = TOOLS[number % len(TOOLS)]
    how = _tree if chance.random() < 0.75 else _bytes
    one = Hostile(f"{tool.name}: {how.__name__[1:]} changed", partial(how, tool), names=tool.file)
    return Case(one.what, partial(_imported, tool, one, number, chance))


def _tree(tool: Tool, folder: Path, chance: Random) -> None:
    (folder / tool.file).write_bytes(text_of(mutate(chance, tree_of(IMPORTS / tool.fast)), Path(tool.fast).suffix))


def _bytes(tool: Tool, folder: Path, chance: Random) -> None:
    (folder / tool.file).write_bytes(damage(chance, (IMPORTS / tool.fast).read_bytes()))


def _imported(tool: Tool, one: Hostile, number: int, chance: Random, place: Place) -> None:
    plain = place.here / (PLAIN + Path(tool.plain).suffix)
    shutil.copy(IMPORTS / tool.plain, plain)
    one.plant(place.here, chance)
    file = tool.file
    ended = place.sbd("import", "--ntp", plain.name, "--arm", f"fast={file}", "--out", "run", exits=one.exits)
    said = " ".join(ended.err.split())
    if ended.code in UNREADABLE and file not in said and "between the files" not in said:
        place.found("untold", f"the refusal does not say {file!r}: {said[-200:]}")
    check_terminal(place, ended)
    if ended.code == 0:
        _read(place, UNPROVEN in one.what, number)
    elif (place.here / "run" / "samples.jsonl").exists():
        place.found("untold", "a refused import left a record")


def _named(name: str, place: Place) -> None:
    """A sound file of another name."""
    shutil.copy(IMPORTS / TOOLS[0].plain, place.here / "plain.json")
    shutil.copy(IMPORTS / TOOLS[0].fast, place.here / name)
    check_terminal(place, place.sbd("import", "--ntp", "plain.json", "--arm", f"fast={name}", "--out", "run"))
    if (place.here / "run" / "run.json").exists():
        _read(place, False, 0)


def _read(place: Place, unproven: bool, number: int) -> None:
    """What was accepted, by one command in turn."""
    if unproven or number % 3 == 0:
        ended = place.sbd("verify", "run", "--claim", "wall_speedup >= 1.01")
        if unproven and ended.code == 0:
            place.found("wrong_verdicts", "a claim is confirmed by times of zero")
    elif number % 3 == 1:
        ended = place.sbd("report", "run", "--out", "page.html", exits=frozenset({0, 2}))
        check_page(place, place.here / "page.html")
    else:
        ended = place.sbd("compare", "run", "run")
    check_terminal(place, ended)
