"""One request as a stream: every chunk with its token ids and the time of its arrival, and what the server said at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import field
from itertools import pairwise
from typing import cast

import httpx2 as httpx
from pydantic_core import from_json

from harness.errors import RequestError
from harness.frozen import frozen
from harness.record.trace import StopReason
from harness.serving.dialects.dialect import Dialect, RequestFigures, RoundProgress, ServerRequest, StreamEvent

LONGEST_SAID = 300
"""Characters of what a server sent that are kept in a message."""
TOKEN_BYTES, MORE_BYTES = 2 << 10, 1 << 20
"""Bytes of an answer, at most: of each token of its prompt and its own, whose event is under 1 KiB, and of the rest."""
PIECE_BYTES = 128
"""What a piece takes in memory beside its bytes."""


@frozen
class Chunk:
    """Tokens that arrived together. ``at_s``: by the monotonic clock of this process."""

    at_s: float
    ids: tuple[int, ...]


@frozen
class ServedAnswer:
    """One finished request. ``said``: what the server told of this very request, as its dialect reads it."""

    sent_at_s: float
    chunks: tuple[Chunk, ...]
    stop_reason: StopReason
    prompt_tokens: int | None
    said: RequestFigures = field(default_factory=RequestFigures)

    @property
    def ids(self) -> tuple[int, ...]:
        """All output ids."""
        return tuple(token for chunk in self.chunks for token in chunk.ids)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Tokens of every chunk."""
        return tuple(len(chunk.ids) for chunk in self.chunks)


async def ask(client: httpx.AsyncClient, dialect: Dialect, request: ServerRequest, model: str, silent_s: float) -> ServedAnswer:
    """Send a request and read its stream. Pieces are only stamped while it flows; they are parsed after it.

    Args:
        silent_s: longest time without a piece of an event, and mean time for a token of the whole; comments are no events.

    Raises:
        RequestError: the server refused it, broke off, fell silent, sent too much or something else than its dialect.
    """
    pieces: list[tuple[float, bytes]] = []
    now_s = asyncio.get_running_loop().time
    last_s = now_s() + silent_s * (request.max_tokens + 2)
    left = MORE_BYTES + TOKEN_BYTES * (len(request.ids) + request.max_tokens)
    asked = client.stream(
        "POST", dialect.path, json=dialect.body(request, model), headers={"Accept-Encoding": "identity"}, timeout=None
    )
    sent_at_s = time.perf_counter()
    try:
        async with asyncio.timeout(silent_s) as silence, asked as response, aclosing(response.aiter_raw()) as body:
            async for piece in body:
                pieces.append((time.perf_counter(), piece))
                left -= len(piece) + PIECE_BYTES
                if left < 0:
                    break
                if b"data:" in piece:
                    silence.reschedule(min(last_s, now_s() + silent_s))
    except (httpx.TimeoutException, TimeoutError) as error:
        raise RequestError(
            f"the server fell silent after {len(pieces)} pieces: no event within {silent_s:g} s (silent_s), or no end within "
            f"{request.max_tokens + 2} times that{_shown(pieces)}"
        ) from error
    except httpx.HTTPError as error:
        raise RequestError(f"the connection broke after {len(pieces)} pieces: {error or type(error).__name__}") from error
    if response.status_code != httpx.codes.OK:
        raise RequestError(f"the server answered {response.status_code}{_shown(pieces)}")
    if left < 0:
        raise RequestError(f"the server sent more bytes than {request.max_tokens} tokens can have{_shown(pieces)}")
    return answer_of(sent_at_s, _events(pieces, response), dialect)


def _shown(pieces: Sequence[tuple[float, bytes]]) -> str:
    """The beginning of what was sent."""
    begin = b"".join(piece for _, piece in pieces)[:LONGEST_SAID]
    return f": {begin.decode(errors='replace')}" if begin else ""


