"""The states of a run's processes on its page: what differs is shown, what is equal is counted."""

import base64
import gzip
import random
from typing import Any

import pytest

from harness.analysis.answer import compare
from harness.reporting.evidence import LONGEST_LINK, LONGEST_PLAIN, download, states
from harness.reporting.page import render
from tests.helpers import synthetic_run as synthetic
from tests.helpers.pages import words


def state(process: int, load: float = 1.0, **more: Any) -> dict[str, Any]:
    """The state of one process before its samples."""
    return {"event": "start", "part": "a", "process": process, "pid": 100 + process, "cpu": "X", "load": load} | more


def test_the_first_state_is_whole_and_later_ones_are_what_differs_from_it() -> None:
    """Two of five equal the first, the last among them; a key that one lacks and one that is new are both told."""
    lacking = {key: value for key, value in state(3).items() if key != "cpu"} | {"swap": None}
    entries = [state(0), state(1), state(2, load=9.0), lacking, state(4)]
    [found] = states(entries)
    assert (found["states"], found["equal to the first"], found["first"]) == (5, 2, entries[0])
    loaded, other, last = found["later"]
    assert loaded == {"part": "a", "process": 2, "pid": 102, "load": 9.0}
    assert other == {"part": "a", "process": 3, "pid": 103, "cpu": "not recorded", "swap": None}
    assert last == {"part": "a", "process": 4, "pid": 104}


def test_events_and_nodes_are_apart_and_a_single_entry_is_itself() -> None:
    """States of two machines are not held against each other."""
    entries = [state(0), state(0) | {"event": "end"}, state(0, node="node1")]
    assert states(entries) == entries


def test_data_of_other_figures_is_counted_and_named() -> None:
    """Measured passes and token texts fill most of a record's events, and the page only says where they are."""
    passes = [{"event": "measured_passes", "part": "a", "process": n, "decodes": [{"wall_s": [n] * 500}]} for n in range(4)]
    texts = {"event": "token_texts", "part": "a", "process": 0, "texts": {"5": "SECRET_TOKEN"}}
    where = "events.jsonl of the run's directory"
    assert states([*passes, texts]) == [
        {"event": "measured_passes", "recorded": 4, "where": where},
        {"event": "token_texts", "recorded": 1, "where": where},
    ]


def test_the_page_shows_the_states_and_stays_small() -> None:
    """A hundred processes in one state take no more room than three, and the one under load is shown."""
    run, sizes = synthetic.build(), []
    for processes in (3, 100):
        alike = [state(number) for number in range(processes - 1)]
        more = run.model_copy(update={"sessions": [*alike, state(processes - 1, load=7.25)]})
        text = render(more, compare(more))
        sizes.append(len(text))
        assert f'"states": {processes}, "equal to the first": {processes - 2}' in words(text) and '"load": 7.25' in words(text)
    assert abs(sizes[1] - sizes[0]) < 20


@pytest.mark.parametrize(("length", "packed"), [(LONGEST_PLAIN, False), (LONGEST_PLAIN + 1, True), (3 * LONGEST_LINK, True)])
def test_a_file_of_the_page_is_whole_and_a_long_one_is_packed(length: int, packed: bool) -> None:
    """The link holds the text, byte for byte; name and kind say whether it is packed; the same text gives the same link."""
    text = ("ä,1\n" * length).encode()[:length].decode(errors="replace")
    found = download("run.samples.csv", "numbers", "text/csv", text)
    assert found == download("run.samples.csv", "numbers", "text/csv", text) and found.href is not None
    kind, _, coded = found.href.removeprefix("data:").partition(";base64,")
    body = base64.b64decode(coded)
    assert (found.name, kind) == (("run.samples.csv.gz", "application/gzip") if packed else ("run.samples.csv", "text/csv"))
    assert len(body) == found.bytes and (gzip.decompress(body) if packed else body) == text.encode()
    assert packed == (len(coded) < length)


def test_a_file_that_no_link_can_hold_is_only_named() -> None:
    """Random bytes hardly shrink: what a browser would cut is in the run's directory."""
    noise = base64.b85encode(random.Random(1).randbytes(LONGEST_LINK)).decode()
    found = download("run.samples.csv", "numbers", "text/csv", noise)
    assert found.href is None and found.name == "run.samples.csv.gz" and found.bytes > LONGEST_LINK / 2
