"""A server of any dialect on a port of the loopback: honest at every door, but for the door that a case plays.

Doors are what a client reads of a server: ``stream`` (an answer's events), ``models``, ``about``, ``metrics``, ``health``, and
``connection`` (all of them). Its answers are known: token 10, 11, 12, ..., ``per_pass`` of them a pass. Nothing but the
standard library is imported, so that a fresh interpreter can be one as fast as it starts.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

ENGINES = ("vllm", "llama_cpp", "sglang", "lmdeploy", "tensorrt_llm")
FIRST_ID = 10
ABOUT = {"llama_cpp": "/props", "sglang": "/server_info", "lmdeploy": "/v1/models"}
VERSION_KEY = {"llama_cpp": "build_info"}
PREFIX = {"vllm": "vllm", "llama_cpp": "llamacpp", "sglang": "sglang", "lmdeploy": "lmdeploy"}

Pieces = Iterable[bytes | float]
"""What goes over the wire; a number is a pause in seconds. The connection is closed behind the last one."""


class Pause(float):
    """Seconds of silence among events; any other number there is an event."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request: which door, the how manieth at this door (from 0), and what it asks for."""

    engine: str
    door: str
    number: int
    body: dict[str, Any] = field(default_factory=dict)
    headers: str = ""
    per_pass: int = 1

    @property
    def prompt_tokens(self) -> int:
        """Of the prompt."""
        given = self.body.get("prompt", self.body.get("input_ids", ()))
        return len(given)

    @property
    def width(self) -> int:
        """Tokens of a pass of this answer: one more in every second answer of a server that drafts, so that they differ."""
        return self.per_pass + self.number % 2 if self.per_pass > 1 else 1

    @property
    def tokens(self) -> int:
        """Of the answer, at most."""
        return int(self.body.get("max_tokens", self.body.get("n_predict", 0)))


def ids_of(tokens: int) -> list[int]:
    """The answer that this server gives to every prompt."""
    return [FIRST_ID + one for one in range(tokens)]


