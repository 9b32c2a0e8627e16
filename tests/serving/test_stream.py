"""The stream of an answer from a server that means harm: each ends in a refusal in words, within the bounds of what was asked.

The servers are raw sockets of this process that send the bytes of a case, whatever HTTP says.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Mapping
from itertools import chain
from typing import Any

import httpx2 as httpx
import pytest

from harness.errors import RequestError
from harness.serving.counts import arrivals, count_passes
from harness.serving.dialects import DIALECTS
from harness.serving.dialects.dialect import MOST, ServerRequest
from harness.serving.stream import ServedAnswer, answer_of, ask
from tests.helpers import ROOT
from tests.helpers.hostile_answers import Play, long
from tests.helpers.hostile_server import HostileServer

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n"
ASKED = ServerRequest(ids=(5, 6, 7), max_tokens=3, temperature=0.0, seed=1, salt="s")
SILENT_S = 0.4


def event(number: int, reason: str | None = None, ids: object = None, **more: object) -> dict[str, Any]:
    """Of vLLM: the token of that number, from 1."""
    choice = {"index": 0, "text": "x", "token_ids": [number] if ids is None else ids, "finish_reason": reason}
    return {"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": number}} | more


GOOD = [event(1), event(2), event(3, "length"), {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 3}}]


def stream(*events: object) -> bytes:
    """As a body."""
    return b"".join(b"data: " + (one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n\n" for one in events)


def answered(body: bytes | Play, head: bytes = HEAD + b"\r\n", asked: ServerRequest = ASKED) -> ServedAnswer:
    """What ask makes of a server that sends this, and goes on for ever where the body does."""
    server = HostileServer("vllm", "stream", lambda it: chain([head], [body] if isinstance(body, bytes) else body(it))).start()

    async def client_asks() -> ServedAnswer:
        async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
            return await ask(client, DIALECTS["vllm"], asked, "m", SILENT_S)

    try:
        return asyncio.run(asyncio.wait_for(client_asks(), 60))
    finally:
        server.close()


def for_ever(piece: bytes, every_s: float = 0.0, begin: bytes = b"") -> Play:
    """The same piece again and again."""
    return long(begin, piece, pause_s=every_s)


def test_an_honest_answer_is_read_with_or_without_a_mark_and_whatever_its_charset() -> None:
    """A byte order mark would cost the first token, and a charset of another codec has no text."""
    for head, body in (
        (HEAD, stream(*GOOD, b"[DONE]")),
        (HEAD, b"\xef\xbb\xbf: ping\n\n" + stream(*GOOD)),
        (HEAD.replace(b"event-stream", b"event-stream; charset=zlib"), stream(*GOOD)),
        (HEAD, b"\xef\xbb\xbf" + stream(*GOOD, b"[DONE]").replace(b'"x"', b'"\xff"')),
    ):
        found = answered(body, head + b"\r\n")
        assert found.ids == (1, 2, 3) and found.stop_reason == "length" and found.prompt_tokens == 3


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(for_ever(b": keepalive\n\n" * 999), "more bytes than 3 tokens", id="comments without end"),
        pytest.param(for_ever(b": keepalive\n\n", 0.01), "fell silent", id="comments now and then"),
        pytest.param(for_ever(b"d" * 9999), "more bytes", id="a line without end"),
        pytest.param(for_ever(b"data: {}\n\n" * 999), "more bytes", id="events without end"),
        pytest.param(for_ever(b"x", 0.01, b"data: "), "fell silent", id="a byte now and then"),
        pytest.param(for_ever(stream({"choices": []}), 0.1), "no end within 5 times", id="empty events now and then"),
        pytest.param(for_ever(b"\n", 0.05, stream(*GOOD, b"[DONE]")), "fell silent", id="an end that is none"),
        pytest.param(for_ever(b"data: x" * 999, 0, stream(*GOOD, b"[DONE]")), "more bytes", id="much behind the end"),
    ],
)
def test_a_stream_without_end_ends_in_its_bounds(body: Play, words: str) -> None:
    """In bytes, in silence, and in the seconds of all its tokens."""
    with pytest.raises(RequestError, match=words):
        answered(body)


@pytest.mark.parametrize(
    ("head", "body", "words"),
    [
        (b"HTTP/1.1 500 No\r\n\r\n", for_ever(b"no\x1b[31m " * 99), r"answered 500: no"),
        (b"HTTP/1.1 302 F\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", b"", "answered 302"),
        (b"HTTP/1.1 200 OK\r\n", for_ever(b"X-More: 1\r\n" * 999), "connection broke"),
        (b"HTTP/1.1 200 OK\r\n", for_ever(b"X", 0.01), "fell silent"),
        (HEAD + b"Content-Encoding: gzip\r\n\r\n", gzip.compress(bytes(1 << 26)), r"events: it is encoded \(gzip\)"),
        (HEAD.replace(b"event-stream", b"html") + b"\r\n", b"<html>moved", "'text/html'.*<html>moved"),
        (HEAD + b"\r\n", b"", "ended after 0 tokens"),
        (HEAD + b"\r\n", stream(*GOOD).decode().encode("utf-16"), "ended after 0 tokens"),
        (HEAD + b"\r\n", json.dumps(GOOD[0]).encode(), "ended after 0 tokens"),
    ],
)
def test_what_is_no_stream_is_told_with_its_beginning(head: bytes, body: bytes | Play, words: str) -> None:
    """A message is short and fit for a terminal, whatever was sent."""
    with pytest.raises(RequestError, match=words) as found:
        answered(body, head)
    assert len(str(found.value)) < 600 and "\x1b" not in str(found.value)


NO_COUNTS: list[Any] = [-1, 1.5, True, "7", None, [1], {}, 10**30, MOST + 1]
"""In place of a count or a token id."""


def spoilt(engine: str, at: tuple[str | int, ...], value: object) -> list[str]:
    """The recorded stream of an engine whose first event that has the place holds this there."""
    file = {"vllm": "vllm_ngram", "llama_cpp": "llama_cpp_ngram", "lmdeploy": "lmdeploy_eagle3", "sglang": "sglang_eagle"}
    text = (ROOT / "tests" / "data" / "serving" / f"{file.get(engine, engine)}.jsonl").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("# ")]
    for number, line in enumerate(lines):
        whole = found = json.loads(line)
        try:
            for key in at[:-1]:
                found = found[key]
            found[at[-1]]
        except (KeyError, IndexError, TypeError):
            continue
        found[at[-1]] = value
        lines[number] = json.dumps(whole)
        return lines
    raise AssertionError(at)


PLACES: Mapping[str, list[tuple[str | int, ...]]] = {
    "vllm": [
        ("choices", 0, "token_ids", 0),
        ("usage", "completion_tokens"),
        *(("metrics", "speculative_decoding", f"num_{key}") for key in ("spec_steps", "draft_tokens", "accepted_draft_tokens")),
        ("metrics", "speculative_decoding", "per_step_accepted", 1),
        ("metrics", "speculative_decoding", "per_step_drafted", 0),
    ],
    "llama_cpp": [
        ("tokens", 0),
        ("tokens_predicted",),
        ("timings", "cache_n"),
        ("timings", "draft_n"),
        ("timings", "draft_n_accepted"),
    ],
    "sglang": [
        ("choices", 0, "token_ids", 0),
        ("usage", "completion_tokens"),
        *(("sglext", "spec_tokens_details", key) for key in ("spec_verify_ct", "spec_num_correct_drafts")),
        ("sglext", "spec_tokens_details", "spec_correct_drafts_histogram", 0),
    ],
    "lmdeploy": [("output_ids", 0), ("meta_info", "completion_tokens")],
    "tensorrt_llm": [
        ("choices", 0, "token_ids", 0),
        ("usage", "completion_tokens"),
        ("usage", "prompt_tokens_details", "cached_tokens"),
    ],
}
ABSENT_ALLOWED = {"completion_tokens", "cached_tokens"}


def answer_in(engine: str, lines: list[str]) -> ServedAnswer:
    """Of events a second apart."""
    return answer_of(0.0, [(float(second), line) for second, line in enumerate(lines)], DIALECTS[engine])  # type: ignore[index]


@pytest.mark.parametrize(("engine", "at"), [(engine, at) for engine, places in PLACES.items() for at in places])
def test_every_count_of_every_engine_is_checked_where_it_enters(engine: str, at: tuple[str | int, ...]) -> None:
    """None of them makes a Python error, here or where passes are counted; the refusal names the place."""
    for value in NO_COUNTS:
        if value is None and at[-1] in ABSENT_ALLOWED:
            continue
        with pytest.raises(RequestError, match=rf"{at[0]}.*{engine}"):
            answer_in(engine, spoilt(engine, at, value))


@pytest.mark.parametrize(
    "bad",
    [
        b"[]",
        b"3",
        b'"x"',
        b"null",
        b"",
        b"{}",
        b"[" * 100_000,
        b"9" * 5000,
        b'{"choices": NaN}',
        b'{"choices": null}',
        *(
            json.dumps({"choices": choices}).encode()
            for choices in (
                {},
                "x",
                [1],
                [None],
                [[]],
                GOOD[0]["choices"] * 2,
                [GOOD[0]["choices"][0] | {"index": 1}],
                *([GOOD[0]["choices"][0] | {"finish_reason": reason}] for reason in (1, [], {}, True, "abort")),
                *([GOOD[0]["choices"][0] | {"token_ids": ids}] for ids in ("7", 7, {}, [[7]], [-1] * 200_000)),
            )
        ),
        *(json.dumps(GOOD[0] | {"usage": usage}).encode() for usage in ([], 1, "x", {"prompt_tokens": -1})),
        *(
            json.dumps(GOOD[3] | {"metrics": one}).encode()
            for one in ([], 1, {"speculative_decoding": []}, {"speculative_decoding": {"num_spec_steps": 1}})
        ),
        json.dumps({"error": {"message": "out of memory " * 9999}}).encode(),
        json.dumps({"error": [1]}).encode(),
    ],
)
def test_an_event_of_another_kind_is_refused_in_words(bad: bytes) -> None:
    """Whatever JSON it is; the message shows its beginning."""
    with pytest.raises(RequestError) as found:
        answer_in("vllm", [json.dumps(GOOD[0]), bad.decode(), *map(json.dumps, GOOD[1:])])
    assert "vllm" in str(found.value) and len(str(found.value)) < 1200


@pytest.mark.parametrize("mean", ["1e999", "NaN", "1e308", "-1.0", '"2"', "null"])
def test_a_mean_that_is_no_number_is_refused(mean: str) -> None:
    """Of vLLM's acceptance and of llama.cpp's clock."""
    lines = spoilt("vllm", ("metrics", "speculative_decoding", "mean_acceptance_length"), 77.25)
    with pytest.raises(RequestError, match="vllm"):
        answer_in("vllm", [line.replace("77.25", mean) for line in lines])
    if mean != "1e308":
        lines = spoilt("llama_cpp", ("timings", "predicted_ms"), 77.25)
        with pytest.raises(RequestError, match="llama_cpp"):
            answer_in("llama_cpp", [line.replace("77.25", mean) for line in lines])


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([GOOD[0], GOOD[0], *GOOD[1:]], "2 token ids came, the server counts 1: some came twice"),
        ([*GOOD[:2], GOOD[1], *GOOD[2:]], "some came twice"),
        ([GOOD[0], *GOOD[2:]], "2 token ids came, the server counts 3: some were lost"),
        ([*GOOD, event(4)], "after the end"),
        ([*GOOD[:3], GOOD[2]], "after the end"),
        ([*GOOD, "[DONE]", GOOD[3]], "after the end"),
    ],
)
def test_events_that_came_twice_or_late_or_never_make_no_answer(events: list[Any], words: str) -> None:
    """The server's own count of the tokens tells."""
    with pytest.raises(RequestError, match=words):
        answer_in("vllm", [one if isinstance(one, str) else json.dumps(one) for one in events])


