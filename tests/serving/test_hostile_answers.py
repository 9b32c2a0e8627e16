"""A sample of the catalogue of hostile servers, asked in this process: an error that says so, or an answer that is right.

`python -m benchmarks.hostile --only servers` runs all of it through the command line.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.errors import NotPossibleError, RequestError
from harness.models import KNOWN_SHAPES
from harness.serving.engine import ServedEngine
from tests.helpers.hostile_answers import Hostile, catalogue, mutated_answers
from tests.helpers.hostile_server import ENGINES, HostileServer, ids_of, stream
from tests.helpers.plans import case_of

TOKENS, PROMPT = 9, (5, 6, 7, 8)
SAMPLED = (
    "an honest server",
    "CRLF line ends",
    "a BOM first",
    "in gzip where it may be",
    "an id is outside the vocabulary",
    "an id is true",
    "an id is a float",
    "the ids of a pass are text",
    "choices.0.finish_reason is *",
    "timings.predicted_ms is *",
    "usage is *",
    "all in one pass",
    "another prompt's length",
    "a histogram of 10^12",
    "an event is 100,000 brackets",
    "an event is invalid UTF-8",
    "the only event is half a surrogate",
    "twice the tokens asked for, two a pass",
    "every chunk comes twice",
    "tokens behind all",
    "no end",
    "ends within an event",
    "two finish reasons",
    "[DONE] alone",
    "endless comments",
    "a line without an end",
    "endless tokens",
    "204",
    "a redirect to itself",
    "an error body without end",
    "an error in UTF-16",
    "status of 50 digits",
    "a length too small",
    "a chunk of a negative size",
    "a gzip bomb",
    "endless headers",
    "no HTTP",
    "a reset",
    "counters: NaN",
    "counters: without end",
    "counters: UTF-16",
    "models: models are null",
    "models: a name is an object",
    "models: a million models",
    "a version is NaN",
    "a width of text",
    r"the kind of the content: '\u202e*",
    "it describes itself as 100,000 brackets",
)
"""Each is played once; a star stands for the first of a name."""
GUARD_S = 60
MOST_BYTES = 96 << 20
"""A server of this process ends there, so that an unbounded reader fails here and takes no more of the machine."""


def sampled(one: str) -> Hostile:
    """The first case of a name."""
    name = one.removesuffix("*")
    return next(each for each in CATALOGUE if each.what == name or (one != name and each.what.startswith(name)))


CATALOGUE = catalogue()


def answered(server: HostileServer, engine: str, logs: Path) -> tuple[int, ...]:
    """The ids of one request."""
    part = {
        "model": {"reference": "sbd"},
        "servers": {"one": {"engine": engine, "url": server.url, "silent_s": 1.0}},
        "arms": [{"method": "ntp", "server": "one"}],
        "timed": False,
        "workload": {"synthetic": {"prompt_tokens": len(PROMPT)}, "prompts": 1, "max_new_tokens": TOKENS},
    }
    case = case_of("ntp", **part)
    served = ServedEngine(case.part, KNOWN_SHAPES["smollm2-135m"], None, "weights", logs)
    try:
        return served.decode(case, [PROMPT], seed=3).generation.output_ids[0]
    finally:
        served.close()


@pytest.fixture(autouse=True)
def ends() -> Iterator[None]:
    """A client that would wait forever fails in a minute."""

    def end(*_: object) -> None:
        raise TimeoutError("the answer was read for a minute")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(GUARD_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", SAMPLED)
def test_a_hostile_answer_is_refused_or_right(name: str, tmp_path: Path) -> None:
    """A refusal is one of the program's own errors; nothing is read without a bound."""
    one = sampled(name)
    server = HostileServer(one.engine, one.door, one.play, one.per_pass, most_bytes=MOST_BYTES).start()
    try:
        ids = answered(server, one.engine, tmp_path)
    except (RequestError, NotPossibleError) as error:
        assert one.fits != "sound" and "one" in str(error)
    else:
        assert one.fits != "refused", f"taken as an answer: {ids}"
        assert len(ids) <= TOKENS and set(map(type, ids)) <= {int}
        assert one.fits != "sound" or list(ids) == ids_of(TOKENS)
    finally:
        server.close()
    assert server.sent_bytes < MOST_BYTES, "all was read that the server had to send"


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(engine=st.sampled_from(ENGINES), chosen=st.data())
def test_an_answer_changed_at_random_is_refused_or_taken(engine: str, chosen: st.DataObject, tmp_path: Path) -> None:
    """No other exception, whatever stands in an event."""
    events = chosen.draw(mutated_answers(engine))
    server = HostileServer(engine, "stream", lambda asked: stream(events), per_pass=2).start()
    try:
        ids = answered(server, engine, tmp_path)
    except (RequestError, NotPossibleError):
        return
    finally:
        server.close()
    assert len(ids) <= TOKENS and set(map(type, ids)) <= {int}