def _events(pieces: Sequence[tuple[float, bytes]], response: httpx.Response) -> Iterator[tuple[float, str]]:
    """Every event with the time of the piece that completed it."""
    now_s = 0.0

    def again() -> Iterator[bytes]:
        nonlocal now_s
        for at_s, piece in pieces:
            now_s = at_s
            yield piece

    kind = response.headers.get("content-type", "")
    coding = response.headers.get("content-encoding", "identity")
    # A stream of events is UTF-8, whatever charset a server names; a mark at its begin is no part of it.
    headers = {b"content-type": f"{kind.partition(';')[0]}; charset=utf-8-sig".encode()}
    try:
        if coding != "identity":
            raise httpx.DecodingError(f"it is encoded ({coding}), which was not asked for")
        for event in httpx.EventSource(httpx.Response(200, headers=headers, content=again(), request=response.request)):
            yield now_s, event.data
    except httpx.HTTPError as error:
        raise RequestError(f"the server sent no stream of events: {error or type(error).__name__}{_shown(pieces)}") from error


def answer_of(sent_at_s: float, arrived: Iterable[tuple[float, str]], dialect: Dialect) -> ServedAnswer:
    """The answer that these events are, each with the time of its arrival.

    Raises:
        RequestError: one is an error or not of the dialect, comes after the end or twice, or the answer has no end or no ids.
    """
    pieces = _Pieces()
    for at_s, data in arrived:
        if data == "[DONE]":
            pieces.done = True
            continue
        try:
            pieces.add(at_s, dialect.read(from_json(data, allow_inf_nan=False)))
        except (ValueError, RequestError) as error:
            raise RequestError(f"{error}; the event is not of {dialect.name}: {data[:LONGEST_SAID]}") from error
    tokens, written = pieces.tokens, pieces.said.get("written")
    if pieces.stop_reason is None:
        raise RequestError(f"the stream ended after {tokens} tokens without saying why")
    if not pieces.chunks:
        raise RequestError("the server sent no token ids; it is too old for them, or another program")
    if dialect.whole and written not in (None, tokens):
        raise RequestError(f"{tokens} token ids came, the server counts {written}: some were lost")
    figures = pieces.said | _by_round(pieces.rounds)
    return ServedAnswer(
        sent_at_s=sent_at_s,
        chunks=tuple(pieces.chunks),
        stop_reason=pieces.stop_reason,
        prompt_tokens=figures.get("prompt_tokens"),
        said=figures,
    )


class _Pieces:
    """What the events gave so far: a chunk per round, however many events its tokens came in."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.rounds: list[RoundProgress] = []
        self.said = RequestFigures()
        self.stop_reason: StopReason | None = None
        self.tokens = 0
        self.done = self._had_ids = False

    def add(self, at_s: float, read: StreamEvent) -> None:
        """The next event; raises RequestError where it came twice, or after the end."""
        self.tokens += len(read.ids)
        if self.done or (self.stop_reason and (read.ids or read.stop_reason)):
            raise RequestError("it came after the end")
        if (written := read.said.get("written")) is not None and self.tokens > written:
            raise RequestError(f"{self.tokens} token ids came, the server counts {written}: some came twice")
        same_mark = read.progress is not None and bool(self.rounds) and read.progress.mark == self.rounds[-1].mark
        if read.ids and self._had_ids and (read.same_round or same_mark):
            self.chunks[-1] = Chunk(at_s=at_s, ids=self.chunks[-1].ids + read.ids)
        elif read.ids:
            self.chunks.append(Chunk(at_s=at_s, ids=read.ids))
            self.rounds += [] if read.progress is None else [read.progress]
        self._had_ids = bool(read.ids)
        self.stop_reason = read.stop_reason or self.stop_reason
        self.said |= cast("RequestFigures", {name: value for name, value in read.said.items() if value is not None})


def _by_round(rounds: Sequence[RoundProgress]) -> RequestFigures:
    """What every draft had accepted, and how long it was; rounds without a draft are left out, as in vLLM's lists."""
    if not rounds:
        return {}
    grown = [(after.drafted - before.drafted, after.accepted - before.accepted) for before, after in pairwise(rounds)]
    if any(min(both) < 0 for both in grown):
        raise RequestError("the server counts fewer drafts of this request than before")
    return {
        "drafted_by_round": [drafted for drafted, _ in grown if drafted],
        "accepted_by_round": [accepted for drafted, accepted in grown if drafted],
    }
