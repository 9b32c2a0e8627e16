"""Planned looks: all together are wrong as rarely as they say, whatever the number of looks, with t and few processes."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError
from scipy import stats

from harness.record.schema import MOST_LOOKS, Looks
from harness.stats.looks import OF_T, nominal_levels, processes_needed
from harness.stats.quantity import Quantity

RUNS = 60_000


def crossed(first: int, last: int, error: float, known: bool) -> float:
    """Share of simulated runs of processes without an effect in which some look is beyond its level, on one side."""
    means = np.random.default_rng(7).normal(size=(RUNS, last))
    sums, squares, hit = means.cumsum(axis=1), (means**2).cumsum(axis=1), np.zeros(RUNS, dtype=bool)
    for count, level in nominal_levels(first, last, error).items():
        mean = sums[:, count - 1] / count
        error_of_mean = np.sqrt((squares[:, count - 1] - count * mean**2) / (count - 1) / count)
        bound = stats.norm.isf(level) / np.sqrt(count) if known else stats.t.isf(level, count - 1) * error_of_mean
        hit |= mean > bound
    return float(hit.mean())


@pytest.mark.parametrize(("first", "last"), [(4, 6), (4, 12), (4, 20)])
def test_all_looks_together_err_as_often_as_one_may(first: int, last: int) -> None:
    """2.5 % with t within the noise of 60,000 runs; with a known spread the bounds are exact, at the share that is for t."""
    assert crossed(first, last, 0.025, known=False) == pytest.approx(0.025, abs=0.002)
    assert crossed(first, last, 0.025, known=True) == pytest.approx(0.025 * OF_T, abs=0.002)


def test_a_single_look_is_a_single_test_and_later_looks_have_more_to_spend() -> None:
    """By hand: the first of nine looks, after 4 of 12 processes, spends a third."""
    assert nominal_levels(5, 5, 0.025) == {5: pytest.approx(0.025 * OF_T, rel=1e-3)}
    levels = nominal_levels(4, 12, 0.025)
    assert levels[4] == pytest.approx(0.025 * OF_T / 3, rel=1e-3) and [*levels] == [*range(4, 13)]
    later = [levels[count] for count in range(5, 13)]
    assert later == sorted(later) and max(later) < 0.025


def test_every_rule_that_a_record_may_hold_has_levels() -> None:
    """The least error in the most processes: soon there, and none is 0, which nothing can be divided by."""
    levels = nominal_levels(2, MOST_LOOKS, 1e-4)
    assert len(levels) == MOST_LOOKS - 1 and 0 < min(levels.values()) < max(levels.values()) < 1e-4
    for wrong in ({"last": MOST_LOOKS + 1}, {"error": 1e-9}):
        with pytest.raises(ValidationError):
            Looks.model_validate({"first": 4, "last": 12, "error": 0.025} | wrong)


def test_processes_that_a_claim_would_take_are_those_of_its_interval() -> None:
    """1.2x with a standard deviation of 0.1 of the log: the first number whose t interval leaves 1.1 out; none at the bound."""
    half = stats.t.ppf(0.975, 3) * 0.1 / 2
    found = Quantity(value=1.2, low=1.2 * np.exp(-half), high=1.2 * np.exp(half), n=9, processes=4)
    away = np.log(1.2 / 1.1)
    expected = next(n for n in range(2, 99) if stats.t.ppf(0.99, n - 1) * 0.1 / np.sqrt(n) < away)
    assert processes_needed(found, 1.1, 0.01) == expected and expected > 6
    assert processes_needed(found, 1.2, 0.01) is None
    assert processes_needed(found, 1.1999, 0.01) is None, "more than a thousand"
