"""What the client of served arms costs, and how late it stamps a chunk: 64 streams of 20 chunks a second for 15 seconds.

    python -m benchmarks.client          as root: packets of the loopback are captured with the kernel's own time stamps

A process of its own streams; it decodes nothing. The client is harness.serving.stream.ask, as in a run.

core_share_pct        CPU time of the client's process over wall time while the streams flow, of one core
chunk_time_error_ms   99th percentile of the client's stamp less the kernel's of the packet that brought the chunk
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import re
import socket
import statistics
import struct
import sys
import time
from typing import Any

import httpx2 as httpx
import numpy as np

from benchmarks.results_file import write_results
from harness.serving.dialects import DIALECTS
from harness.serving.dialects.dialect import ServerRequest
from harness.serving.launch import free_port
from harness.serving.stream import ServedAnswer, ask

STREAMS, CHUNKS_PER_S, SECONDS = 64, 20, 15
CHUNKS = CHUNKS_PER_S * SECONDS
SO_TIMESTAMPNS = 35
ALL_PROTOCOLS = 3
MARK = re.compile(rb'"token_ids": \[(\d+)\]')


async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One answer; its chunks are numbered by stream and place. The seed names the stream."""
    head = await reader.readuntil(b"\r\n\r\n")
    [length] = map(int, re.findall(rb"content-length: (\d+)", head.lower()))
    number = json.loads(await reader.readexactly(length))["seed"]
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
    await asyncio.sleep(0.5 + number / STREAMS / CHUNKS_PER_S)
    begun = time.monotonic()
    for chunk in range(CHUNKS):
        await asyncio.sleep(max(0.0, begun + chunk / CHUNKS_PER_S - time.monotonic()))
        reason = "length" if chunk == CHUNKS - 1 else None
        choice = {"index": 0, "text": "word", "token_ids": [number * CHUNKS + chunk], "finish_reason": reason}
        event = {"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": chunk + 1}}
        writer.write(f"data: {json.dumps(event)}\n\n".encode())
        await writer.drain()
    writer.write(b"data: [DONE]\n\n")
    writer.close()


def serve(port: int) -> None:
    """In a process of its own."""

    async def forever() -> None:
        server = await asyncio.start_server(stream, "127.0.0.1", port)
        await server.serve_forever()

    asyncio.run(forever())


def capture(port: int, found: Any) -> None:
    """When the kernel saw each chunk's packet, in nanoseconds since the epoch, by the chunk's number."""
    taken: dict[int, int] = {}
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS)) as packets:
        packets.bind(("lo", 0))
        packets.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 26)
        packets.settimeout(3.0)
        found.put("ready")
        while True:
            try:
                data, extra, _, _ = packets.recvmsg(65535, 256)
            except TimeoutError:
                break
            if (marks := MARK.findall(data)) and struct.unpack_from("!H", data, 34)[0] == port:
                seconds, nanoseconds = struct.unpack("qq", extra[0][2])
                for mark in marks:
                    taken.setdefault(int(mark), seconds * 10**9 + nanoseconds)
    found.put(taken)


async def drive(port: int) -> tuple[list[ServedAnswer], float, float]:
    """All streams at once; returns the answers, and the CPU and wall seconds they took."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30, limits=limits, trust_env=False) as client:
        requests = [ServerRequest(ids=[1], max_tokens=CHUNKS, temperature=0, seed=n, salt="") for n in range(STREAMS)]
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        answers = await asyncio.gather(*(ask(client, DIALECTS["vllm"], one, "m", silent_s=30) for one in requests))
        return list(answers), time.process_time() - cpu_s, time.perf_counter() - wall_s


def main() -> None:
    """Measure, print and write the figures."""
    start = multiprocessing.get_context("spawn")
    port, found = free_port(), start.Queue()
    helpers = [start.Process(target=serve, args=(port,), daemon=True)]
    helpers.append(start.Process(target=capture, args=(port, found), daemon=True))
    for helper in helpers:
        helper.start()
    if found.get(timeout=30) != "ready":
        sys.exit("the capture did not begin")
    time.sleep(1.0)
    ahead_ns = statistics.median(time.time_ns() - time.perf_counter_ns() for _ in range(1001))
    answers, cpu_s, wall_s = asyncio.run(drive(port))
    seen = found.get(timeout=60)
    late_ms = [
        (chunk.at_s * 1e9 + ahead_ns - seen[chunk.ids[0]]) / 1e6
        for answer in answers
        for chunk in answer.chunks
        if chunk.ids[0] in seen
    ]
    print(f"{len(late_ms)} of {STREAMS * CHUNKS} chunks captured; median {statistics.median(late_ms):.3f} ms late")
    figures = {
        "core_share_pct": 100 * cpu_s / wall_s,
        "chunk_time_error_ms": float(np.percentile(np.abs(late_ms), 99)),
        "chunks_captured": len(late_ms),
        "streams": STREAMS,
        "chunks_per_s": CHUNKS_PER_S,
    }
    print(figures)
    print(write_results("client", figures))


if __name__ == "__main__":
    main()
