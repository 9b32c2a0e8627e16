"""Percentiles against scipy's own interval, and by counting."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from harness.stats_percentile import percentile, values_for_percentile


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=200), st.sampled_from([50, 90, 95]))
def test_the_interval_is_that_of_the_quantile_test(values: list[float], percent: int) -> None:
    """scipy inverts the same test; where it has no end (NaN), there is no interval, with the reason."""
    found = percentile(values, percent)
    theirs = scipy_stats.quantile_test(values, p=percent / 100).confidence_interval(confidence_level=0.95)
    if math.isnan(theirs.low) or math.isnan(theirs.high):
        assert found.low is None and found.high is None and "too few" in (found.reason or "")
    else:
        assert (found.low, found.high) == (theirs.low, theirs.high)
    assert found.n == len(values) and found.value == np.quantile(values, percent / 100, method="inverted_cdf")


@pytest.mark.parametrize(("percent", "fewest"), [(50, 6), (90, 36), (99, 368)])
def test_the_fewest_values_with_an_interval(percent: int, fewest: int) -> None:
    """0.5^6 and 0.9^36 are the first powers below 2.5 %; one value less has no interval."""
    assert values_for_percentile(percent) == fewest
    assert percentile(range(fewest), percent).high is not None
    assert percentile(range(fewest - 1), percent).high is None


def test_it_covers() -> None:
    """The true 90th percentile of an exponential lies in at least 95 % of 1,000 intervals (the method is conservative)."""
    draws = np.random.default_rng(7).exponential(size=(1000, 60))
    truth = math.log(10)
    held = [(found := percentile(list(row), 90)).low <= truth <= found.high for row in draws]  # type: ignore[operator]
    assert 0.94 <= np.mean(held) <= 0.99


def test_no_values() -> None:
    """An answer with its reason, never NaN."""
    assert percentile([], 50).reason
