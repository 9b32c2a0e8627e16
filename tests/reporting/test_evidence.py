"""The states of a run's processes on its page: what differs is shown, what is equal is counted."""

from typing import Any

from harness.analysis.answer import compare
from harness.reporting.evidence import states
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
