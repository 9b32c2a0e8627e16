"""A server that this program started: its log, when it is ready, and its end together with all its children."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import httpx2 as httpx

from harness.errors import NotPossibleError
from harness.processes.kept import Kept

LOOK_S, ANSWER_S = 0.25, 5.0
LAST_LINES = 3


def free_port() -> int:
    """A port of the loopback that nothing listens on now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class StartedServer:
    """A command below a keeper. ``log``: where its output goes; several starts add to one file."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.name, self.log = name, log
        log.parent.mkdir(parents=True, exist_ok=True)
        self._process = Kept(command, os.environ | dict(environment), log, log)

    @property
    def pid(self) -> int:
        """Of the keeper."""
        return self._process.pid

    @property
    def ended(self) -> int | None:
        """The exit status, or None while it runs."""
        return self._process.poll()

    def ends_within(self, seconds: float) -> bool:
        """Whether it has ended, or does so shortly."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self.ended is not None

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
        self._process.end()
