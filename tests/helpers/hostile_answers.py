"""The catalogue of hostile answers: what is wrong, at which door of which dialect, and what is sent there.

A Hostile is data and a small function that gives the pieces of an answer; tests.helpers.hostile_server plays it. CATALOGUE has
all by kind, each one distinct and the same on every call: what is drawn follows from its own name.
"""

from __future__ import annotations

import gzip
import itertools
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from math import inf, nan
from random import Random
from typing import Any, Literal

from hypothesis import strategies as st

from tests.helpers.fuzzed_files import by_chance, mutate
from tests.helpers.hostile_server import (
    ENGINES,
    PREFIX,
    Asked,
    Pause,
    Pieces,
    about_of,
    events_of,
    head,
    stream,
    whole,
    written,
)

Fits = Literal["any", "refused", "sound"]
Play = Callable[[Asked], Pieces]
Edit = Callable[[list[Any]], Iterable[Any]]
MARK = "hstl7"
"""Stands in every planted text, as in benchmarks.hostile.words."""
SECRET = "hunter2-hstl-login"
MEBI = 1 << 20
ENDLESS = 1 << 40
"""Bytes after which a body that never ends would end."""


@dataclass(frozen=True)
class Hostile:
    """One case: ``play`` gives the pieces at ``door`` of an engine; ``fits``: which end is right.

    any      the answer may be taken or refused; a faster server is never confirmed by it
    refused  no sample of this server is kept: what it sent cannot be the answer to the request
    sound    unusual and honest: every sample is kept

    ``login``: stands before the address, ``query`` behind it; ``key``: what SBD_SERVER_AUTH_FAST holds. ``per_pass``: tokens of
    a pass, as the server really decodes.
    """

    what: str
    engine: str
    play: Play | None = None
    door: str = "stream"
    fits: Fits = "any"
    kind: str = ""
    login: str = ""
    query: str = ""
    key: str = ""
    per_pass: int = 1


def made(value: Any) -> Any:
    """A value, or what makes a large one when it is played: the process that holds the catalogue stays small."""
    return value() if callable(value) else value


def _rotating() -> Iterator[str]:
    return itertools.cycle(ENGINES)


def edited(edit: Edit) -> Play:
    """The honest events with a change, as a stream."""
    return lambda asked: stream(edit(events_of(asked)))


def answers(body: bytes | str, status: str = "200 OK", *more: str) -> Play:
    """A small answer, ``more``: its kind and further headers."""
    return lambda asked: [whole(body, status, *more)]


def tells(value: Any) -> Play:
    """A value, or what makes it, as JSON; bytes as they are."""

    def play(asked: Asked) -> Pieces:
        body = made(value)
        return [whole(body if isinstance(body, bytes) else json.dumps(body))]

    return play


