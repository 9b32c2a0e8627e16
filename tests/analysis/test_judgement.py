"""What claims and gates share: the gravest answer speaks for all, and every state has its own exit code."""

from __future__ import annotations

import json
from itertools import permutations

import pytest

from harness.analysis.judge.judgement import EXIT_CODES, GRAVEST_FIRST, JUDGEMENT_VERSION, Judgement, Judgements, State, to_json
from harness.errors import EXIT_INTERRUPTED, EXIT_TOOL_ERROR, EXIT_USER_ERROR
from harness.stats.quantity import Quantity


def answer(state: State) -> Judgement:
    """A claim in this state."""
    return Judgement(
        subject="SBD k=16, part bandwidth, batch 1",
        metric="wall_speedup",
        kind="claim",
        state=state,
        cell={"part": "bandwidth"},
        value=Quantity(value=2.4, low=2.1, high=2.7, n=8),
        unit="x",
        better="higher",
        bound="at least 3",
        basis="measured",
        sizes={"prompts": 8},
        reason="the whole interval is below 3",
    )


@pytest.mark.parametrize(
    "states, gravest, code",
    [
        (("met", "met"), "met", 0),
        (("met", "inconclusive"), "inconclusive", 3),
        (("met", "inconclusive", "void"), "void", 4),
        (("met", "inconclusive", "void", "missed"), "missed", 1),
        ((), "void", 4),
    ],
)
def test_the_gravest_answer_speaks(states: tuple[State, ...], gravest: State, code: int) -> None:
    """In any order; and nothing judged is not a pass."""
    for order in permutations(states):
        found = Judgements(title="t", runs=("a",), judgements=tuple(answer(state) for state in order))
        assert (found.state, found.exit_code()) == (gravest, code)


def test_exit_codes_differ() -> None:
    """A regression, a user's mistake, a fault of ours, an open question and a void one can be told apart by a script."""
    codes = [*EXIT_CODES.values(), EXIT_USER_ERROR, EXIT_TOOL_ERROR, EXIT_INTERRUPTED]
    assert len(set(codes)) == len(codes) and set(EXIT_CODES) == set(GRAVEST_FIRST)


def test_json_keeps_state_and_word() -> None:
    """A program reads the version, the word of the kind and the interval."""
    data = json.loads(json.dumps(to_json(Judgements(title="t", runs=("a",), judgements=(answer("missed"),)))))
    assert data["version"] == JUDGEMENT_VERSION and data["exit_code"] == 1 and data["judgements"][0]["word"] == "refuted"
    assert data["judgements"][0]["value"]["high"] == 2.7
