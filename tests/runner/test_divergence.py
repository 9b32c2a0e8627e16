"""Where answers part from NTP's: gaps by hand, rounding that is measured, and a wrong acceptance among near-ties."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from harness.decoding.next_token import AnswerLogprob
from harness.record.schema import RowResult, Sample
from harness.runner.divergence import DEVIATIONS, FEWEST_CONTROLS, Parting, classified, gaps_of, partings
from harness.scenario.plan import Case
from tests.helpers import block_run
from tests.helpers.plans import case_of

Asked = Sequence[tuple[tuple[int, ...], int, int]]
SIGMA = 0.02


def gap(context: tuple[int, ...], one: int, other: int) -> float:
    """A fixed gap of two tokens: a tie for neighbours, a nat for each step between others."""
    return float(other - one) if abs(other - one) > 1 else 0.01 * (other - one)


def exact(asked: Asked) -> list[tuple[float, float]]:
    """Of a pair that has a token below 4 the other is as far behind as the gap. Tokens from 20 on are 0.03 nats behind a third
    one; other pairs 4 nats.
    """
    return [(gap(*each), abs(gap(*each)) if min(each[1:]) < 4 else 0.03 if min(each[1:]) >= 20 else 4.0) for each in asked]


def rounded(asked: Asked) -> list[tuple[float, float]]:
    """The same with normal rounding of SIGMA."""
    drawn = random.Random(1)
    return [(one + drawn.gauss(0, SIGMA), behind) for one, behind in exact(asked)]


CONTROLS = [((number,), 1, 3) for number in range(60)]


def parting(ntp: int | None, other: int | None) -> Parting:
    """One after two tokens."""
    return Parting(case_id="c", prompt_id="p", at=0, context=(8, 9), ntp=ntp, other=other)


def test_ties_errors_and_what_cannot_be_told() -> None:
    """0.01 nats is rounding, with a third token in front, too; 5 nats, or a tie of two unlikely tokens, is an error; an ended
    answer names no token.
    """
    found = [parting(1, 2), parting(1, 6), parting(7, 8), parting(None, 2), parting(20, 21)]
    told = classified(found, CONTROLS, exact, rounded)
    assert told["rounding"] == pytest.approx(SIGMA, rel=0.3) and told["controls"] == 60
    assert [one["class"] for one in told["found"]] == ["near_tie", "error", "error", "unclassified", "near_tie"]
    assert [one["gap"] for one in told["found"]] == [0.01, 5.0, 0.01, None, 0.01]
    assert [one["behind"] for one in told["found"]] == [0.01, 5.0, 4.0, None, 0.03]
    assert 0.01 < DEVIATIONS * SIGMA < 1


def test_without_a_measured_rounding_nothing_is_classed() -> None:
    """Too few controls; and no model is asked where nothing parted."""
    told = classified([parting(1, 2)], CONTROLS[: FEWEST_CONTROLS - 1], exact, rounded)
    assert told["rounding"] is None and told["found"][0]["class"] == "unclassified"

    def never(asked: Asked) -> list[tuple[float, float]]:
        raise AssertionError("asked")

    assert classified([], CONTROLS, never, never)["found"] == []


def sample_of(case: Case, group: int, ids: list[int]) -> Sample:
    """A decode of one row that wrote these."""
    row = RowResult(
        prompt_id="p",
        prompt_tokens=2,
        output_tokens=len(ids),
        output_ids=ids,
        stop_reason="length",
        correct=None,
        ungraded_reason="none",
    )
    return block_run.sample().model_copy(update={"case_id": case.case_id, "group": group, "rows": [row]})


def test_the_first_difference_of_every_greedy_answer() -> None:
    """Against NTP's of the same group and repeat; a shorter answer parts where it ends; another group is another prompt."""
    base = case_of("ntp")
    other = case_of("sbd")
    cases = {base.case_id: base, other.case_id: other}
    samples = [
        sample_of(base, 0, [4, 5, 6]),
        sample_of(other, 0, [4, 9, 6]),
        sample_of(base, 1, [4, 5]),
        sample_of(other, 1, [4, 5]),
        sample_of(base, 2, [4, 5, 6]),
        sample_of(other, 2, [4, 5]),
    ]
    prompts = {(base.task, "p"): (1, 2)}
    found, compared = partings(samples, cases, prompts)
    assert compared == 3
    assert [(one.at, one.context, one.ntp, one.other) for one in found] == [(1, (1, 2, 4), 5, 9), (2, (1, 2, 4, 5), 6, None)]


def test_gaps_are_differences_of_log_probabilities() -> None:
    """Of an engine whose every token id has minus itself as log probability, and is behind token 2; 9 contexts take two
    forwards.
    """
    calls = []

    class Engine:
        def answer_logprobs(self, pairs: Sequence[tuple[tuple[int, ...], tuple[int]]]) -> list[AnswerLogprob]:
            calls.append(len(pairs))
            return [AnswerLogprob(-float(answer[0]), answer[0] == 2, answer[0] - 2.0) for _, answer in pairs]

    found = gaps_of(Engine())([((1,), 2, 5)] * 8 + [((1,), 7, 3)])
    assert found == [(3.0, 3.0)] * 8 + [(-4.0, 5.0)] and calls == [16, 2]
