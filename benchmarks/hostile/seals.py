"""Records whose seal is broken or whose files have no end, pages that are not of their record, and programs of a folder.

A broken record is neither gone on with nor published: nothing is written, and it is void afterwards too. A page is never taken
for one of the record that it is not of. No program of a folder that PATH names by a relative path runs.
"""

from __future__ import annotations

import json
import os
import shutil
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.hostile.cases import MODEL_LIMIT_S, UNREADABLE, Case, Place
from benchmarks.hostile.histories import made_once
from benchmarks.hostile.records import COMMANDS
from benchmarks.hostile.tampering import VOID, key_of, sealed
from benchmarks.hostile.weights import _one_thread
from benchmarks.hostile.world import TINY, World, at, copied, written
from benchmarks.planted.tampering import TAMPERINGS
from harness.record.seal import SEAL
from harness.record.store import EVENTS, HEADER, SAMPLES, SIGNATURE
from tests.helpers.fuzzed_files import damage
from tests.helpers.hostile_files import in_place_of
from tests.helpers.hostile_records import BROKEN, ENDLESS, HONEST, PAGES, SEARCHED, Change, planted

OUT = "out"
RUN = ("run", "s.yaml", "--out", OUT, "--no-report")
WRITERS: dict[str, tuple[str, ...]] = {
    "gone on with": RUN,
    "published in place": ("publish", OUT, OUT),
    "published": ("publish", OUT, "kept"),
    "written onto": ("publish", "sound", OUT),
}
CALLED: tuple[tuple[str, ...], ...] = (
    ("verify", "signed"),
    ("publish", "signed", "kept", "--sign", "key"),
    ("history", "add", "signed", "--db", "h.sqlite"),
    ("report", "signed", "--out", "page.html"),
    ("doctor",),
    ("gate", "signed", "signed"),
    ("report", "signed", "--pdf", "page.pdf"),
    RUN,
)
OF_PAGES = [
    (name, what, way) for name in ("report.html", "report.json") for what in PAGES for way in ("signed", "sealed", "added")
]
RANDOM = 30
SMALL = at(at(TINY, "parts.0.workload.prompts", 3), "parts.0.workload.max_new_tokens", 8)


def _cases() -> list[tuple[str, partial[None]]]:
    found = [
        (f"{what}, {how}", partial(_broken, change, how))
        for number, (what, change) in enumerate(BROKEN.items())
        for how in list(WRITERS)[number % 2 :: 2]
    ]
    found += [(f"{what}, gone on with", partial(_honest, change)) for what, change in HONEST.items()]
    found += [(f"{kind}, published in place", partial(_tampered, kind)) for kind in TAMPERINGS]
    found += [(f"{name}: {what}, {way}", partial(_page, name, what, way)) for name, what, way in OF_PAGES]
    for number, path in enumerate(SEARCHED):
        for turn in range(3):
            words = CALLED[(number + turn * 3) % len(CALLED)]
            found.append((f"PATH is {path!r}: {' '.join(words)}", partial(_searched, path, words)))
    found += [(f"{name}: {what}", partial(_endless, name, what)) for name, what, _ in ENDLESS]
    return found


