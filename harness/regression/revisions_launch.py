"""Starts one command in a fresh process group, waits for it, and leaves nothing of it running when we are stopped."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Protocol

GRACE_S = 10.0
"""How long an interrupted command may take to put its record down before it is killed."""


class Launcher(Protocol):
    """Runs a shell command to its end."""

    def __call__(self, command: str, stdout: Path, stderr: Path) -> int:
        """Write what it prints into the two files; returns its exit status."""


def launch(command: str, stdout: Path, stderr: Path) -> int:
    """Run ``command`` by the shell in a process group of its own; interrupted, it is interrupted too, then killed."""
    with stdout.open("wb") as out, stderr.open("wb") as err, _stopped_by() as stop:
        child = subprocess.Popen(
            command, shell=True, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )  # fmt: skip
        try:
            stop.heed()
            return child.wait()
        except BaseException:
            _end(child)
            raise


def _end(child: subprocess.Popen[bytes]) -> None:
    """Interrupt the whole group; kill what has not ended in time, or does not heed it (a shell's background commands)."""
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(child.pid, signal.SIGINT)
        child.wait(GRACE_S)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


class _Stop:
    """The handler of a signal that ends the command: only noted until it is heeded, for there may be no command to end yet, or
    one that nobody knows of: it runs before the call that starts it has returned.
    """

    def __init__(self) -> None:
        self._came = self._heeded = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._came = True
        if self._heeded:
            raise KeyboardInterrupt

    def heed(self) -> None:
        """From here on stop at once, and now if it came before."""
        self._heeded = True
        if self._came:
            raise KeyboardInterrupt


@contextmanager
def _stopped_by() -> Iterator[_Stop]:
    """A polite kill (a CI job that is cancelled) ends the command as Ctrl-C does; it would outlive us in its own group."""
    stop = _Stop()
    heard = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heard}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
