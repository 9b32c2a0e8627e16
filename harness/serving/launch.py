"""A server that this program started: its log, when it is ready, and its end together with all its children."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import httpx2 as httpx

from harness.errors import NotPossibleError

SUPERVISOR = Path(__file__).with_name("supervisor.py")
LOOK_S, ANSWER_S, END_S = 0.25, 5.0, 30.0
LAST_LINES = 3


def free_port() -> int:
    """A port of the loopback that nothing listens on now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class StartedServer:
    """A command under the supervisor. ``log``: where its output goes; several starts add to one file."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.name, self.log = name, log
        log.parent.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, str(SUPERVISOR), str(log), *command],
            stdin=subprocess.PIPE, env=os.environ | dict(environment), start_new_session=True,
        )  # fmt: skip
        self._killed = False  # once seen: the number of a session that has ended may become another's

    @property
    def pid(self) -> int:
        """Of the supervisor."""
        return self._process.pid

    @property
    def ended(self) -> int | None:
        """The exit status, or None while it runs."""
        return self._process.poll()

    def ends_within(self, seconds: float) -> bool:
        """Whether it has ended, or does so shortly."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def wait_ready(self, health_url: str, ready_s: float) -> None:
        """Wait until ``health_url`` answers 200.

        Raises:
            NotPossibleError: the server ended first, or took longer than ``ready_s``; the message has the end of its log.
        """
        until = time.monotonic() + ready_s
        while time.monotonic() < until:
            if self.ended is not None:
                self.close()
                raise NotPossibleError(f"server {self.name} ended with status {self.ended} before it was ready: {self.tail()}")
            try:
                if httpx.get(health_url, timeout=ANSWER_S, trust_env=False).status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                pass
            time.sleep(LOOK_S)
        self.close()
        raise NotPossibleError(
            f"server {self.name} was not ready after {ready_s:g} s ({health_url}): {self.tail()}; "
            f"raise ready_s, or read {self.log}"
        )

    def tail(self) -> str:
        """The last lines of the log in one."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines() if self.log.is_file() else []
        telling = [line.strip() for line in lines if "Error" in line or "error" in line] or [line.strip() for line in lines]
        return " / ".join(line for line in telling[-LAST_LINES:] if line) or "its log is empty"

    def close(self) -> None:
        """End it with its children; safe to call again."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.returncode < 0 and not self._killed:
            self._killed = True  # as by a kernel out of memory, before it could end what it had started
            _kill_session(self._process.pid)


def _kill_session(leader: int) -> None:
    """Every process that came from the supervisor ``leader`` and opened no session of its own; none where there is no /proc."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.getsid(pid := int(entry.name)) == leader:
                os.kill(pid, signal.SIGKILL)
