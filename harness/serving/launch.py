"""A server's process and its small answers: its log, when it is ready, its end together with all its children.

Answers are read with a bound in bytes and in seconds, whatever is sent and however slowly.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import httpx2 as httpx

from harness.errors import NotPossibleError, RequestError
from harness.processes.kept import Kept

LOOK_S = 0.25
LAST_BYTES, LAST_LINES, LONGEST_LINE = 65_536, 3, 1000
"""Of a log: the bytes that are read, the lines that are told, and the characters of one."""

MOST_BYTES, MOST_S = 8_000_000, 10.0
"""Of a small answer; the counters of 64 engines behind one address have some 5 MB."""


def free_port() -> int:
    """A port of the loopback that nothing listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def small_answer(name: str, url: str, headers: dict[str, str]) -> bytearray:
    """The body of server ``name``'s answer to GET, as it was sent.

    Raises:
        RequestError: there is none within MOST_S, its status is not 200, or it has more than MOST_BYTES.
    """

    async def read() -> bytearray:
        body = bytearray()
        asked = {"accept-encoding": "identity"} | headers
        async with (
            asyncio.timeout(MOST_S),  # reading the authorities takes ten times as long as all else
            httpx.AsyncClient(timeout=None, trust_env=False, headers=asked, verify=url.startswith("https")) as client,
            client.stream("GET", url) as answer,
        ):
            if answer.status_code != 200:
                raise ValueError(f"it answers {answer.status_code}")
            async for piece in answer.aiter_raw():
                body += piece
                if len(body) > MOST_BYTES:
                    raise ValueError(f"it sends more than {MOST_BYTES:,} bytes")
        return body

    try:
        return asyncio.run(read())
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        raise RequestError(
            f"server {name}: {url} gives no answer 200 within {MOST_S:g} s: {str(error) or type(error).__name__}; check its log"
        ) from error


class StartedServer(Kept):
    """A command below a keeper. ``log``: where its output goes; several starts add to one file."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.name, self.log = name, log
        log.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(command, os.environ | dict(environment), log, log)

    def ends_within(self, seconds: float) -> bool:
        """Whether it has ended, or does so shortly."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(seconds)
        return self.poll() is not None

    def wait_ready(self, health_url: str, ready_s: float) -> None:
        """Wait until ``health_url`` answers 200.

        Raises:
            NotPossibleError: the server ended first, or took longer than ``ready_s``; the message has the end of its log.
        """
        until = time.monotonic() + ready_s
        while time.monotonic() < until:
            if self.poll() is not None:
                self.end()
                raise NotPossibleError(
                    f"server {self.name} ended with status {self.returncode} before it was ready: {self.tail()}"
                )
            with suppress(RequestError):
                small_answer(self.name, health_url, {})
                return
            time.sleep(LOOK_S)
        self.end()
        raise NotPossibleError(
            f"server {self.name} was not ready after {ready_s:g} s ({health_url}): {self.tail()}; "
            f"raise ready_s, or read {self.log}"
        )

    def tail(self) -> str:
        """The last lines of the log in one."""
        with self.log.open("ab+") as log:  # its place is the end
            log.seek(max(0, log.tell() - LAST_BYTES))
            lines = [line.strip()[:LONGEST_LINE] for line in log.read(LAST_BYTES).decode(errors="replace").splitlines()]
        telling = [line for line in lines if "Error" in line or "error" in line] or lines
        return " / ".join(filter(None, telling[-LAST_LINES:])) or "its log is empty"
