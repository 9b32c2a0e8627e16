"""Commands of a gate that leave processes, print too much, or leave another record than they measured.

No process of a command is there once the gate has ended, however it ended; what it prints fills no disk; a record that is not
of its own measurement is never compared.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.hostile.cases import Case, Place
from benchmarks.hostile.words import check_terminal
from benchmarks.hostile.world import World
from tests.helpers.hostile_commands import COMMANDS, Command, alive_in, commands_of, written

COUNT = len(COMMANDS)
DISK_BYTES = 64 << 20
SETTLES_S = 15.0
"""How long a process may take to be gone, after the gate was killed."""
WAITS_S = 60.0


def case(world: World, number: int, chance: Random) -> Case:
    """Every command once; BASE's is sound."""
    one = COMMANDS[number]
    return Case(f"NEW's command: {one.what}", partial(_gated, world, one))


def _gated(world: World, one: Command, place: Place) -> None:
    written(place.here, world.good, world.good)
    base, new = commands_of(one)
    words = ("gate", "--base-cmd", base, "--new-cmd", new, "--work", "work", "--pairs", "2", "--deterministic-only")
    variables = {"HSTL": str(place.root)}
    try:
        if one.ended:
            setup = partial(_ends, place.here / "begun", getattr(signal, f"SIG{one.ended}"))
            ended = place.sbd(*words, variables=variables, setup=setup, kill_after_s=WAITS_S)
            if ended.hung:
                place.found("hangs", "the gate went on after the signal")
        else:
            ended = place.sbd(*words, variables=variables, limit_s=WAITS_S)
            check_terminal(place, ended)
            if ended.code == 0 and not one.passes:
                place.found("wrong_verdicts", "the gate passed")
            if one.what == "sound" and ended.code:
                place.found("untold", f"a sound command: {ended.code}: {ended.err[-300:]}")
        _nothing_is_left(place)
    finally:
        for process in alive_in(place.root):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        for file in place.here.rglob("*"):
            if file.is_dir() and not file.is_symlink():
                file.chmod(0o700)


def _nothing_is_left(place: Place) -> None:
    end = time.monotonic() + SETTLES_S
    while (left := alive_in(place.root)) and time.monotonic() < end:
        time.sleep(0.1)
    if left:
        place.found("hangs", f"{len(left)} processes are left: {_named(left[0])}")
    held = sum(one.lstat().st_blocks * 512 for one in place.here.rglob("*"))
    if held > DISK_BYTES:
        place.found("untold", f"{held >> 20} MiB are left on the disk")


def _named(process: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return str(process)


def _ends(begun: Path, number: signal.Signals) -> None:
    """In the gate's process: the signal, once NEW's command has begun."""

    def wait() -> None:
        while not begun.exists():
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    threading.Thread(target=wait, daemon=True).start()