def sizes_of(tokens: int, per_pass: int) -> list[int]:
    """Tokens of the prompt's pass and of every further one."""
    rest = tokens - 1
    return [1, *[per_pass] * (rest // per_pass), *([rest % per_pass] if rest % per_pass else [])]


def events_of(asked: Asked) -> list[Any]:
    """The honest events of an answer, as the engine writes them; of llama.cpp an event a token."""
    return _EVENTS[asked.engine](asked, _passes(asked))


def _passes(asked: Asked) -> list[list[int]]:
    ids = iter(ids_of(asked.tokens))
    return [[next(ids) for _ in range(size)] for size in sizes_of(asked.tokens, asked.width)]


def _open_ai(asked: Asked, passes: Sequence[Sequence[int]], **more: Any) -> list[Any]:
    written, events = 0, []
    for number, ids in enumerate(passes):
        written += len(ids)
        reason = "length" if number == len(passes) - 1 else None
        choice = {"index": 0, "text": "x" * len(ids), "logprobs": None, "finish_reason": reason, "token_ids": list(ids), **more}
        usage = {
            "prompt_tokens": asked.prompt_tokens,
            "total_tokens": asked.prompt_tokens + written,
            "completion_tokens": written,
        }
        events.append(
            {"id": "r", "object": "text_completion", "created": 1, "model": "model", "choices": [choice], "usage": usage}
        )
    return [*events, {**events[-1], "choices": []}]


def _vllm(asked: Asked, passes: Sequence[Sequence[int]]) -> list[Any]:
    events = _open_ai(asked, passes)
    accepted = [len(one) - 1 for one in passes[1:]]
    metrics: dict[str, Any] = {"tokens_per_second": 81.4}
    if asked.per_pass > 1:
        drafted = [asked.width - 1] * len(accepted)
        metrics["speculative_decoding"] = {
            "mean_acceptance_length": 1 + sum(accepted) / len(accepted),
            "draft_acceptance_rate": sum(accepted) / sum(drafted),
            "num_spec_steps": len(accepted),
            "num_accepted_draft_tokens": sum(accepted),
            "num_draft_tokens": sum(drafted),
            "per_step_accepted": accepted,
            "per_step_drafted": drafted,
        }
    return [*events[:-1], events[-1] | {"metrics": metrics}, "[DONE]"]


def _llama_cpp(asked: Asked, passes: Sequence[Sequence[int]]) -> list[Any]:
    drafted = accepted = 0
    events: list[Any] = []
    timings: dict[str, Any] = {}
    for number, ids in enumerate(passes):
        drafted, accepted = drafted + (asked.width - 1) * bool(number), accepted + (len(ids) - 1)
        timings = {"cache_n": 0, "prompt_n": asked.prompt_tokens, "predicted_n": number, "predicted_ms": 0.001 + 20.5 * number}
        timings |= {"draft_n": drafted, "draft_n_accepted": accepted} if asked.per_pass > 1 else {}
        for one in ids:
            events.append(
                {
                    "index": 0,
                    "content": "x",
                    "tokens": [one],
                    "stop": False,
                    "tokens_predicted": len(events) + 1,
                    "tokens_evaluated": asked.prompt_tokens,
                    "timings": timings,
                }
            )
    last = {
        "tokens": [],
        "content": "",
        "stop": True,
        "stop_type": "limit",
        "tokens_predicted": asked.tokens,
        "truncated": False,
    }
    return [*events, events[-1] | last]


def _sglang(asked: Asked, passes: Sequence[Sequence[int]]) -> list[Any]:
    events, rounds = _open_ai(asked, passes), len(passes) - 1
    if asked.per_pass == 1:
        return [*events, "[DONE]"]
    accepted = [len(one) - 1 for one in passes[1:]]
    spec = {
        "spec_accept_length": asked.tokens / rounds,
        "spec_num_correct_drafts": sum(accepted),
        "spec_verify_ct": rounds,
        "spec_num_proposed_drafts": rounds * (asked.width - 1),
        "spec_correct_drafts_histogram": [accepted.count(one) for one in range(asked.width)],
    }
    told = {**events[-1], "usage": None, "sglext": {"spec_tokens_details": spec}}
    return [*events[:-1], told, events[-1], "[DONE]"]


def _lmdeploy(asked: Asked, passes: Sequence[Sequence[int]]) -> list[Any]:
    written, events = 0, []
    for number, ids in enumerate(passes):
        written += len(ids)
        reason = {"type": "length"} if number == len(passes) - 1 else None
        about = {"prompt_tokens": asked.prompt_tokens, "completion_tokens": written, "finish_reason": reason}
        events.append({"text": "x" * len(ids), "output_ids": list(ids), "meta_info": about})
    return events


def _tensorrt_llm(asked: Asked, passes: Sequence[Sequence[int]]) -> list[Any]:
    events, written = _open_ai(asked, passes), 0
    for number, event in enumerate(events):
        event["usage"]["prompt_tokens_details"] = {"cached_tokens": 0}
        for choice in event["choices"]:
            written += len(choice["token_ids"])
            choice["avg_decoded_tokens_per_iter"] = written / (number + 1)
    return [*events, "[DONE]"]


_EVENTS: dict[str, Callable[[Asked, Sequence[Sequence[int]]], list[Any]]] = {
    "vllm": _vllm,
    "llama_cpp": _llama_cpp,
    "sglang": _sglang,
    "lmdeploy": _lmdeploy,
    "tensorrt_llm": _tensorrt_llm,
}


def written(event: Any) -> bytes:
    """An event as it goes over the wire; bytes go as they are."""
    if isinstance(event, bytes):
        return event
    return f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode(errors="surrogatepass")


def head(status: str = "200 OK", kind: str = "application/json", *headers: str) -> bytes:
    """Status line and headers."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", "Connection: close", *headers]
    return "".join(f"{one}\r\n" for one in (*lines, "")).encode()


def whole(body: bytes | str, status: str = "200 OK", kind: str = "application/json", *headers: str) -> bytes:
    """A small answer with its length."""
    data = body.encode(errors="surrogatepass") if isinstance(body, str) else body
    return head(status, kind, f"Content-Length: {len(data)}", *headers) + data


def stream(events: Iterable[Any]) -> Iterator[bytes | float]:
    """An answer as a stream of events, whose end is the connection's."""
    yield head("200 OK", "text/event-stream")
    for event in events:
        yield event if isinstance(event, Pause) else written(event)


class HostileServer:
    """Listens at once; ``serve`` in a process of its own, or ``start`` for threads of this one.

    ``play(asked)`` gives the pieces at the doors ``door``; None: it is honest everywhere. ``most_bytes``: of one answer.
    """

    def __init__(
        self,
        engine: str,
        door: str = "",
        play: Callable[[Asked], Pieces] | None = None,
        per_pass: int = 1,
        port: int = 0,
        most_bytes: int = 1 << 40,
    ) -> None:
        self.engine, self._door, self._play, self._per_pass, self._most_bytes = engine, door, play, per_pass, most_bytes
        self.sent_bytes = 0  # of the longest answer
        self._listening = socket.create_server(("127.0.0.1", port), backlog=64)
        self.port = int(self._listening.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._counts = dict.fromkeys(("passes", "rounds", "drafted", "accepted", "requests"), 0)
        self._numbers: dict[str, int] = {}
        self._closed = threading.Event()

    def start(self) -> HostileServer:
        """Serve in threads that end with this process."""
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def serve(self) -> None:
        """Serve until it is closed."""
        while not self._closed.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._connected, args=(connection,), daemon=True).start()

    def close(self) -> None:
        """Accept nothing more, and end what is under way."""
        self._closed.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def forget(self) -> None:
        """Close this process's copy of the socket, where another one serves."""
        self._listening.close()

    def _connected(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, ValueError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            asked, sent = self._read(connection), 0
            for piece in self._pieces(asked) if asked else ():
                if self._closed.is_set() or sent >= self._most_bytes:
                    return
                if isinstance(piece, bytes):
                    connection.sendall(piece)
                    sent += len(piece)
                    self.sent_bytes = max(self.sent_bytes, sent)
                elif piece < 0:  # a reset, as of a server that was killed
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                else:
                    self._closed.wait(piece)

    def _read(self, connection: socket.socket) -> Asked | None:
        data = b""
        while b"\r\n\r\n" not in data:
            if not (more := connection.recv(65536)):
                return None
            data += more
        headers, _, body = data.partition(b"\r\n\r\n")
        length = next(
            (int(one.split(b":")[1]) for one in headers.split(b"\r\n") if one.lower().startswith(b"content-length")), 0
        )
        while len(body) < length and (more := connection.recv(65536)):
            body += more
        method, path = headers.decode(errors="replace").split()[:2]
        door = "stream" if method == "POST" else _door_of(self.engine, path)
        number = self._numbers[door] = self._numbers.get(door, -1) + 1
        return Asked(
            engine=self.engine,
            door=door,
            number=number,
            body=json.loads(body) if body else {},
            per_pass=self._per_pass,
            headers=headers.decode(errors="replace"),
        )

    def _pieces(self, asked: Asked) -> Pieces:
        if asked.door == "stream":
            self._count(asked)
        if self._play is not None and self._door in (asked.door, "connection"):
            return self._play(asked)
        return self.honest(asked)

    def honest(self, asked: Asked) -> Pieces:
        """What an honest server answers at this door."""
        if asked.door == "stream":
            return stream(events_of(asked))
        if asked.door == "metrics":
            return [whole(metrics_of(self.engine, self._counts), "200 OK", "text/plain; version=0.0.4")]
        return [whole(json.dumps(about_of(self.engine, asked.door)))]

    def _count(self, asked: Asked) -> None:
        sizes = sizes_of(asked.tokens, asked.width)
        drafts = self._per_pass > 1
        for name, grown in (
            ("passes", len(sizes)),
            ("rounds", (len(sizes) - 1) * drafts),
            ("requests", 1),
            ("drafted", (len(sizes) - 1) * (asked.width - 1)),
            ("accepted", sum(sizes) - len(sizes)),
        ):
            self._counts[name] += grown


def _door_of(engine: str, path: str) -> str:
    if path.startswith("/metrics"):
        return "metrics"
    if path.startswith("/health"):
        return "health"
    return "about" if path.startswith(ABOUT.get(engine, "/version")) and engine != "lmdeploy" else "models"


def about_of(engine: str, door: str) -> dict[str, Any]:
    """The models, or what the server says of itself."""
    if door == "models":
        return {"object": "list", "data": [{"id": "model", "object": "model"}]}
    return {"status": "ok"} if door == "health" else {VERSION_KEY.get(engine, "version"): "1.2.3"}


def metrics_of(engine: str, counts: Mapping[str, float]) -> str:
    """The counters that this program reads of the engine."""
    prefix = PREFIX.get(engine)
    if prefix is None:
        return ""
    drafts = {
        f"spec_decode_num_{name}_total": counts[own]
        for own, name in (("rounds", "drafts"), ("drafted", "draft_tokens"), ("accepted", "accepted_tokens"))
    }
    found: dict[str, float] = {
        "vllm": drafts | {"iteration_tokens_total_count": counts["passes"], "request_success_total": counts["requests"]},
        "lmdeploy": drafts | {"iteration_tokens_total_count": counts["passes"], "request_success_total": counts["requests"]},
        "llama_cpp": drafts | {"n_decode_total": counts["passes"]},
        "sglang": {"num_requests_total": counts["requests"], "cached_tokens_total": 0},
    }[engine]
    return "".join(
        f'# TYPE {prefix}:{name} counter\n{prefix}:{name}{{model_name="model"}} {value}\n' for name, value in found.items()
    )
