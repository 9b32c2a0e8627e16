"""What a server says in its small answers is checked where it comes in, and read with a bound in bytes and in seconds.

The other ends are local servers in threads, whose answers are as no engine gives them; the streams are tested elsewhere.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.errors import RequestError
from harness.scenario.servers import Server
from harness.serving import launch
from harness.serving.launch import StartedServer
from harness.serving.served_model import ServedModel, growth
from tests.helpers.hostile_answers import OK, Play, answers, long, packed
from tests.helpers.hostile_server import Asked, HostileServer, Pieces, head, whole

Answer = bytes | Play
MODELS = b'{"object": "list", "data": [{"id": "model", "object": "model", "max_model_len": 2048}]}'
REQUESTS = "vllm:request_success_total"
PAGE = f'# TYPE {REQUESTS} counter\n{REQUESTS}{{finished_reason="stop"}} 2.0\n{REQUESTS}{{finished_reason="length"}} 3.0\n'


@contextmanager
def answering(given: Mapping[str, Answer], seen: list[str] | None = None) -> Iterator[str]:
    """The address of a server with an answer for each path: the body of a 200, or what gives all of its pieces."""

    class Server(HostileServer):
        def _pieces(self, asked: Asked) -> Pieces:
            path = asked.headers.split()[1]
            key = re.search(r"(?im)^authorization: (.*?)\r?$", asked.headers)
            if seen is not None:
                seen.append(f"{path} {key and key[1]}")
            answer = given.get(path, answers("", "404 Not Found"))
            return [whole(answer)] if isinstance(answer, bytes) else answer(asked)

    server = Server("vllm").start()
    try:
        yield server.url
    finally:
        server.close()


def served(url: str, engine: str = "vllm") -> ServedModel:
    """The server at an address, not yet asked."""
    return ServedModel("far", Server.model_validate({"engine": engine, "url": url}), "weights", "bfloat16", Path("nowhere"))


ENDLESS, TRICKLE = long(head(), b" "), long(head(), b" ", pause_s=0.1)
REDIRECT, BOMB = answers("", "302 Found", "text/plain", "Location: /v1/models"), packed(50)


@pytest.mark.parametrize(
    "answer",
    [
        b"[]",
        b"null",
        b"17",
        b'{"data": null}',
        b'{"data": "model"}',
        b'{"data": [1]}',
        b'{"data": [{"id": 5}]}',
        b'{"data": [{"id": null}]}',
        b'{"data": [{"name": "model"}]}',
        b'{"data": [{"id": "\\u001b[2Jmodel"}]}',
        b'{"data": [{"id": "model\\u202e"}]}',
        b'{"data": {"id": "model"}}',
        b"",
        b"<html>models</html>",
        b"\xff\xfe{\x00",
        b'{"data": [{"id": "caf\xe9"}]}',
        b"[" * 100_000,
        b'{"data":' * 100_000,
        b"NaN",
        b"1e308",
        json.dumps({"data": [{"id": "m" * 1_000_000}]}).encode(),
    ],
    ids=lambda answer: answer[:24].decode("latin-1"),
)
def test_a_list_of_models_that_is_none_is_refused_by_name(answer: bytes) -> None:
    """With the server, its address, what it said and what it must say; in a few lines, whatever it said."""
    with (
        answering({"/v1/models": answer}) as url,
        pytest.raises(RequestError, match=r"server far: .*data lists models") as refused,
    ):
        served(url).ensure_running()
    assert url in str(refused.value) and len(str(refused.value)) < 1500


def test_a_long_list_of_models_is_told_in_short() -> None:
    """The scenario names none of 100,000."""
    many = json.dumps({"data": [{"id": f"model {number}"} for number in range(100_000)]}).encode()
    with (
        answering({"/v1/models": many}) as url,
        pytest.raises(RequestError, match="server far serves model 0, model 1") as refused,
    ):
        served(url).ensure_running()
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (ENDLESS, "more than"),
        (BOMB, "data lists models"),
        (long(OK, b"X-More: 1\r\n"), "200"),
        (REDIRECT, "answers 302"),
        (answers("", "401 Unauthorized"), "answers 401"),
    ],
)
def test_an_answer_is_read_within_a_bound(answer: Answer, words: str) -> None:
    """No encoding is undone, no redirect is followed."""
    with answering({"/v1/models": answer}) as url, pytest.raises(RequestError, match=f"server far: .*{words}"):
        served(url).ensure_running()


@pytest.mark.parametrize("answer", [TRICKLE, long(b"", b"HTTP/1.1 100 Continue\r\n\r\n", pause_s=0.1), lambda asked: [30.0]])
def test_the_seconds_of_an_answer_are_counted_together(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a piece of it comes."""
    monkeypatch.setattr(launch, "MOST_S", 0.5)
    with answering({"/v1/models": answer}) as url, pytest.raises(RequestError, match=r"server far: .* within 0\.5 s"):
        served(url).ensure_running()


@pytest.mark.parametrize(
    "answer",
    [
        b'{"version": {"a": 1}}',
        b'{"version": "1.0\\u0007"}',
        b'{"version": 5}',
        b"[1]",
        b"",
        b"\xff",
        b"[" * 100_000,
        json.dumps({"version": "9" * 1_000_000}).encode(),
        ENDLESS,
        REDIRECT,
    ],
)
def test_a_version_that_is_none_is_unknown(answer: Answer) -> None:
    """The server is used all the same."""
    with answering({"/v1/models": MODELS, "/version": answer}) as url:
        server = served(url)
        server.ensure_running()
        assert server.described()["version"] is None and server.model == "model"
    with answering({"/v1/models": MODELS, "/version": b'{"version": "0.32.0", "more": NaN}'}) as url:
        server = served(url)
        server.ensure_running()
        assert server.described()["version"] == "0.32.0"


