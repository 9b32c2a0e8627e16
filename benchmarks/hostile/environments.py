"""Surroundings of a command: streams, variables, folders, limits and clocks that are not as usual.

A part of the cases runs in interpreters of their own, as a shell starts them: only these see the encoding of a locale.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.hostile.cases import DOCUMENTED, LIMIT_S, Case, Ended, Place
from benchmarks.hostile.world import World, copied, written
from tests.helpers import ROOT
from tests.helpers.fuzzed_commands import SCENARIO
from tests.helpers.odd_streams import closed, full, removed, unread

MODEL = ("--model", "llama-3.1-8b", "--hardware", "h100-sxm")
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("--help",),
    ("--version",),
    ("hardware",),
    ("hardware", "h100-sxm", "--json"),
    ("roofline", *MODEL, "--nfe-speedup", "3"),
    ("capacity", *MODEL, "--nfe-speedup", "3", "--csv"),
    ("plan", "s.yaml"),
    ("verify", "RUN"),
    ("verify", "RUN", "--json"),
    ("report", "RUN", "--json"),
    ("report", "RUN", "--out", "page.html"),
    ("compare", "RUN", "RUN"),
    ("gate", "RUN", "RUN"),
    ("publish", "RUN", "kept"),
    ("schema",),
    ("history", "add", "RUN", "--db", "h.sqlite"),
    ("verify", "absent"),
    ("verify", "RUN", "--to", "json=out.json"),
    ("noise", "--show"),
)


def _limited(which: int, value: int) -> None:
    resource.setrlimit(which, (value, value))


SETUPS: dict[str, Callable[[], object]] = {
    "stdout closed": partial(closed, 1),
    "stdin and stdout closed": partial(closed, 0, 1),
    "all streams closed": partial(closed, 0, 1, 2),
    "stderr closed": partial(closed, 2),
    "no reader of stdout": partial(unread, 1),
    "no reader of stderr": partial(unread, 2),
    "stdout is full": partial(full, 1),
    "both are full": partial(full, 1, 2),
    "the working folder is gone": removed,
    "files of 0 bytes": partial(_limited, resource.RLIMIT_FSIZE, 0),
    "files of 4 KiB": partial(_limited, resource.RLIMIT_FSIZE, 4096),
    "files of 40 KiB": partial(_limited, resource.RLIMIT_FSIZE, 40_960),
    "few descriptors": partial(_limited, resource.RLIMIT_NOFILE, 64),
    "a umask of 777": partial(os.umask, 0o777),
}
VARIABLES: tuple[dict[str, str], ...] = (
    {"COLUMNS": "0"},
    {"COLUMNS": "-5"},
    {"COLUMNS": "1"},
    {"COLUMNS": "abc"},
    {"COLUMNS": "1000000"},
    {"LINES": "x", "COLUMNS": "9" * 30},
    {"HOME": "/nonexistent"},
    {"HOME": ""},
    {"HOME": "/dev/null"},
    {"HOME": "relative"},
    {"XDG_DATA_HOME": "/proc", "XDG_CACHE_HOME": "/proc"},
    {"TERM": "dumb"},
    {"TERM": ""},
    {"NO_COLOR": "1", "FORCE_COLOR": "1"},
    {"TZ": "Nowhere/Nothing"},
    {"TMPDIR": "/nonexistent"},
    {"LANG": "xx_YY.KOI8-R"},
    {"PATH": ""},
    {"SBD_HISTORY": "postgresql://nobody@127.0.0.1:9/x"},
    {"RAY_ADDRESS": "127.0.0.1:9"},
    {"RANK": "x", "WORLD_SIZE": "-1"},
    {"RANK": "1", "WORLD_SIZE": "2"},
    {"OMP_NUM_THREADS": "0"},
    {"GITHUB_ACTIONS": "true", "CI": "1"},
)
LOCALES: tuple[dict[str, str], ...] = (
    {"LC_ALL": "C"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "latin-1:strict"},
    {"PYTHONWARNINGS": "error"},
    {"PYTHONOPTIMIZE": "2"},
)
SHELL = ("true", "sleep 0.1", "head -c 1 > /dev/null")
"""Readers of a pipe that leave at once, or after a byte."""
ENCODED = ("ascii", "latin-1", "utf-16")
IN_CHILDREN = [(command, what) for what in SETUPS for command in COMMANDS]
WITH_VARIABLES = [
    (COMMANDS[(number * 7 + turn * 5) % len(COMMANDS)], number) for number in range(len(VARIABLES)) for turn in range(4)
]
IN_INTERPRETERS = [
    (COMMANDS[(number * 4 + turn) % len(COMMANDS)], number) for number in range(len(LOCALES) + len(SHELL)) for turn in range(3)
]
CODED = [(command, encoding) for encoding in ENCODED for command in COMMANDS]
COUNT = len(IN_CHILDREN) + len(WITH_VARIABLES) + len(CODED) + len(IN_INTERPRETERS)


def case(world: World, number: int, chance: Random) -> Case:
    """Set-ups, variables, encodings, then interpreters."""
    listed: tuple[tuple[list[Any], Callable[..., None]], ...] = (
        (IN_CHILDREN, _set_up),
        (WITH_VARIABLES, _varied),
        (CODED, _encoded),
        (IN_INTERPRETERS, _interpreted),
    )
    for found, act in listed:
        if number < len(found):
            command, how = found[number]
            words = VARIABLES[how] if act is _varied else how
            return Case(f"{words}: {' '.join(command)}", partial(act, world, command, how))
        number -= len(found)
    raise IndexError(number)


def _words(world: World, place: Place, command: tuple[str, ...]) -> list[str]:
    run = copied(place, world.good)
    written(place, "s.yaml", SCENARIO)
    written(place, "prompts.jsonl", '{"prompt": "hi"}\n{"prompt": "ho"}\n')
    return [{"RUN": str(run), "s.yaml": str(place.here / "s.yaml")}.get(word, word) for word in command]


def _kept(place: Place, world: World) -> None:
    """The record is as it was, and no half of a file lies about."""
    for name in ("run.json", "samples.jsonl", "events.jsonl"):
        if (place.here / "run" / name).read_bytes() != (world.good / name).read_bytes():
            place.found("lost", f"{name} was changed")
    for one in place.here.rglob("*.partial"):
        place.found("lost", f"{one.relative_to(place.here)} was left")


def _set_up(world: World, command: tuple[str, ...], what: str, place: Place) -> None:
    words = _words(world, place, command)
    ended = place.sbd(*words, setup=SETUPS[what])
    leaves = what == "no reader of stdout" and command[:2] not in (("verify", "absent"), ("noise", "--show"))
    if leaves and ended.code not in (0, 141):
        place.found("untold", f"nobody reads stdout: ended with {ended.code}, fitting are 0 and 141")
    if what == "stdout is full" and ended.code == 0 and "--json" in command:
        place.found("untold", "stdout took nothing, and the code is 0")
    _kept(place, world)
    honest = place.sbd(*words)
    if {ended.code, honest.code} == {0, 1}:
        place.found("wrong_verdicts", f"{what}: ended with {ended.code}, and with {honest.code} as usual")


def _varied(world: World, command: tuple[str, ...], number: int, place: Place) -> None:
    place.sbd(*_words(world, place, command), variables=VARIABLES[number])
    _kept(place, world)


def _encoded(world: World, command: tuple[str, ...], encoding: str, place: Place) -> None:
    place.sbd(*_words(world, place, command), encoding=encoding)
    _kept(place, world)


def _interpreted(world: World, command: tuple[str, ...], number: int, place: Place) -> None:
    """As a shell starts it."""
    line = [sys.executable, "-m", "harness", *_words(world, place, command)]
    extra = LOCALES[number] if number < len(LOCALES) else {}
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(place.here / "home"), **extra}
    if number >= len(LOCALES):
        line = [shutil.which("bash") or "sh", "-c", f'set -o pipefail; "$0" "$@" | {SHELL[number - len(LOCALES)]}', *line]
    try:
        done = subprocess.run(line, cwd=place.here, env=variables, capture_output=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        place.found("hangs", " ".join(line)[:200])
        return
    out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    (place.root / "watch").touch()
    place.judge(" ".join(command), Ended(code=done.returncode, out=out, err=err, hung=False), DOCUMENTED)
    if "BrokenPipeError" in err or "Exception ignored" in err:
        place.found("tracebacks", err.strip().splitlines()[-1][:200])
    if (
        number >= len(LOCALES)
        and "Error" not in err
        and done.returncode == 1
        and Path(command[0]).name not in ("verify", "gate", "compare", "noise")
    ):
        place.found("untold", "1 is a verdict, and whoever read has left")
