"""One request as a stream: every chunk with its token ids and the time of its arrival, and what the server said at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2 as httpx

from harness.errors import RequestError
from harness.record.trace import StopReason
from harness.serving.dialects import Dialect

LONGEST_SAID = 300
"""Characters of a server's own error message that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Tokens that arrived together. ``at_s``: by the monotonic clock of this process."""

    at_s: float
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One finished request. ``said``: what the server told of this very request, as its dialect reads it."""

    sent_at_s: float
    chunks: tuple[Chunk, ...]
    stop_reason: StopReason
    prompt_tokens: int | None
    said: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ids(self) -> tuple[int, ...]:
        """All output ids."""
        return tuple(one for chunk in self.chunks for one in chunk.ids)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Tokens of every chunk."""
        return tuple(len(chunk.ids) for chunk in self.chunks)


async def ask(client: httpx.AsyncClient, dialect: Dialect, body: Mapping[str, Any]) -> Answer:
    """Send a request and read its stream. Pieces are only stamped while it flows; they are parsed behind it.

    Raises:
        RequestError: the server refused it, broke off, fell silent or sent something else than its dialect.
    """
    pieces: list[tuple[float, bytes]] = []
    sent_at_s = time.perf_counter()
    try:
        async with client.stream("POST", dialect.path, json=dict(body)) as response:
            if response.status_code != httpx.codes.OK:
                said = (await response.aread()).decode(errors="replace")[:LONGEST_SAID]
                raise RequestError(f"the server answered {response.status_code}: {said}")
            async for piece in response.aiter_bytes():
                pieces.append((time.perf_counter(), piece))
    except httpx.TimeoutException as error:
        raise RequestError(f"the server fell silent after {len(pieces)} pieces ({type(error).__name__})") from error
    except httpx.HTTPError as error:
        raise RequestError(f"the connection broke after {len(pieces)} pieces: {error or type(error).__name__}") from error
    return _parsed(sent_at_s, list(_events(pieces, response.headers.get("content-type", ""), response.request)), dialect)


def _events(pieces: Sequence[tuple[float, bytes]], kind: str, request: httpx.Request) -> Iterator[tuple[float, str]]:
    """Every event with the time of the piece that completed it."""
    now_s = 0.0

    def again() -> Iterator[bytes]:
        nonlocal now_s
        for at_s, piece in pieces:
            now_s = at_s
            yield piece

    try:
        for event in httpx.EventSource(httpx.Response(200, headers={"content-type": kind}, content=again(), request=request)):
            yield now_s, event.data
    except httpx.HTTPError as error:
        raise RequestError(f"the server sent no stream of events: {error or type(error).__name__}") from error


def _parsed(sent_at_s: float, arrived: list[tuple[float, str]], dialect: Dialect) -> Answer:
    chunks: list[Chunk] = []
    said: dict[str, Any] = {}
    stop_reason: StopReason | None = None
    for at_s, data in arrived:
        if data == "[DONE]":
            continue
        try:
            read = dialect.read(json.loads(data))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise RequestError(f"an event that is not of {dialect.name}: {data[:LONGEST_SAID]} ({error})") from error
        if read.error is not None:
            raise RequestError(f"the server broke off: {read.error[:LONGEST_SAID]}")
        if read.ids:
            chunks.append(Chunk(at_s=at_s, ids=read.ids))
        stop_reason = read.stop_reason or stop_reason
        said |= read.said
    if stop_reason is None:
        raise RequestError(f"the stream ended after {sum(len(one.ids) for one in chunks)} tokens without saying why")
    if not chunks:
        raise RequestError("the server sent no token ids; it is too old for them, or another program")
    return Answer(
        sent_at_s=sent_at_s, chunks=tuple(chunks), stop_reason=stop_reason, prompt_tokens=said.get("prompt_tokens"), said=said
    )
