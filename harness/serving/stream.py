"""One request as a stream: every chunk with its token ids and the time of its arrival, and what the server said at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx2 as httpx

from harness.errors import RequestError
from harness.record.trace import StopReason
from harness.serving.dialects.dialect import Dialect, Event, Progress

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
    return answer_of(sent_at_s, list(_events(pieces, response.headers.get("content-type", ""), response.request)), dialect)


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


def answer_of(sent_at_s: float, arrived: Sequence[tuple[float, str]], dialect: Dialect) -> Answer:
    """The answer that these events are, each with the time of its arrival.

    Raises:
        RequestError: one is an error or not of the dialect, or the answer has no end or no ids.
    """
    pieces = _Pieces()
    for at_s, data in arrived:
        if data == "[DONE]":
            continue
        try:
            read = dialect.read(json.loads(data))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise RequestError(f"an event that is not of {dialect.name}: {data[:LONGEST_SAID]} ({error})") from error
        if read.error is not None:
            raise RequestError(f"the server broke off: {read.error[:LONGEST_SAID]}")
        pieces.add(at_s, read)
    if pieces.stop_reason is None:
        tokens = sum(len(one.ids) for one in pieces.chunks)
        raise RequestError(f"the stream ended after {tokens} tokens without saying why")
    if not pieces.chunks:
        raise RequestError("the server sent no token ids; it is too old for them, or another program")
    said = pieces.said | _by_round(pieces.rounds)
    return Answer(
        sent_at_s=sent_at_s, chunks=tuple(pieces.chunks), stop_reason=pieces.stop_reason,
        prompt_tokens=said.get("prompt_tokens"), said=said,
    )  # fmt: skip


class _Pieces:
    """What the events gave so far: a chunk per round, however many events its tokens came in."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.rounds: list[Progress] = []
        self.said: dict[str, Any] = {}
        self.stop_reason: StopReason | None = None
        self._had_ids = False

    def add(self, at_s: float, read: Event) -> None:
        """The next event."""
        same_mark = read.progress is not None and bool(self.rounds) and read.progress.mark == self.rounds[-1].mark
        if read.ids and self._had_ids and (read.same_round or same_mark):
            self.chunks[-1] = Chunk(at_s=at_s, ids=self.chunks[-1].ids + read.ids)
        elif read.ids:
            self.chunks.append(Chunk(at_s=at_s, ids=read.ids))
            self.rounds += [] if read.progress is None else [read.progress]
        self._had_ids = bool(read.ids)
        self.stop_reason = read.stop_reason or self.stop_reason
        self.said |= read.said


def _by_round(rounds: Sequence[Progress]) -> dict[str, Any]:
    """What every draft had accepted, and how long it was; rounds without a draft are left out, as in vLLM's lists."""
    if not rounds:
        return {}
    grown = [(after.drafted - before.drafted, after.accepted - before.accepted) for before, after in pairwise(rounds)]
    return {
        "drafted_by_round": [drafted for drafted, _ in grown if drafted],
        "accepted_by_round": [accepted for drafted, accepted in grown if drafted],
    }  # fmt: skip
