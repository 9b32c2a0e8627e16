"""A proxy that makes a server slower by a known share: what comes back is held for a share of the time since the last piece.

    python -m benchmarks.delaying_proxy PORT TARGET_PORT SHARE

For benchmarks.served: the gate must find it. One connection each way, nothing is parsed.
"""

from __future__ import annotations

import asyncio
import sys
import time


async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Bytes as they come."""
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def forward_late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, share: float) -> None:
    """Bytes later by ``share`` of the time since the last ones; late bytes push those behind them."""
    last_s = time.monotonic()
    late_s = 0.0
    while data := await reader.read(65536):
        now_s = time.monotonic()
        late_s += share * (now_s - last_s)
        last_s = now_s
        await asyncio.sleep(max(0.0, now_s + late_s - time.monotonic()))
        writer.write(data)
        await writer.drain()
    writer.close()


async def main() -> None:
    """Serve until the program is ended."""
    port, target, share = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(forward(reader, back), forward_late(there, writer, share), return_exceptions=True)

    server = await asyncio.start_server(connected, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