def case(world: World, number: int, chance: Random) -> Case:
    """Listed ones, then bytes of a sealed record at random."""
    if number < len(LISTED):
        what, act = LISTED[number]
        return Case(what, partial(act, world, number))
    name = (HEADER, SAMPLES, EVENTS, SEAL)[number % 4]
    how = list(WRITERS)[number // 4 % len(WRITERS)]
    return Case(f"{name}: bytes changed, {how}", partial(_broken, partial(_bytes, name, chance), how, world, number))


def _bytes(name: str, chance: Random, folder: Path) -> None:
    data = (folder / name).read_bytes()
    while (new := damage(chance, data)) == data or new[:-1].strip() == data.strip():
        pass
    (folder / name).write_bytes(new)


def _run_once(folder: Path) -> Path:
    """A run of this program on this machine."""
    scenario = folder.with_suffix(".yaml")
    scenario.write_text(json.dumps(SMALL))
    place = Place(folder.with_name("made"))
    place.sbd("run", scenario, "--out", "out", "--no-report", limit_s=MODEL_LIMIT_S, setup=_one_thread)
    assert place.findings == [], place.findings
    return (place.here / "out").rename(folder)


def ours(world: World, place: Place, name: str = OUT) -> Path:
    """A copy of that run, with its scenario beside it."""
    source = world.root / "ours"
    written(place, "s.yaml", SMALL)
    return copied(place, made_once(source, partial(_run_once, source)), name)


def _broken(change: Change, how: str, world: World, number: int, place: Place) -> None:
    run = ours(world, place)
    if how == "written onto":
        ours(world, place, "sound")
    change(run)
    before = _contents(run)
    place.sbd(*WRITERS[how], exits=UNREADABLE, names=OUT, limit_s=MODEL_LIMIT_S, setup=_one_thread)
    if (after := _contents(run)) != before:
        different = sorted(name for name in before | after if before.get(name) != after.get(name))
        place.found("lost", f"a broken record was written to: {', '.join(different)}")
    for folder in (run, place.here / "kept"):
        if folder.exists() and place.sbd("verify", folder).code not in VOID | UNREADABLE:
            place.found("wrong_verdicts", f"{folder.name}: its seal was mended")


def _contents(run: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in run.iterdir() if one.name != ".begun"}


def _honest(change: Change, world: World, number: int, place: Place) -> None:
    run = ours(world, place)
    change(run)
    place.sbd(*RUN, exits=frozenset({0}), limit_s=MODEL_LIMIT_S, setup=_one_thread)
    told = place.sbd("verify", run, "--json")
    if told.code in VOID and "seal" in told.out.partition('"judgements"')[0].replace("sealed, not signed", ""):
        place.found("wrong_verdicts", f"an honest record is void: {told.out[:200]}")


def _tampered(kind: str, world: World, number: int, place: Place) -> None:
    run = sealed(place.here / OUT)
    TAMPERINGS[kind](run)
    before = _contents(run)
    place.sbd("publish", run, run, exits=UNREADABLE, names=OUT)
    if _contents(run) != before:
        place.found("lost", "a broken record was written to")
    if place.sbd("verify", run).code not in VOID | UNREADABLE:
        place.found("wrong_verdicts", "its seal was mended")


def signed(world: World, place: Place, *, page: bool, sign: bool = True) -> Path:
    """A published copy of the sound record; with its page, if that is asked for."""
    run = copied(place, world.good)
    if page:
        place.sbd("report", run, exits=frozenset({0}))
    words = ("--sign", str(key_of(place))) if sign else ()
    place.sbd("publish", run, "signed", *words, exits=frozenset({0}))
    shutil.rmtree(run)
    return place.here / "signed"


def _page(name: str, what: str, way: str, world: World, number: int, place: Place) -> None:
    """A page of the folder changed after it was signed, or one that was put there."""
    folder = signed(world, place, page=way != "added", sign=way != "sealed")
    file = folder / name
    if not file.exists():
        file.write_text("{}")
    PAGES[what](file)
    ended = place.sbd("verify", folder)
    said = " ".join((ended.out + ended.err).split())
    if name not in said and ended.code not in VOID:
        place.found("wrong_verdicts", f"nothing is said of a page that is not of the record: {said[:80]!r}")


def _searched(path: str, words: tuple[str, ...], world: World, number: int, place: Place) -> None:
    """Programs of the folder where the command is called."""
    signed(world, place, page=False)
    written(place, "s.yaml", SMALL)
    for folder in (place.here, place.here / "bin"):
        planted(folder, str(place.canary))
    variables = {"PATH": path.format(path=os.environ["PATH"])}
    setup = _one_thread if words == RUN else None
    place.sbd(*words, variables=variables, limit_s=MODEL_LIMIT_S, setup=setup)


def _endless(name: str, what: str, world: World, number: int, place: Place) -> None:
    write = next(write for other, words, write in ENDLESS if (other, words) == (name, what))
    run = signed(world, place, page=False) if name == SIGNATURE else copied(place, world.good)
    if name.startswith(SAMPLES):
        (run / SAMPLES).unlink(missing_ok=True)
    in_place_of(write, name)(run, Random(0))
    place.sbd("verify", run)
    if name != SIGNATURE:
        COMMANDS[number % len(COMMANDS)](place, run, world.good)


LISTED = _cases()
COUNT = len(LISTED) + RANDOM
