"""A command on a terminal: run behind a pseudo-terminal, its output drawn by a terminal emulator (pyte)."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyte

from tests.helpers import ROOT

UNBROKEN = 900
"""Columns of the terminal that breaks no line."""
LINES = 1500


@dataclass(frozen=True)
class Seen:
    """The exit code, what a reader of the terminal sees in the end, and the bytes that were written."""

    code: int
    columns: int
    lines: tuple[str, ...]
    written: bytes

    @property
    def broken(self) -> list[str]:
        """Lines that the terminal itself had to break, as a terminal without an end shows them."""
        return [line for line in shown(self.written, UNBROKEN) if len(line) > self.columns]


def shown(written: bytes, columns: int) -> tuple[str, ...]:
    """The screen after these bytes, without trailing blanks."""
    screen = pyte.Screen(columns, LINES)
    pyte.ByteStream(screen).feed(written)
    rows = [screen.buffer[y] for y in range(screen.cursor.y + 1)]
    lines = ["".join(row[x].data for x in range(max(row, default=-1) + 1)).rstrip() for row in rows]
    while lines and not lines[-1]:
        lines.pop()
    return tuple(lines)


def on_terminal(
    arguments: Sequence[str], columns: int, folder: Path = ROOT, variables: Mapping[str, str] | None = None
) -> Seen:
    """Run ``sbd`` on a terminal of that width. COLUMNS is not set, so that the terminal itself is asked."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    environment = kept | {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT)} | dict(variables or {})
    command = [sys.executable, "-m", "harness", *arguments]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=folder) as child:
        os.close(theirs)
        written = b"".join(iter(lambda: _read(ours), b""))
    os.close(ours)
    return Seen(child.returncode, columns, shown(written, columns), written)


def _read(descriptor: int) -> bytes:
    """What is there; nothing once the other side is closed, which Linux reports as an error."""
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""
