"""Answers of one token, in loops or cut: said with what to write; they are no evidence that an arm writes what NTP writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from harness.analysis.answer import compare
from harness.record.schema import Run, Sample
from harness.reporting.answers import answer_lines
from harness.reporting.page import render
from harness.reporting.sentences import lossless
from tests.helpers import synthetic_run as synthetic
from tests.helpers.environments import with_cases, with_header

GREEDY = "greedy NTP, same weights"
TOKENS = 65


def one_token(sample: Sample) -> Sample:
    """The decode ended by the token that the prompt's pass gave."""
    rows = [row.model_copy(update={"output_tokens": 1, "output_ids": [7], "stop_reason": "stop"}) for row in sample.rows]
    passes = synthetic.columns(synthetic.NTP, 0, len(rows), 1.0, timed=True)
    return sample.model_copy(update={"rows": rows, "passes": passes, "decode_s": 1e-6})


def written(sample: Sample, ids: Sequence[int]) -> Sample:
    """Other tokens, as many."""
    return sample.model_copy(update={"rows": [row.model_copy(update={"output_ids": list(ids)}) for row in sample.rows]})


def build(change: Callable[[Sample], Sample], most: int = 200, chat: bool = False) -> Run:
    """Eight prompts by NTP and a lossless arm, whose answers are all different tokens unless ``change`` makes others."""
    run = synthetic.build(arms=synthetic.ARMS[:2], graded=False)
    work = {"tasks": ["word_problems"], "chat_template": chat, "max_new_tokens": most}
    run = with_cases(run, lambda case: {} if case.label == "NTP" else {"arm": case.arm | {"lossless": GREEDY}})
    [part] = run.header.scenario["parts"]
    run = with_header(run, scenario=run.header.scenario | {"parts": [part | {"workload": work}]})
    return synthetic.with_samples(run, (change(written(one, range(TOKENS))) for one in run.samples))


def second_line(run: Run) -> str:
    """What the terminal says of the answers."""
    return answer_lines(Path("r"), compare(run), run.header).splitlines()[1]


@pytest.mark.parametrize(
    ("change", "most", "chat", "said"),
    [
        (lambda one: one, 200, False, "; prompts are in no chat template"),
        (lambda one: one, 200, True, "; prompts are in the chat template"),
        (
            lambda one: one_token(one) if one.group < 3 else one,
            200,
            False,
            "; 3 of 8 answers are one token long or empty: write chat_template: auto, or other prompts",
        ),
        (
            lambda one: one_token(one) if one.group < 3 else one,
            200,
            True,
            "3 of 8 answers are one token long or empty: write other",
        ),
        (
            lambda one: written(one, [5] * TOKENS) if one.group < 2 else one,
            200,
            True,
            "; 2 of 8 answers are repetitive: write other",
        ),
        (
            lambda one: written(one, [5, 6, 7, 8, 9] * 13) if one.group < 2 else one,
            200,
            True,
            "; 2 of 8 answers are repetitive",
        ),
        (lambda one: one, TOKENS, True, "; every answer is cut at the limit: raise max_new_tokens"),
    ],
)
def test_the_second_line_says_it(change: Callable[[Sample], Sample], most: int, chat: bool, said: str) -> None:
    """And the page; nothing else is said."""
    run = build(change, most, chat)
    line = second_line(run)
    assert said in line and line.count("; ") == 2 + ("8 answers" in said.partition(": ")[0] or "cut" in said)
    assert line.rpartition("token for token; ")[2][1:] in render(run, compare(run))


def test_one_token_is_no_choice() -> None:
    """Of 8 answers 3 are the prompts' own tokens and 2 differ: 3 of 5 are NTP's. A single token that differs counts."""

    def changed(sample: Sample) -> Sample:
        sample = one_token(sample) if sample.group < 3 else sample
        is_arm = "sbd" in sample.case_id
        return written(sample, [9] * sample.rows[0].output_tokens) if is_arm and sample.group in (6, 7) else sample

    arm = compare(build(changed)).cells[0].arms[1]
    assert (arm.identical_to_ntp.value, arm.identical_to_ntp.n) == (0.6, 5)
    assert lossless(arm) == "lossless in exact arithmetic, 3 of 5 answers are NTP's token for token"

    def first_differs(sample: Sample) -> Sample:
        sample = one_token(sample)
        return written(sample, [9]) if "sbd" in sample.case_id and sample.group == 0 else sample

    arm = compare(build(first_differs)).cells[0].arms[1]
    assert (arm.identical_to_ntp.value, arm.identical_to_ntp.n) == (0.0, 1)


def test_where_ntp_made_no_pass_that_is_the_reason() -> None:
    """Not that NTP is missing; and an arm is not called lossless where nothing was seen."""
    run = build(one_token)
    arm = compare(run).cells[0].arms[1]
    for found in (arm.wall_speedup, arm.identical_to_ntp, arm.figures["wall_over_nfe"]):
        assert found.value is None and "every answer of NTP is one token long" in str(found.reason)
    assert lossless(arm) == ""
    first = answer_lines(Path("r"), compare(run), run.header).splitlines()[0]
    assert "every answer of NTP is one token long" in first and "lossless" not in first
