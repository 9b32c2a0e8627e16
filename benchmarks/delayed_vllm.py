#!/usr/bin/env python3
"""vLLM's Python; a server with VLLM_SBD_DELAY=0.1 in its environment answers 10 % later, by a proxy before it.

    VLLM_SBD_PYTHON=/path/to/vllm/bin/python SBD_VLLM_PYTHON=benchmarks/delayed_vllm.py sbd run benchmarks/served_delayed.yaml

Every piece of an answer comes later by that share of the time since its request. Nothing is parsed.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time


class DelayedConnection:
    """One connection of a client, with its own to the server behind."""

    def __init__(self, share: float) -> None:
        self._share, self._asked_s = share, time.monotonic()
        self._held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def carry(self, client: tuple[asyncio.StreamReader, asyncio.StreamWriter], target: int) -> None:
        """Until both sides have ended."""
        reader, writer = client
        there, back = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(self._ask(reader, back), self._read(there), self._answer(writer), return_exceptions=True)

    async def _ask(self, reader: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            self._asked_s = time.monotonic()
            back.write(data)
            await back.drain()
        back.close()

    async def _read(self, there: asyncio.StreamReader) -> None:
        """Stamped as they come, so that a held piece does not delay the stamp of the next one."""
        data = b"-"
        while data:
            data = await there.read(65536)
            now_s = time.monotonic()
            self._held.put_nowait((now_s + self._share * (now_s - self._asked_s), data))

    async def _answer(self, writer: asyncio.StreamWriter) -> None:
        while True:
            due_s, data = await self._held.get()
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            if not data:
                break
            writer.write(data)
            await writer.drain()
        writer.close()


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def serve(python: str, arguments: list[str], share: float) -> int:
    """The server at a port of its own and the proxy at the one that was asked for; returns the server's exit code."""
    place = arguments.index("--port") + 1
    port, target = int(arguments[place]), free_port()
    server = await asyncio.create_subprocess_exec(python, *arguments[:place], str(target), *arguments[place + 1 :])

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await DelayedConnection(share).carry((reader, writer), target)
        except OSError:  # the server is not there yet
            writer.close()

    await asyncio.start_server(connected, "127.0.0.1", port)
    return await server.wait()


def main() -> None:
    """Be vLLM's Python, with a proxy before a server that is to be slower."""
    python, arguments = os.environ["VLLM_SBD_PYTHON"], sys.argv[1:]
    share = float(os.environ.get("VLLM_SBD_DELAY", "0"))
    if not share or "--port" not in arguments:
        os.execv(python, [python, *arguments])
    sys.exit(asyncio.run(serve(python, arguments, share)))


if __name__ == "__main__":
    main()