def endless(piece: bytes, most: int = ENDLESS, pause_s: float = 0.0) -> Iterator[bytes | float]:
    """A piece again and again; without pauses in large runs."""
    if pause_s:
        for _ in itertools.repeat(None):
            yield piece
            yield Pause(pause_s)
    many = piece * max(1, (64 << 10) // len(piece))
    for _ in range(max(1, most // len(many))):
        yield many


def long(first: bytes, piece: bytes, most: int = ENDLESS, pause_s: float = 0.0) -> Play:
    """Something, then a piece again and again."""
    return lambda asked: itertools.chain([first], endless(piece, most, pause_s))


# ------------------------------------------------------------------------------------------------------------- token ids

IDS = {
    "vllm": "choices.0.token_ids",
    "sglang": "choices.0.token_ids",
    "tensorrt_llm": "choices.0.token_ids",
    "llama_cpp": "tokens",
    "lmdeploy": "output_ids",
}
NO_IDS: dict[str, Any] = {
    "outside the vocabulary": 1_000_000,
    "negative": -1,
    "2^63": 2**63,
    "10^30": 10**30,
    "a float": 1.5,
    "a whole float": 11.0,
    "true": True,
    "null": None,
    "text": "11",
    "a list": [11],
    "an object": {"id": 11},
    "NaN": nan,
    "inf": inf,
}
NO_LISTS: dict[str, Any] = {
    "null": None,
    "text": "abc",
    "a number": 7,
    "an object": {"0": 11},
    "a million ids": lambda: [11] * 1_000_000,
    "empty": [],
}


def put(events: list[Any], path: str, value: Any) -> list[Any]:
    """Every event that has the path, with that value there, or with what makes it."""
    value = made(value)
    *way, last = [int(one) if one.isdigit() else one for one in path.split(".")]
    for event in events:
        holder = event
        try:
            for one in way:
                holder = holder[one]
            if last in holder if isinstance(holder, dict) else isinstance(last, int) and last < len(holder):
                holder[last] = value
        except (KeyError, TypeError, IndexError):
            continue
    return events


def has(engine: str, path: str, per_pass: int = 1) -> bool:
    """Whether an honest answer of the engine has the path."""
    asked = Asked(engine=engine, door="stream", number=0, body={"prompt": [1], "max_tokens": 5}, per_pass=per_pass)
    marker = object()
    return any(_found(one, path, marker) for one in put(events_of(asked), path, marker))


def _found(tree: Any, path: str, marker: object) -> bool:
    for one in path.split("."):
        try:
            tree = tree[int(one) if one.isdigit() else one]
        except (KeyError, TypeError, IndexError):
            return False
    return tree is marker


def _putting(path: str, value: Any) -> Play:
    return edited(partial(put, path=path, value=value))


def _in_second(path: str, value: Any) -> Play:
    """In the first pass behind the prompt's alone."""
    return edited(lambda events: put(events[1:2], path, value) and events)


def _token_ids() -> Iterator[Hostile]:
    for engine in ENGINES:
        for name, value in NO_IDS.items():
            yield Hostile(f"an id is {name}", engine, _in_second(IDS[engine] + ".0", value), fits="refused")
    for engine, (name, value) in zip(_rotating(), list(NO_LISTS.items()) * 2, strict=False):
        fits: Fits = "any" if (engine, name) in UNTOLD else "refused"
        yield Hostile(f"the ids of a pass are {name}", engine, _in_second(IDS[engine], value), fits=fits)


# ---------------------------------------------------------------------------------------------------------- other values

PATHS = {
    "vllm": (
        "choices",
        "choices.0",
        "choices.0.finish_reason",
        "usage",
        "usage.prompt_tokens",
        "usage.completion_tokens",
        "metrics",
        "metrics.speculative_decoding",
        *(
            f"metrics.speculative_decoding.{one}"
            for one in (
                "num_spec_steps",
                "num_accepted_draft_tokens",
                "num_draft_tokens",
                "mean_acceptance_length",
                "per_step_accepted",
                "per_step_drafted",
            )
        ),
    ),
    "llama_cpp": (
        "stop",
        "stop_type",
        "timings",
        "timings.predicted_ms",
        "timings.draft_n",
        "timings.draft_n_accepted",
        "timings.cache_n",
        "tokens_evaluated",
    ),
    "sglang": (
        "choices",
        "choices.0.finish_reason",
        "usage.prompt_tokens",
        "sglext",
        "sglext.spec_tokens_details",
        *(
            f"sglext.spec_tokens_details.{one}"
            for one in ("spec_verify_ct", "spec_num_correct_drafts", "spec_accept_length", "spec_correct_drafts_histogram")
        ),
    ),
    "lmdeploy": ("meta_info", "meta_info.finish_reason", "meta_info.finish_reason.type", "meta_info.prompt_tokens"),
    "tensorrt_llm": (
        "choices.0",
        "choices.0.finish_reason",
        "choices.0.avg_decoded_tokens_per_iter",
        "usage",
        "usage.prompt_tokens",
        "usage.prompt_tokens_details",
        "usage.prompt_tokens_details.cached_tokens",
    ),
}
VALUES: dict[str, Any] = {
    "NaN": nan,
    "inf": inf,
    "-inf": -inf,
    "1e308": 1e308,
    "10^30": 10**30,
    "-1": -1,
    "0": 0,
    "1": 1,
    "1e-300": 1e-300,
    "true": True,
    "null": None,
    "text": "7",
    "empty text": "",
    "a list": [[1], [2]],
    "numbers": [1e308, -1, 0.5],
    "an object": {"a": {"b": 1}},
    "an empty list": [],
    "an empty object": {},
    "a long list": lambda: [3] * 500_000,
    "0.5": 0.5,
}
PER_PATH = 3


def _fields() -> Iterator[Hostile]:
    """Every field that is read, with PER_PATH values of VALUES in turn."""
    values = itertools.cycle(VALUES.items())
    for engine, paths in PATHS.items():
        for path in paths:
            for name, value in itertools.islice(values, PER_PATH):
                per_pass = 1 if has(engine, path) else 2
                yield Hostile(f"{path} is {name}", engine, _putting(path, value), per_pass=per_pass)


def _lies() -> Iterator[Hostile]:
    """Figures that are plausible alone, and contradict the stream: each pass wrote one token."""
    spec = {"num_accepted_draft_tokens": 7, "num_draft_tokens": 7, "mean_acceptance_length": 8.0}
    in_one = spec | {"num_spec_steps": 1, "per_step_accepted": [7], "per_step_drafted": [7]}
    twice = spec | {"num_spec_steps": 2, "per_step_accepted": [3] * 9, "per_step_drafted": [4]}
    negative = spec | {"num_spec_steps": -3, "per_step_accepted": [-1, 8], "per_step_drafted": [0, 0], "num_draft_tokens": -9}
    for name, told in (("all in one pass", in_one), ("lists of other lengths", twice), ("negative counts", negative)):
        yield Hostile(name, "vllm", _told_last(-2, {"metrics": {"speculative_decoding": told}}))
        yield Hostile(f"{name}, of two a pass", "vllm", _putting("metrics.speculative_decoding", told), per_pass=2)
    sglang = {
        "spec_verify_ct": 1,
        "spec_num_correct_drafts": 7,
        "spec_accept_length": 9.0,
        "spec_correct_drafts_histogram": [0] * 7 + [1],
    }
    for name, more in (
        ("all in one pass", {}),
        ("no round", {"spec_verify_ct": 0}),
        ("a histogram of 10^6 zeros", {"spec_correct_drafts_histogram": [0] * 10**6}),
        ("a negative histogram", {"spec_correct_drafts_histogram": [-5, 8]}),
        ("a histogram of 10^12", {"spec_correct_drafts_histogram": [10**12, 10**12]}),
    ):
        yield Hostile(name, "sglang", _told_last(-1, {"sglext": {"spec_tokens_details": sglang | more}}))
    for engine, path, source, lies in (
        (
            "tensorrt_llm",
            "choices.0.avg_decoded_tokens_per_iter",
            "its average",
            {"all in two iterations": 4.5, "a million tokens an iteration": 1e6, "0 tokens": 0.0, "-2": -2.0},
        ),
        (
            "llama_cpp",
            "timings.predicted_ms",
            "predicted_ms",
            {"all in one round": 20.5, "time runs back": -5.0, "no time": 0.0},
        ),
    ):
        for name, value in lies.items():
            yield Hostile(f"{name} by {source}", engine, _putting(path, value))
    counts = {
        "llama_cpp": ("tokens_evaluated", "tokens_predicted"),
        "lmdeploy": ("meta_info.prompt_tokens", "meta_info.completion_tokens"),
    }
    for engine in ENGINES:
        of_prompt, of_answer = counts.get(engine, ("usage.prompt_tokens", "usage.completion_tokens"))
        for name, path, count in (
            ("another prompt's length", of_prompt, 9_999),
            ("more tokens than it sent, by its usage", of_answer, 500),
            ("fewer tokens than it sent, by its usage", of_answer, 1),
        ):
            if count > 1 or engine != "llama_cpp":  # that one may have counted tokens within a character
                yield Hostile(name, engine, _putting(path, count), fits="refused")


def _told_last(place: int, told: dict[str, Any]) -> Play:
    """The last event but one with more in it, where it stands (-2) or behind it (-1)."""
    return edited(lambda events: [*events[:place], events[-2] | told, events[-1]])


# ------------------------------------------------------------------------------------------------- bytes that are no event

BODIES: dict[str, Any] = {
    "NaN": b'{"a": NaN, "b": [-Infinity]}',
    "100,000 brackets": b"[" * 100_000,
    "100,000 objects": b'{"a":' * 100_000,
    "deep and closed": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "HTML": b"<html><script>hstl7()</script></html>",
    "UTF-16": '{"choices": []}'.encode("utf-16"),
    "invalid UTF-8": b'{"a": "\xff\xfe\xc0\xaf"}',
    "half a surrogate": b'{"a": "\\ud800"}',
    "a BOM": b"\xef\xbb\xbf{}",
    "a number of 100,000 digits": b'{"a": ' + b"9" * 100_000 + b"}",
    "nothing": b"",
    "null": b"null",
    "a list": b"[]",
    "a text": b'"hstl7"',
    "a number": b"7",
    "two objects": b"{} {}",
    "double keys": b'{"error": null, "error": 1}',
    "NUL bytes": b"\x00" * 4096,
    "50 MB of text": lambda: b'{"a": "' + b"x" * (50 * MEBI) + b'"}',
    "a million keys": lambda: b"{" + b",".join(b'"%d":1' % one for one in range(1_000_000)) + b"}",
    "an error of another kind": b'{"error": [[1, {"message": 2}]]}',
    "an empty error": b'{"error": null}',
    "an error of 5 MB": lambda: b'{"error": {"message": "' + b"hstl7 " * 900_000 + b'"}}',
    "an error without end": b'{"error": {"message": {"message": {"message": ' + b"[" * 400,
}


def _events() -> Iterator[Hostile]:
    """A body of BODIES as an event in the midst of an answer, and in place of all."""
    for (name, body), engine in zip(BODIES.items(), _rotating(), strict=False):
        yield Hostile(f"an event is {name}", engine, edited(partial(_among, body)))
    for (name, body), engine in zip(BODIES.items(), itertools.islice(_rotating(), 2, None), strict=False):
        yield Hostile(f"the only event is {name}", engine, edited(partial(_alone, body)), fits="refused")


def _among(body: Any, events: list[Any]) -> list[Any]:
    return [*events[:2], _bare(body), *events[2:]]


def _alone(body: Any, events: list[Any]) -> list[Any]:
    return [_bare(body)]


def _bare(body: Any) -> bytes:
    text: bytes = made(body)
    return b"data: " + text.replace(b"\n", b" ") + b"\n\n"


# ------------------------------------------------------------------------------------------------------ shape of the stream


def _with_ids(event: dict[str, Any], ids: Sequence[int]) -> dict[str, Any]:
    """A copy of an event, with these ids."""
    copy: dict[str, Any] = json.loads(json.dumps(event))
    for path in IDS.values():
        put([copy], path, list(ids))
    return copy


def _tokens_of(events: list[Any]) -> list[Any]:
    return [one for one in events if _ids_in(one)]


def _ids_in(event: Any) -> list[int]:
    if not isinstance(event, dict):
        return []
    return next((list(found) for one in ("tokens", "output_ids") if (found := event.get(one))), []) or [
        each for one in event.get("choices", []) for each in one["token_ids"]
    ]


def _beyond(events: list[Any], times: int = 2) -> list[Any]:
    """As many passes as an honest answer, each with ``times`` as many tokens."""
    return [_with_ids(one, _ids_in(one) * times) if _ids_in(one) else one for one in events]


def _more(events: list[Any]) -> list[Any]:
    """A pass of 100 tokens behind the second one."""
    return [*events[:2], _with_ids(events[1], range(20, 120)), *events[2:]]


def _doubled(events: list[Any]) -> list[Any]:
    return [again for one in events for again in ([one, one] if _ids_in(one) else [one])]


def _after_end(events: list[Any]) -> list[Any]:
    return [*events, _with_ids(events[1], range(20, 120))]


def _behind_last_tokens(events: list[Any]) -> list[Any]:
    """Behind the event with the finish reason and before what is told at the end."""
    last = max(place for place, one in enumerate(events) if _ids_in(one))
    return [*events[: last + 1], _with_ids(events[1], range(20, 120)), *events[last + 1 :]]


def _fewer(events: list[Any]) -> list[Any]:
    """Two passes are left out, and the count of tokens told is as asked."""
    return [*events[:1], *events[3:]]


def _no_end(events: list[Any]) -> list[Any]:
    return events[:4]


def _cut(events: list[Any]) -> list[Any]:
    return [*events[:3], written(events[3])[:25]]


def _two_ends(events: list[Any]) -> list[Any]:
    ends = [one for one in events if _is_end(one)]
    other = json.loads(json.dumps(ends[0]))
    for path, value in (
        ("choices.0.finish_reason", "stop"),
        ("meta_info.finish_reason", {"type": "stop"}),
        ("stop_type", "eos"),
    ):
        put([other], path, value)
    return [*events[:2], other, *events[2:]]


def _is_end(event: Any) -> bool:
    if not isinstance(event, dict):
        return False
    about = event.get("meta_info") or {}
    return bool(
        event.get("stop") or about.get("finish_reason") or any(one.get("finish_reason") for one in event.get("choices", []))
    )


def _at_once(events: list[Any]) -> list[Any]:
    tokens = _tokens_of(events)
    return [_with_ids(tokens[-1], [one for event in tokens for one in _ids_in(event)]), *events[-2:]]


def _two_choices(events: list[Any]) -> list[Any]:
    return [one | {"choices": one["choices"] * 2} if isinstance(one, dict) and one.get("choices") else one for one in events]


SHAPES: dict[str, Edit] = {
    "twice the tokens asked for, two a pass": _beyond,
    "a pass of 100 tokens more": _more,
    "every chunk comes twice": _doubled,
    "tokens behind the end": _behind_last_tokens,
    "tokens behind all": _after_end,
    "fewer tokens than asked for and said": _fewer,
    "no end": _no_end,
    "ends within an event": _cut,
    "two finish reasons": _two_ends,
}
"""Played in every dialect, and refused."""
UNTOLD = {("llama_cpp", name) for name in ("fewer tokens than asked for and said", "the end alone", "empty")}
"""llama.cpp counts a token within a character of UTF-8, and never sends it."""
SOME_SHAPES: dict[str, tuple[Edit, Fits]] = {
    "nothing": (lambda events: [], "refused"),
    "the end alone": (lambda events: events[-2:], "refused"),
    "[DONE] alone": (lambda events: ["[DONE]"], "refused"),
    "[DONE] first": (lambda events: ["[DONE]", *events], "any"),
    "the end first": (lambda events: [*events[-2:], *events], "refused"),
    "in reverse": (lambda events: events[::-1], "refused"),
    "all tokens in one pass": (_at_once, "any"),
    "two choices": (_two_choices, "any"),
    "an index of another choice": (lambda events: put(events, "choices.0.index", 5), "any"),
    "empty events between": (lambda events: [each for one in events for each in (b"data: \n\n", one)], "any"),
    "events of another name": (lambda events: [b"event: ping\n" + written(one) for one in events], "any"),
    "retry and id lines": (lambda events: [b"retry: 99999999999999999999\nid: \x00\n" + written(one) for one in events], "any"),
    "text/event-stream in UTF-16": (lambda events: [written(one).decode().encode("utf-16") for one in events], "refused"),
}


def _behind(piece: bytes, *first: bytes, most: int = ENDLESS, pause_s: float = 0.0) -> Edit:
    """Two honest events, then a piece again and again."""
    return lambda events: itertools.chain(events[:2], first, endless(piece, most, pause_s))


LARGE: dict[str, Edit] = {
    "endless comments": _behind(b": hstl7 comment\n"),
    "endless empty events": _behind(b"data: \n\n"),
    "endless lines without an event": _behind(b"data: hstl7\n"),
    "a line without an end": _behind(b"x", b"data: "),
    "a name without an end": _behind(b"x"),
    "endless line breaks": _behind(b"\n"),
    "endless tokens": lambda events: itertools.chain(events[:2], endless(written(events[1]))),
    "endless events without tokens": lambda events: itertools.chain(events[:2], endless(written(_with_ids(events[1], [])))),
    "an endless id": _behind(b"9", b"id: "),
    "comments, a byte at a time": _behind(b":\n", pause_s=0.3),
    "a line, a byte at a time": _behind(b"x", b"data: ", pause_s=0.3),
    "empty events, one at a time": _behind(b"data: {}\n\n", pause_s=0.3),
    "tokens, one at a time, without end": lambda events: itertools.chain(
        events[:2], endless(written(_with_ids(events[1], [])), pause_s=0.3)
    ),
    "silence in the midst": lambda events: [*events[:2], Pause(3600.0)],
    "300 MB of comments, then the answer": lambda events: itertools.chain(endless(b": hstl7\n", 300 * MEBI), events),
    "200 MB of one event": lambda events: itertools.chain([b'data: {"a": "'], endless(b"y", 200 * MEBI), [b'"}\n\n'], events),
    "2 million events": lambda events: itertools.chain(
        events[:2], endless(b'data: {"choices": []}\n\n', 50 * MEBI), events[2:]
    ),
}


def _shapes() -> Iterator[Hostile]:
    for name, edit in SHAPES.items():
        for engine in ENGINES:
            told: Fits = "any" if (engine, name) in UNTOLD else "refused"
            yield Hostile(name, engine, edited(edit), fits=told)
    for (name, (edit, fits)), engine in zip(SOME_SHAPES.items(), _rotating(), strict=False):
        engine = engine if "choice" not in name else "vllm"
        told = "any" if (engine, name) in UNTOLD else fits
        yield Hostile(name, engine, edited(edit), fits=told)
    for (name, edit), engine in zip(LARGE.items(), _rotating(), strict=False):
        yield Hostile(name, engine, edited(edit), kind="large")


# --------------------------------------------------------------------------------------------------------- status and error

STATUSES: dict[str, Play] = {
    "204": lambda asked: [head("204 No Content")],
    "200 with an error": answers('{"error": {"message": "hstl7"}}'),
    "418": answers('{"detail": "hstl7 teapot"}', "418 I'm a teapot"),
    "429": answers("{}", "429 Too Many Requests", "application/json", "Retry-After: 999999999"),
    "503": answers("<h1>hstl7</h1>", "503 Service Unavailable", "text/html"),
    "a redirect to itself": lambda asked: [whole("", "307 Temporary Redirect", "text/plain", f"Location: {_path(asked)}")],
    "a redirect elsewhere": answers("", "302 Found", "text/plain", "Location: http://127.0.0.2:9/latest/meta-data"),
    "a redirect to a file": answers("", "301 Moved", "text/plain", "Location: file:///etc/passwd"),
    "200 with HTML": answers("<html>hstl7 login</html>", "200 OK", "text/html"),
    "an error body without end": long(head("500 Error"), b"hstl7 "),
    "an error body, a byte at a time": long(head("500 Error"), b"x", pause_s=0.3),
    "an error body of 200 MB": long(head("500 Error"), b"hstl7 ", 200 * MEBI),
    "an error in UTF-16": answers("hstl7 \u202e".encode("utf-16"), "500 Error", "text/plain; charset=utf-16"),
    "an error in invalid UTF-8": answers(b"\xff\xfe\xc0hstl7\xed\xa0\x80", "500 Error"),
    "an error of 10,000 lines": answers("hstl7 line\n" * 10_000, "500 Error"),
    "an error 100,000 deep": answers(b'{"error":' * 100_000, "500 Error"),
    "an unknown charset": answers("{}", "500 Error", "text/plain; charset=hstl7"),
    "status 999": answers("{}", "999 hstl7"),
    "status 0": answers("{}", "0 hstl7"),
    "status -1": answers("{}", "-1 hstl7"),
    "status of 50 digits": answers("{}", "2" * 50 + " OK"),
    "100 Continue without end": long(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "101 Switching Protocols": lambda asked: [head("101 Switching Protocols"), b"\x00" * 1000],
    "206 of a part": answers('{"da', "206 Partial Content", "application/json", "Content-Range: bytes 0-3/1000"),
    "401 that asks for a login": answers("{}", "401 Unauthorized", "text/plain", 'WWW-Authenticate: Basic realm="hstl7"'),
}


def _path(asked: Asked) -> str:
    return asked.headers.split()[1] if asked.headers else "/"


def _statuses() -> Iterator[Hostile]:
    """Every status at two doors: that of the answers, and another in turn."""
    others = itertools.cycle(("models", "about", "metrics"))
    engines = _rotating()
    for name, play in STATUSES.items():
        yield Hostile(name, next(engines), play, fits="refused")
        door, engine = next(others), next(engines)
        if (engine == "lmdeploy" and door == "about") or (engine == "tensorrt_llm" and door == "metrics"):
            door = "models"  # the one has no other door, the other is not asked for counters that are read
        yield Hostile(name, engine, play, door, fits="any")


# ----------------------------------------------------------------------------------------------------------------- framing


@cache
def bomb(kind: Literal["gzip", "deflate"], mebi: int = 1024) -> bytes:
    """So many MiB of spaces, packed: one block again and again, each as if nothing came before it."""
    packer, block = zlib.compressobj(9, wbits=-15), b" " * MEBI
    first = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    raw = first * mebi + packer.flush()
    check = 1 if kind == "deflate" else 0
    for _ in range(mebi):
        check = zlib.adler32(block, check) if kind == "deflate" else zlib.crc32(block, check)
    if kind == "deflate":
        return b"\x78\xda" + raw + check.to_bytes(4, "big")
    return gzip.compress(b"")[:10] + raw + check.to_bytes(4, "little") + (mebi * MEBI % (1 << 32)).to_bytes(4, "little")


def packed(mebi: int) -> Play:
    """An answer of so many MiB, in gzip."""
    return lambda asked: [head("200 OK", "application/json", "Content-Encoding: gzip"), bomb("gzip", mebi)]


def _body(asked: Asked) -> bytes:
    """What is honest at the door, as one body."""
    if asked.door == "stream":
        return b"".join(written(one) for one in events_of(asked))
    return json.dumps(about_of(asked.engine, asked.door)).encode()


def _kind_of(asked: Asked) -> str:
    return "text/event-stream" if asked.door == "stream" else "application/json"


def _sent(*headers: str, wrap: Callable[[bytes], Iterable[bytes | float]] = lambda body: [body]) -> Play:
    return lambda asked: itertools.chain([head("200 OK", _kind_of(asked), *headers)], wrap(_body(asked)))


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = "Transfer-Encoding: chunked"
FRAMES: dict[str, tuple[Play, Fits]] = {
    "a length too large": (_sent("Content-Length: 999999"), "any"),
    "a length too small": (_sent("Content-Length: 10"), "refused"),
    "a negative length": (_sent("Content-Length: -5"), "any"),
    "a length of 10^30": (_sent(f"Content-Length: {10**30}"), "any"),
    "a length that is no number": (_sent("Content-Length: hstl7"), "any"),
    "two lengths": (_sent("Content-Length: 4", "Content-Length: 9"), "any"),
    "chunks without an end": (_sent(CHUNKED, wrap=lambda body: [_chunk(body)]), "any"),
    "a chunk of no size": (_sent(CHUNKED, wrap=lambda body: [b"hstl7\r\n", body]), "refused"),
    "a chunk of a negative size": (_sent(CHUNKED, wrap=lambda body: [b"-5\r\n", body]), "refused"),
    "a chunk of 10^18": (_sent(CHUNKED, wrap=lambda body: [b"de0b6b3a7640000\r\n", body]), "any"),
    "a chunk cut short": (_sent(CHUNKED, wrap=lambda body: [b"fff\r\n", body[:40]]), "refused"),
    "endless extensions of a chunk": (
        _sent(CHUNKED, wrap=lambda body: itertools.chain([b"5;"], endless(b"hstl7=1;"))),
        "refused",
    ),
    "endless empty lines of chunks": (_sent(CHUNKED, wrap=lambda body: endless(b"1\r\n \r\n")), "refused"),
    "endless trailers": (
        _sent(CHUNKED, wrap=lambda body: itertools.chain([_chunk(body), b"0\r\n"], endless(b"X: hstl7\r\n"))),
        "any",
    ),
    "chunked twice": (
        _sent("Transfer-Encoding: chunked, chunked", wrap=lambda body: [_chunk(_chunk(body)), b"0\r\n\r\n"]),
        "any",
    ),
    "a gzip bomb": (_sent("Content-Encoding: gzip", wrap=lambda body: [bomb("gzip")]), "refused"),
    "a deflate bomb": (_sent("Content-Encoding: deflate", wrap=lambda body: [bomb("deflate")]), "refused"),
    "a bomb in a bomb": (_sent("Content-Encoding: gzip, gzip", wrap=lambda body: [gzip.compress(bomb("gzip"))]), "refused"),
    "no gzip though said so": (_sent("Content-Encoding: gzip"), "any"),
    "gzip cut short": (_sent("Content-Encoding: gzip", wrap=lambda body: [gzip.compress(body)[:-12]]), "any"),
    "an unknown encoding": (_sent("Content-Encoding: hstl7"), "any"),
    "a hundred encodings": (_sent("Content-Encoding: " + ", ".join(["gzip"] * 100)), "any"),
    "endless headers": (long(OK, b"X-Hstl7: 1\r\n"), "refused"),
    "a header without an end": (long(OK, b"X"), "refused"),
    "a header line, a byte at a time": (long(OK + b"X: ", b"x", pause_s=0.3), "refused"),
    "a folded header": (lambda asked: [b"HTTP/1.1 200 OK\r\nX: 1\r\n hstl7\r\n\r\n", _body(asked)], "any"),
    "a header with NUL and escapes": (
        lambda asked: [b"HTTP/1.1 200 \x1b[31mhstl7\r\nX\x00: \x1b]0;hstl7\x07\r\n\r\n", _body(asked)],
        "any",
    ),
    "a status line without an end": (long(b"", b"HTTP/1.1 200 hstl7 "), "refused"),
    "no HTTP": (lambda asked: [b"SSH-2.0-hstl7\r\n"], "refused"),
    "TLS": (lambda asked: [b"\x15\x03\x01\x00\x02\x02\x50"], "refused"),
    "HTTP/9.9": (lambda asked: [b"HTTP/9.9 200 OK\r\n\r\n", _body(asked)], "any"),
    "a body alone": (lambda asked: [_body(asked)], "refused"),
    "nothing": (lambda asked: [], "refused"),
    "silence": (lambda asked: [3600.0], "refused"),
    "a reset": (lambda asked: [-1.0], "refused"),
    "a reset behind the headers": (_sent("Content-Length: 500", wrap=lambda body: [b"data: ", -1.0]), "refused"),
    "endless random bytes": (long(b"", Random(7).randbytes(4096)), "refused"),
}


def _frames() -> Iterator[Hostile]:
    """Every framing at the door of the answers, and half of them at another."""
    others, engines = itertools.cycle(("models", "metrics", "about")), _rotating()
    for number, (name, (play, fits)) in enumerate(FRAMES.items()):
        yield Hostile(name, next(engines), play, fits=fits)
        if number % 2 or "bomb" in name:
            yield Hostile(name, ("vllm", "sglang", "llama_cpp")[number % 3], play, next(others))
    for engine in ENGINES:
        yield Hostile("nothing at any door", engine, lambda asked: [], "connection", fits="refused")
    for name in ("silence", "a reset", "a header line, a byte at a time", "endless headers", "no HTTP"):
        play, _ = FRAMES[name]
        engine = next(engines)
        yield Hostile(f"{name} at any door", engine, play, "connection", fits="refused")
    for door in ("models", "about", "metrics"):
        yield Hostile(
            "an honest body, a byte at a time without end", "vllm", long(head() + b'{"a": "', b"x", pause_s=0.3), door
        )


# ---------------------------------------------------------------------------------------------------------------- counters

COUNTED = {
    "vllm": "iteration_tokens_total_count",
    "llama_cpp": "n_decode_total",
    "lmdeploy": "iteration_tokens_total_count",
    "sglang": "num_requests_total",
}


def _counter(engine: str, value: str, labels: str = 'model_name="model"', more: str = "") -> str:
    name = f"{PREFIX[engine]}:{COUNTED[engine]}"
    return f"# TYPE {name} counter\n{name}{{{labels}}} {value}\n{more}"


def _text(text: str | bytes) -> bytes:
    return whole(text, "200 OK", "text/plain; version=0.0.4")


def _turns(*values: str) -> Play:
    return lambda asked: [_text(_counter(asked.engine, values[asked.number % len(values)]))]


def _fixed(make: Callable[[str], str | bytes]) -> Play:
    return lambda asked: [_text(make(asked.engine))]


def _growing(start: Callable[[str], str], piece: bytes, most: int = ENDLESS, pause_s: float = 0.0) -> Play:
    return lambda asked: itertools.chain(
        [head("200 OK", "text/plain"), start(asked.engine).encode()], endless(piece, most, pause_s)
    )


def _label_sets(asked: Asked) -> Pieces:
    name = f"{PREFIX[asked.engine]}:{COUNTED[asked.engine]}"
    yield head("200 OK", "text/plain")
    yield f"# TYPE {name} counter\n".encode()
    for thousand in range(1000):
        yield "".join(f'{name}{{path="{thousand}/{one}"}} 1\n' for one in range(1000)).encode()


METRICS: dict[str, Play] = {
    "falling": _turns("1e6", "5", "0"),
    "jumping": _turns("1", "1e300", "1"),
    "NaN": _turns("NaN"),
    "NaN in between": _turns("3", "NaN"),
    "inf": _turns("+Inf"),
    "inf after a number": _turns("3", "+Inf"),
    "-inf": _turns("-Inf"),
    "1e308 and again": _fixed(lambda e: _counter(e, "1e308") + _counter(e, "1e308", 'a="b"')),
    "negative": _turns("-5"),
    "no number": _turns("hstl7"),
    "0x10": _turns("0x10"),
    "1_000": _turns("1_000"),
    "half a pass": _turns("1", "9.5"),
    "10^400": _turns("1" + "0" * 400),
    "100 MB": _growing(lambda e: _counter(e, "1"), b"hstl7_other 1\n", 100 * MEBI),
    "a million label sets": _label_sets,
    "without end": _growing(lambda e: _counter(e, "1"), b"hstl7_other 1\n"),
    "a line without end": _growing(lambda e: _counter(e, "1") + 'a{b="', b"x"),
    "a byte at a time": _growing(lambda e: _counter(e, "1"), b"#", pause_s=0.3),
    "a comment of 100 MB": _growing(lambda e: "# HELP hstl7 ", b"x", 100 * MEBI),
    "JSON": _fixed(lambda e: json.dumps({"passes": 1})),
    "HTML": _fixed(lambda e: "<html>hstl7</html>"),
    "UTF-16": _fixed(lambda e: _counter(e, "1").encode("utf-16")),
    "invalid UTF-8": _fixed(lambda e: b"\xff\xfe" + _counter(e, "1").encode()),
    "types that contradict": _fixed(lambda e: _counter(e, "1") + _counter(e, "2").replace("counter", "histogram")),
    "a type of a thousand words": _fixed(lambda e: "# TYPE " + "hstl7 " * 1000 + "\n" + _counter(e, "1")),
    "labels that never close": _fixed(lambda e: f'{PREFIX[e]}:{COUNTED[e]}{{a="b'),
    "10,000 labels": _fixed(lambda e: _counter(e, "1", ",".join(f'l{one}="hstl7"' for one in range(10_000)))),
    "a label of 5 MB": _fixed(lambda e: _counter(e, "1", f'a="{"x" * 5_000_000}"')),
    "a time stamp of 30 digits": _fixed(lambda e: _counter(e, "1 " + "9" * 30)),
    "empty": _fixed(lambda e: ""),
    "NUL": _fixed(lambda e: "\x00" * 1000),
}


def _metrics() -> Iterator[Hostile]:
    engines = itertools.cycle(("vllm", "llama_cpp", "sglang", "lmdeploy"))
    for (name, play), engine in zip(METRICS.items(), engines, strict=False):
        yield Hostile(f"counters: {name}", engine, play, "metrics")
    for name in ("falling", "jumping", "NaN in between", "inf after a number"):
        for engine in ("lmdeploy", "vllm"):
            yield Hostile(f"counters: {name}, two a pass", engine, METRICS[name], "metrics", per_pass=2)


# --------------------------------------------------------------------------------------------------- what it says of itself


def _named(*names: Any) -> dict[str, Any]:
    return {"data": [{"id": name} for name in names]}


def _drafts(*told: Any) -> dict[str, Any]:
    """How a server of SGLang drafts: its algorithm and width."""
    return dict(zip(("speculative_algorithm", "speculative_num_draft_tokens"), told, strict=False))


MODELS: dict[str, Any] = {
    "nothing": b"",
    "no models": {"data": []},
    "models are null": {"data": None},
    "models are text": {"data": "model"},
    "models are an object": {"data": {"id": "model"}},
    "a model is text": {"data": ["model"]},
    "a model is null": {"data": [None]},
    "a model without a name": {"data": [{}]},
    "a name is null": _named(None),
    "a name is a number": _named(7),
    "a name is an object": _named({"a": 1}),
    "a name of 10 MB": lambda: _named("m" * 10_000_000),
    "a million models": lambda: b'{"data": [' + b",".join([b'{"id": "model"}'] * 1_000_000) + b"]}",
    "two models of a name": _named("model", "model"),
    "two models": _named("a", "b"),
    "a list": [{"id": "model"}],
    "null": b"null",
    "text": b'"model"',
    "a number": b"7",
    "an empty name": _named(""),
    "a name of spaces": _named("  "),
    "half a surrogate": b'{"data": [{"id": "\\ud800"}]}',
    "a name with a line break": _named("a\nsbd: fine"),
    "half of it": b'{"data": [{"id": "mod',
    "a name of NUL": _named("\x00"),
}
VERSIONS: dict[str, Any] = {
    "a number": 7,
    "an object": {"a": [1]},
    "null": None,
    "a list": ["1", "2"],
    "NaN": nan,
    "5 MB": "v" * 5_000_000,
    "true": True,
    "10^5000": 10**4000,
    "half a surrogate": "\ud800",
    "a line break": "1\nsbd: fine",
}
SETTINGS: dict[str, Any] = {
    "an algorithm that is an object": _drafts({"a": 1}),
    "an algorithm that is a number": _drafts(7),
    "an algorithm of 5 MB": _drafts("E" * 5_000_000),
    "a width of text": _drafts("EAGLE", "4"),
    "a width of NaN": _drafts("EAGLE", nan),
    "a width of inf": _drafts("EAGLE", inf),
    "a width of 10^30": _drafts("EAGLE", 10**30),
    "a width of -4": _drafts("UNO", -4),
    "a width of 1.5": _drafts("UNO", 1.5),
    "a width of true": _drafts("UNO", True),
    "a width that is a list": _drafts("UNO", [4]),
    "UNO, and it is not": _drafts("UNO", 4),
    "diffusion, and it is not": {"dllm_algorithm": "x" * 100},
    "diffusion that is a list": {"dllm_algorithm": [0]},
}


def _about() -> Iterator[Hostile]:
    for (name, value), engine in zip(MODELS.items(), _rotating(), strict=False):
        yield Hostile(f"models: {name}", engine, tells(value), "models", kind="models")
    names = ("model", "another", "third")
    for engine in ENGINES:
        yield Hostile(
            "another model at every question",
            engine,
            lambda asked: [whole(json.dumps(_named(names[asked.number % 3])))],
            "models",
            kind="models",
        )
    for (name, value), engine in zip(VERSIONS.items(), itertools.cycle(("vllm", "llama_cpp", "tensorrt_llm")), strict=False):
        key = "build_info" if engine == "llama_cpp" else "version"
        yield Hostile(f"a version is {name}", engine, tells({key: value}), "about")
    for name, told in SETTINGS.items():
        yield Hostile(name, "sglang", tells(told), "about", per_pass=1 if "UNO" in name or "width" in name else 2)
    for (name, body), engine in zip(BODIES.items(), itertools.cycle(("sglang", "vllm", "llama_cpp")), strict=False):
        yield Hostile(f"it describes itself as {name}", engine, tells(body), "about")


# ------------------------------------------------------------------------------------------------------------------- texts

TEXTS = (
    "<hstl7 onload=hstl7()>",
    "</script><hstl7>",
    '"><hstl7 x="',
    "<!-- hstl7",
    "\x1b[31mhstl7\x1b]0;hstl7\x07",
    "\x9b31mhstl7\x85x",
    "\u202ehstl7\u2066",
    "hstl7\rsbd: fine",
    "x\n::error::hstl7",
    "::set-output name=hstl7::x",
    "x\n##vso[task.setvariable]hstl7",
    "[hstl7](javascript:hstl7())",
    "[red]hstl7[/red][link=http://x]y",
    "{{ hstl7 }}{% raw %}",
    "\x00hstl7\x08\x7f",
    "=hstl7()",
)


def planted(text: str) -> dict[str, tuple[str, Play]]:
    """Where a text of a server comes to be shown, with the door of each."""
    quoted = json.dumps(text)
    reason = {"choices.0.finish_reason": text, "meta_info.finish_reason.type": text, "stop_type": text}

    def ended(events: list[Any]) -> list[Any]:
        for path, value in reason.items():
            ends = [one for one in events if _is_end(one)]
            put(ends, path, value)
        return events

    line = text.replace("\r", " ").replace("\n", " ")
    raw = line.encode(errors="replace")
    return {
        "an error's message": ("stream", answers(f'{{"error": {{"message": {quoted}}}}}', "400 Bad Request")),
        "an error's bare body": ("stream", answers(text, "500 Error", "text/plain")),
        "an error in the stream": ("stream", edited(lambda events: [*events[:2], {"error": {"message": text}}])),
        "a finish reason": ("stream", edited(ended)),
        "an event that is none": ("stream", edited(lambda events: [*events[:2], {"hstl7": text}])),
        "a bare line": ("stream", edited(lambda events: [*events[:2], b"data: " + raw + b"\n\n"])),
        "the kind of the content": ("stream", lambda asked: [b"HTTP/1.1 200 OK\r\nContent-Type: " + raw + b"\r\n\r\n"]),
        "the words of the status": ("stream", lambda asked: [b"HTTP/1.1 500 " + raw + b"\r\nConnection: close\r\n\r\n"]),
        "the names of models": ("models", tells(_named(text, text + "b"))),
        "the name of the model": ("models", tells(_named(text))),
        "its version": ("about", tells({"version": text, "build_info": text, "speculative_algorithm": text})),
        "the names of counters": ("metrics", lambda asked: [_text(f"# HELP a {quoted}\n{line} 1\na{{b={quoted}}} x\n")]),
    }


def _texts() -> Iterator[Hostile]:
    """Every text at a third of the places."""
    engines = _rotating()
    for number, text in enumerate(TEXTS):
        for place, (where, (door, play)) in enumerate(planted(text).items()):
            engine = next(engines)
            if place % 3 == number % 3:
                door = "models" if engine == "lmdeploy" and door == "about" else door
                yield Hostile(f"{where}: {text!r}", engine, play, door)


# ------------------------------------------------------------------------------------------------------------------ logins


def _repeats_headers(asked: Asked) -> Pieces:
    """Shows back what the client sent, its login with it."""
    return [whole(asked.headers, "500 Error", "text/plain")]


def _told_back() -> dict[str, tuple[str, Play | None]]:
    """Where a server can show what the client sent it, its key with it."""

    def in_event(asked: Asked) -> Pieces:
        return stream([*events_of(asked)[:2], {"error": {"message": asked.headers}}])

    def as_model(asked: Asked) -> Pieces:
        return [whole(json.dumps(_named(*(one[:900] for one in asked.headers.splitlines()))))]

    return {
        "nothing": ("stream", None),
        "an error's body": ("stream", _repeats_headers),
        "an event": ("stream", in_event),
        "a refusal of its models": ("models", _repeats_headers),
        "the names of its models": ("models", as_model),
        "its version": ("about", tells({"version": SECRET, "build_info": SECRET})),
        "a redirect": ("stream", answers("", "307 Away", "text/plain", f"Location: http://127.0.0.2:9/{SECRET}")),
        "its counters": ("metrics", lambda asked: [_text(f'# {SECRET}\na{{b="{SECRET}"}} 1\n')]),
    }


def _logins() -> Iterator[Hostile]:
    logins = {
        "a user and a password": f"someone:{SECRET}@",
        "a password alone": f":{SECRET}@",
        "a token as the user": f"{SECRET}@",
        "an escaped password": f"some%20one:{SECRET}%40x@",
    }
    plays: dict[str, tuple[str, Play | None]] = {
        "honest": ("stream", None),
        "repeats what it was sent": ("stream", _repeats_headers),
        "refuses": ("models", answers("{}", "401 Unauthorized")),
        "is silent": ("connection", lambda asked: [3600.0]),
        "redirects": ("models", answers("", "302 Found", "text/plain", "Location: http://127.0.0.2:9/")),
    }
    engines = _rotating()
    for login_name, login in logins.items():
        for name, (door, play) in plays.items():
            yield Hostile(f"{login_name} in the address; the server: {name}", next(engines), play, door, login=login)
    for name, (door, play) in _told_back().items():
        yield Hostile(
            f"a key in the environment; the server repeats it in {name}", next(engines), play, door, key=f"Bearer {SECRET}"
        )
    for query in (f"?key={SECRET}", f"#{SECRET}"):
        yield Hostile(f"{query[0]} in the address", "vllm", query=query)


# -------------------------------------------------------------------------------------------------------------- odd, honest


def _in_bytes(data: bytes, size: int) -> Iterator[bytes | float]:
    for place in range(0, len(data), size):
        yield data[place : place + size]
        yield 0.002


def _packed_where_asked(asked: Asked) -> Pieces:
    """Packed for a client that takes it."""
    takes = any(one.lower().startswith("accept-encoding:") and "gzip" in one for one in asked.headers.splitlines())
    if not takes:
        return stream(events_of(asked))
    return [head("200 OK", "text/event-stream", "Content-Encoding: gzip"), gzip.compress(_body(asked))]


def _oddities(engine: str) -> dict[str, tuple[str, Play]]:
    return {
        "comments between events": ("stream", edited(lambda events: [each for one in events for each in (b": ping\n\n", one)])),
        "CRLF line ends": ("stream", edited(lambda events: [written(one).replace(b"\n", b"\r\n") for one in events])),
        "a BOM first": ("stream", edited(lambda events: [b"\xef\xbb\xbf", *events])),
        "unknown keys": (
            "stream",
            edited(lambda events: [one | {"more": [1]} if isinstance(one, dict) else one for one in events]),
        ),
        "in pieces of 37 bytes": (
            "stream",
            lambda asked: itertools.chain([head("200 OK", "text/event-stream")], _in_bytes(_body(asked), 37)),
        ),
        "in honest chunks": ("stream", _sent(CHUNKED, wrap=lambda body: [_chunk(body), b"0\r\n\r\n"])),
        "in gzip where it may be": ("stream", _packed_where_asked),
        "a charset in the kind": ("stream", lambda asked: [head("200 OK", "text/event-stream; charset=utf-8"), _body(asked)]),
        "no counters": ("metrics", answers("not found", "404 Not Found", "text/plain")),
        "it does not describe itself": ("about" if engine != "lmdeploy" else "health", answers("{}", "404 Not Found")),
    }


def _sound() -> Iterator[Hostile]:
    """What must be taken: two tokens a pass, which the verdict confirms, and honest oddities."""
    for engine in ENGINES:
        yield Hostile("an honest server", engine, door="", fits="sound", per_pass=2)
        yield Hostile("an honest server, not faster", engine, door="", fits="sound")
    for number, engine in enumerate(ENGINES):
        for place, (name, (door, play)) in enumerate(_oddities(engine).items()):
            if place % 2 == number % 2:
                yield Hostile(name, engine, play, door, fits="sound", per_pass=2)


# ------------------------------------------------------------------------------------------------------------- a server's own


HEALTH: dict[str, Play] = {
    "never ends": long(head("200 OK"), b"x"),
    "a gzip bomb": packed(1024),
    "a byte at a time": long(head("200 OK"), b"x", pause_s=0.3),
    "endless headers": long(OK, b"X-Hstl7: 1\r\n"),
    "500 without end": long(head("500 Error"), b"x"),
    "no HTTP": lambda asked: [b"SSH-2.0-hstl7\r\n"],
    "a redirect to itself": answers("", "307 Temporary Redirect", "text/plain", "Location: /health"),
    "an encoding that is wrong": answers(b"xyz", "200 OK", "application/json", "Content-Encoding: gzip"),
}


def _health() -> Iterator[Hostile]:
    """Of a server that the program starts itself."""
    for name, play in HEALTH.items():
        yield Hostile(f"health: {name}", "lmdeploy", play, "health")


OF_KIND: dict[str, Callable[[], Iterator[Hostile]]] = {
    "sound": _sound,
    "token_ids": _token_ids,
    "fields": _fields,
    "lies": _lies,
    "events": _events,
    "shapes": _shapes,
    "statuses": _statuses,
    "frames": _frames,
    "metrics": _metrics,
    "about": _about,
    "texts": _texts,
    "logins": _logins,
    "health": _health,
}


def catalogue() -> list[Hostile]:
    """All of them, in an order that stays."""
    return [one if one.kind else replace(one, kind=kind) for kind, made_of in OF_KIND.items() for one in made_of()]


def honest_events(engine: str, per_pass: int = 2, tokens: int = 9) -> list[Any]:
    """Of one answer, as a base of random changes."""
    asked = Asked(engine=engine, door="stream", number=0, body={"prompt": [1] * 8, "max_tokens": tokens}, per_pass=per_pass)
    return events_of(asked)


def mutated_answers(engine: str) -> st.SearchStrategy[list[Any]]:
    """Events of an answer with up to three places changed."""
    return by_chance(lambda chance: mutate(chance, honest_events(engine)))
