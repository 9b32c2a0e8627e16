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
    with stdout.open("wb") as out, stderr.open("wb") as err, _terminated_as_interrupted():
        child = subprocess.Popen(
            command, shell=True, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )  # fmt: skip
        try:
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


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """A polite kill (a CI job that is cancelled) ends the command as Ctrl-C does; it would outlive us in its own group."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