def test_llama_cpp_counts_tokens_that_it_never_sends() -> None:
    """A token that ends within a character has no event: such an answer is honest, one with more ids than tokens is not."""
    lines = spoilt("llama_cpp", ("index",), 0)
    assert answer_in("llama_cpp", [*lines[:3], *lines[4:]]).said["written"] == 24
    with pytest.raises(RequestError, match="some came twice"):
        answer_in("llama_cpp", [*lines[:3], *lines[2:]])
    with pytest.raises(RequestError, match="fewer drafts of this request than before"):
        answer_in("llama_cpp", [line.replace('"draft_n": 4', '"draft_n": 9') for line in lines])


def test_counts_as_large_as_they_may_be_cost_nothing() -> None:
    """A histogram of as many rounds, an average of next to nothing: each way is a number, and they disagree."""
    lines = spoilt("sglang", ("sglext", "spec_tokens_details", "spec_correct_drafts_histogram"), [MOST] * 3)
    assert len(set(count_passes(answer_in("sglang", lines), {}, alone=True).counts)) > 1
    tiny = answer_in(
        "tensorrt_llm", [line.replace('_iter": 2.5', '_iter": 1e-300') for line in spoilt("tensorrt_llm", ("id",), "x")]
    )
    assert len(set(count_passes(tiny, {}, alone=True).counts)) > 1
    most = spoilt("vllm", ("metrics", "speculative_decoding", "per_step_accepted"), [MOST] * 6)
    assert len(arrivals(0, answer_in("vllm", most), 5, one_by_one=False)) == 6
    for key in ("per_step_accepted", "per_step_drafted"):
        with pytest.raises(RequestError, match="other rounds than its num_spec_steps, 6"):
            answer_in("vllm", spoilt("vllm", ("metrics", "speculative_decoding", key), [4] * 7))
