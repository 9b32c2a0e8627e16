"""How much an answer repeats itself: distinct 4-grams ÷ all 4-grams, by answer and by arm."""

from __future__ import annotations

from itertools import cycle, islice

import pytest

from harness.analysis.answer import compare
from harness.analysis.tally.tally import distinct_share
from tests.helpers import synthetic_run as synthetic


@pytest.mark.parametrize(
    ("ids", "share"),
    [
        ([], 1.0),
        ([7, 7, 7], 1.0),
        ([7, 7, 7, 7], 1.0),
        ([7, 7, 7, 7, 7], 1 / 2),
        (list(range(40)), 1.0),
        (list(islice(cycle([1, 2, 3]), 33)), 3 / 30),
        ([1, 2, 3, 4, 1, 2, 3, 4], 4 / 5),
    ],
)
def test_the_share_of_an_answer(ids: list[int], share: float) -> None:
    assert distinct_share(ids) == pytest.approx(share)


@pytest.mark.parametrize(("repetitive", "median"), [(3, 1.0), (5, 1 / 18)])
def test_the_share_of_an_arm(repetitive: int, median: float) -> None:
    """Of eight prompts, by hand: the median over prompts and the share of repetitive answers."""
    run = synthetic.build(jitter=0.1, calibration=synthetic.calibration())
    for one in run.samples:
        for row in one.rows:
            row.output_ids[:] = [5] * 21 if one.group < repetitive else list(range(21))
    for arm in compare(run).cells[0].arms:
        assert arm.figures["distinct4_median"].value == pytest.approx(median)
        assert arm.figures["repetitive_answers"].value == repetitive / 8
