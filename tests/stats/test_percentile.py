"""Percentiles against scipy's own interval, and by counting."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from harness.stats.sample_size import percentile, percentile_over_processes, values_for_percentile


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=200), st.sampled_from([50, 90, 95]))
def test_the_interval_is_that_of_the_quantile_test(values: list[float], percent: int) -> None:
    """scipy inverts the same test; where it has no end (NaN), there is no interval, with the reason."""
    found = percentile(values, percent)
    theirs = scipy_stats.quantile_test(values, p=percent / 100).confidence_interval(confidence_level=0.95)
    if math.isnan(theirs.low) or math.isnan(theirs.high):
        assert found.low is None and found.high is None and "too few" in found.reason
    else:
        assert (found.low, found.high) == (theirs.low, theirs.high)
    assert found.n == len(values) and found.value == np.quantile(values, percent / 100, method="inverted_cdf")


@pytest.mark.parametrize(("percent", "fewest"), [(50, 6), (90, 36), (99, 368)])
def test_the_fewest_values_with_an_interval(percent: int, fewest: int) -> None:
    """0.5^6 and 0.9^36 are the first powers below 2.5 %; one value less has no interval."""
    assert values_for_percentile(percent) == fewest
    assert percentile(range(fewest), percent).high is not None
    assert percentile(range(fewest - 1), percent).high is None


def test_no_values() -> None:
    """An answer with its reason, never NaN."""
    assert percentile([], 50).reason


def table(prompts: list[float], processes: list[float]) -> tuple[list[float], list[int], list[int]]:
    """Every prompt in every process: values, prompts and processes in a row each."""
    cells = [(a * b, i, j) for i, a in enumerate(prompts) for j, b in enumerate(processes)]
    return tuple(map(list, zip(*cells, strict=True)))  # type: ignore[return-value]


def test_processes_widen_the_interval_by_hand() -> None:
    """Three processes at 1, e^0.1, e^-0.1: s = 0.1, t(2) = 4.303, so 0.2484 is added as a square to each end's log distance."""
    prompts = [math.exp(i / 20) for i in range(41)]
    alike = percentile_over_processes(*table(prompts, [1.0] * 3), 50)
    found = percentile_over_processes(*table(prompts, [1.0, math.exp(0.1), math.exp(-0.1)]), 50)
    assert (alike.low, alike.high) == pytest.approx((percentile(prompts, 50).low, percentile(prompts, 50).high))
    assert alike.processes == found.processes == 3 and found.n == 41
    for end, other in ((found.low, alike.low), (found.high, alike.high)):
        distance = math.log(end / (found.value or 1)), math.log(other / (alike.value or 1))
        assert abs(distance[0]) == pytest.approx(math.hypot(distance[1], 4.302653 * 0.1 / math.sqrt(3)), rel=1e-6)


def test_with_two_processes_the_interval_is_about_these_alone() -> None:
    """Nothing is added, and the quantity says so."""
    prompts = [math.exp(i / 20) for i in range(41)]
    found = percentile_over_processes(*table(prompts, [1.0, 1.5]), 50)
    assert found.these_processes_only == "these 2 processes only"
    assert (found.low, found.high) == pytest.approx((1.25 * percentile(prompts, 50).low, 1.25 * percentile(prompts, 50).high))


def test_a_lost_decode_is_filled_from_its_prompt_and_process() -> None:
    """One of 120 cells missing moves the percentile by nothing where prompts and processes multiply."""
    values, prompts, processes = table([1.0 + 0.1 * i for i in range(40)], [1.0, 1.1, 1.2])
    whole = percentile_over_processes(values, prompts, processes, 50)
    rest = percentile_over_processes(values[1:], prompts[1:], processes[1:], 50)
    assert rest.value == pytest.approx(whole.value, rel=1e-9) and rest.n == 40


def test_processes_with_prompts_of_their_own_widen_by_their_percentiles() -> None:
    """Of 20 prompts each in three: the percentile of all 60, and t(2) over the processes' medians added as a square."""
    values = [[math.exp(i / 20 + shift) for i in range(20)] for shift in (0.0, 0.1, -0.1)]
    every = [value for column in values for value in column]
    found = percentile_over_processes(every, list(range(60)), [i // 20 for i in range(60)], 50)
    alone, medians = percentile(every, 50), [math.log(sorted(column)[9]) for column in values]
    between = 4.302653 * statistics.stdev(medians) / math.sqrt(3)
    assert found.value == alone.value and found.low is not None and alone.low is not None and found.value is not None
    away = math.hypot(math.log(alone.low / found.value), between)
    assert math.log(found.value / found.low) == pytest.approx(away, rel=1e-6) and found.n == 60