@pytest.mark.parametrize(
    "told",
    [
        {"speculative_num_draft_tokens": "many"},
        {"speculative_num_draft_tokens": -4},
        {"speculative_num_draft_tokens": 10**30},
        {"speculative_num_draft_tokens": True},
        {"speculative_algorithm": ["EAGLE"]},
        {"dllm_algorithm": {"a": 1}},
    ],
)
def test_what_an_engine_says_of_its_rounds_is_of_its_kind(told: dict[str, object]) -> None:
    """Else nothing is known of them: no width goes into a pass that is no count."""
    sound = {"speculative_algorithm": "EAGLE", "speculative_num_draft_tokens": 5, "version": "0.5.23"}
    for said, fed, drafts in ((sound, 5, True), (sound | told, None, None)):
        with answering({"/v1/models": MODELS, "/server_info": json.dumps(said).encode()}) as url:
            server = served(url, "sglang")
            server.ensure_running()
            assert (server.rounds.fed, server.rounds.drafts) == (fed, drafts)


@pytest.mark.parametrize(
    "series",
    [
        " NaN",
        " -1",
        " +Inf",
        " 1e308",
        " 1" + "0" * 400,
        " many",
        "",
        '{finished_reason="length"} 4',
        '{a="b} 1',
        '{a="1", ="2"} 1',
        " 1 1" + "0" * 400,
        '{a="' + '\\"' * 500_000 + '"} 1',
    ],
    ids=lambda series: series[:20],
)
def test_counters_that_count_nothing_are_absent(series: str) -> None:
    """Not one of them is told, before or after."""
    page = {"/v1/models": MODELS, "/metrics": PAGE.encode()}
    with answering(page) as url:
        assert served(url).counters() == {"requests": 5.0}
    with answering(page | {"/metrics": f"{PAGE}{REQUESTS}{series}".encode()}) as url:
        assert served(url).counters() == {}


@pytest.mark.parametrize("answer", [b"<html>\n<p>no metrics</p>", b"\xff\xfe", b"", ENDLESS, REDIRECT, BOMB])
def test_a_page_without_counters_has_none(answer: Answer) -> None:
    """Of other kinds, or without an end."""
    with answering({"/metrics": answer}) as url:
        assert served(url).counters() == {}


def test_many_series_of_a_counter_are_not_read() -> None:
    """A page within the bound in bytes; series of other names are passed over."""
    others = "".join(f'other{{a="{number}"}} NaN\n' for number in range(50_000))
    wanted = "".join(f'{REQUESTS}{{a="{number}"}} 1\n' for number in range(50_000))
    with answering({"/metrics": (others + PAGE.rstrip()).encode()}) as url:
        assert served(url).counters() == {"requests": 5.0}
    with answering({"/metrics": (PAGE + wanted).encode()}) as url:
        assert served(url).counters() == {}


def test_a_counter_grows_or_is_absent() -> None:
    """One that fell was begun anew, and where nothing was read before nobody knows from where it grew."""
    assert growth({"requests": 5.0, "passes": 9.0}, {"requests": 6.0, "passes": 2.0, "cached": 3.0}) == {
        "requests": 1.0,
        "cached": 3.0,
    }
    assert growth({}, {"requests": 6.0}) == {}


def test_counters_that_take_too_long_are_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that is refused is asked for again, for it may be there then."""
    monkeypatch.setattr(launch, "MOST_S", 0.3)
    seen: list[str] = []
    with answering({"/metrics": TRICKLE}, seen) as url:
        slow = served(url)
        assert [slow.counters() for _ in range(3)] == [{}] * 3 and len(seen) == 1
        gone = served(url)
        monkeypatch.setattr(gone.dialect, "metrics", "/gone")
        assert [gone.counters() for _ in range(2)] == [{}] * 2 and len(seen) == 3


def test_a_key_is_sent_and_told_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes from the environment, by the server's name; another server's is not sent."""
    monkeypatch.setenv("SBD_SERVER_AUTH_FAR", "Bearer sk-hidden\n")
    monkeypatch.setenv("SBD_SERVER_AUTH_NEAR", "Bearer other")
    seen: list[str] = []
    with answering({"/v1/models": MODELS}, seen) as url:
        server = served(url)
        server.ensure_running()
        assert seen[0] == "/v1/models Bearer sk-hidden" and "hidden" not in json.dumps(server.described())
        monkeypatch.setenv("SBD_SERVER_AUTH_FAR", "Bearer sk-\x01hidd\u00e9n")
        served(url).ensure_running()
    with pytest.raises(RequestError) as refused:
        served(url).ensure_running()
    assert "sk-" not in str(refused.value)


def test_a_key_that_a_server_repeats_is_told_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the names of its models, in its version, and in an error of a request."""
    monkeypatch.setenv("SBD_SERVER_AUTH_FAR", "Bearer sk-hidden")
    answers = {"/v1/models": b'{"data": [{"id": "of sk-hidden"}]}', "/version": b'{"version": "1 sk-hidden"}'}
    with answering(answers) as url:
        one = served(url)
        one.ensure_running()
    assert one.model == "of ***" and one.described()["version"] == "1 ***"
    assert one.without_key("no right: Bearer sk-hidden") == "no right: Bearer ***"


def test_the_end_of_a_long_log_is_read_alone(tmp_path: Path) -> None:
    """Of lines of any length, the last ones in short."""
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.truncate(1 << 32)
        file.seek(0, 2)
        file.write(b"\nan Error " + b"x" * 30_000 + b"\nthe Error at the end\n")
    server = StartedServer("one", [sys.executable, "-c", ""], {}, log)
    server.end()
    assert "the Error at the end" in server.tail() and len(server.tail()) < 4000
