"""A shell command in a process group of its own, of which nothing keeps running when this program is stopped or killed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

GRACE_S = 10.0
"""Seconds that an interrupted command has to write its record before it is killed."""
Launcher = Callable[[str, Path, Path], int]
"""Runs a shell command to its end, with its output in two files (stdout, stderr); returns its exit status."""


def launch(command: str, stdout: Path, stderr: Path) -> int:
    """Run ``command`` by the shell in a process group of its own; an interrupt is passed on, then the group is killed."""
    with stdout.open("wb") as out, stderr.open("wb") as err, _stopped_by() as heed, _guard() as guard:
        child = subprocess.Popen(
            command, shell=True, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )  # fmt: skip
        try:
            guard(child.pid)
            heed()
            return child.wait()
        except BaseException:
            _end(child)
            raise


GUARD = 'read -r group && { read -r released || kill -s KILL -- "-$group"; }'
"""A shell that waits for a line or, because the writer of its pipe was killed, for the end of all lines."""


@contextmanager
def _guard() -> Iterator[Callable[[int], None]]:
    """Gives a function that names a process group; if this process is killed, a shell beside it kills that group."""
    reading, writing = os.pipe()

    def tell(word: str) -> None:
        with suppress(BrokenPipeError):  # somebody ended the guard
            os.write(writing, f"{word}\n".encode())

    shell = subprocess.Popen(["/bin/sh", "-c", GUARD], stdin=reading, start_new_session=True)
    os.close(reading)
    try:
        yield lambda group: tell(str(group))
    finally:
        tell("released\nreleased")  # one of them stands for a group that was never named
        os.close(writing)
        shell.wait()


def _end(child: subprocess.Popen[bytes]) -> None:
    """Interrupt the whole group; kill what has not ended in time or ignores it (a shell's background commands)."""
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(child.pid, signal.SIGINT)
        child.wait(GRACE_S)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


@contextmanager
def _stopped_by() -> Iterator[Callable[[], None]]:
    """SIGTERM (a cancelled CI job) and SIGHUP (a closed terminal) end the command as Ctrl-C does; in its own group it would
    otherwise keep running.

    A signal is only noted until the function given here is called, because the command may not exist yet, or the call that
    starts it has not returned. From then on a signal stops at once, and one that has come already stops there.
    """
    came = heeded = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True
        if heeded:
            raise KeyboardInterrupt

    def heed() -> None:
        nonlocal heeded
        heeded = True
        if came:
            raise KeyboardInterrupt

    heard = [number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heard}
    try:
        yield heed
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
