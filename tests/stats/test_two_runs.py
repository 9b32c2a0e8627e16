"""The ratio of two runs: against scipy's two-sample tests, by hand with prompts that differ, and on degenerate input."""

import math
import random
from itertools import product

import numpy as np
import pytest
from scipy import stats as scipy_stats

from harness.stats.quantity import Quantity
from harness.stats.two_runs import Observations, RatioOfRuns, percentile_ratio, ratio_of_runs, sign_test_p, within_pooled

BASE = np.array([0.00, 0.03, 0.01])
NEW = np.array([0.11, 0.08, 0.12, 0.10, 0.09])
"""Log figures of whole processes."""


def observed(table: np.ndarray, repeats: int = 1) -> Observations:
    """A table (prompts, processes) of log figures."""
    cells = list(product(range(len(table)), range(table.shape[1]))) * repeats
    return Observations(
        values=[math.exp(table[i, j]) for i, j in cells], prompts=[f"p{i}" for i, _ in cells], processes=[j for _, j in cells]
    )


def compared(base: np.ndarray, new: np.ndarray) -> RatioOfRuns:
    """Both tables in."""
    return ratio_of_runs(observed(base), observed(new))


def whole(processes: np.ndarray, prompts: int = 4) -> np.ndarray:
    """Prompts that take very different times, in processes that are slower or faster as a whole."""
    table: np.ndarray = np.linspace(-3, 3, prompts)[:, None] + processes
    return table


@pytest.mark.parametrize(("base", "new"), [(BASE, NEW), (NEW, BASE), (BASE * 10, NEW), (NEW[:3], NEW)])
def test_processes_are_the_sample(base: np.ndarray, new: np.ndarray) -> None:
    """Prompts that all change alike add nothing: the wider of scipy's Welch and equal-variance intervals, the greater p."""
    found = compared(whole(base), whole(new))
    tests = [scipy_stats.ttest_ind(new, base, equal_var=equal) for equal in (True, False)]
    ends = [test.confidence_interval(0.95) for test in tests]
    wider = max(ends, key=lambda end: end.high - end.low)
    assert found.p == pytest.approx(max(test.pvalue for test in tests))
    assert found.ratio.value == pytest.approx(math.exp(new.mean() - base.mean()))
    assert (found.ratio.low, found.ratio.high) == pytest.approx((math.exp(wider.low), math.exp(wider.high)))
    assert found.ratio.n == 4 and found.ratio.processes == min(len(base), len(new))
    assert (found.p <= 0.05) == (found.ratio.low > 1 or found.ratio.high < 1)


def test_prompts_that_change_unlike_are_a_sample_too() -> None:
    """By hand: two prompts, of which one alone is 20 % slower, no noise but whole processes: variances add, as do degrees."""
    change = np.array([[0.0], [0.2]])
    found = compared(whole(BASE, 2), whole(BASE, 2) + change)
    process, prompt = 2 * BASE.var(ddof=1) / 3, 0.2**2 / 2 / 2
    degrees = (process + prompt) ** 2 / (process**2 / 4 + prompt**2 / 1)
    half = scipy_stats.t.ppf(0.975, degrees) * math.sqrt(process + prompt)
    assert found.ratio.high == pytest.approx(math.exp(0.1 + half)) and found.ratio.value == pytest.approx(math.exp(0.1))


@pytest.mark.parametrize("processes", [1, 2])
def test_fewer_than_three_processes_have_no_p(processes: int) -> None:
    """The interval is scipy's t over the prompts' ratios, called about these processes only."""
    base, new = whole(BASE)[:, :processes], whole(NEW) + np.array([[0.0], [0.1], [0.2], [0.05]])
    found = compared(base, new)
    ratios = new.mean(axis=1) - base.mean(axis=1)
    low, high = scipy_stats.t.interval(0.95, 3, loc=ratios.mean(), scale=scipy_stats.sem(ratios))
    assert found.p is None and str(found.ratio.these_processes_only) in str(found.ratio.method)
    assert (found.ratio.low, found.ratio.high) == pytest.approx((math.exp(low), math.exp(high)))


def test_swapping_the_runs_inverts_the_ratio_and_repeats_count_once() -> None:
    """Neither changes p; a repeat of every decode is no new sample."""
    drawn = np.random.default_rng(1)
    base, new = drawn.normal(0, 1, (5, 3)), drawn.normal(0, 1, (5, 4))
    one, swapped, often = compared(base, new), compared(new, base), ratio_of_runs(observed(base, 3), observed(new, 3))
    assert (1 / swapped.ratio.high, 1 / swapped.ratio.value) == pytest.approx((one.ratio.low, one.ratio.value))
    assert one.p == pytest.approx(swapped.p) and (often.p, often.ratio.low) == pytest.approx((one.p, one.ratio.low))


def test_what_has_no_interval_says_why() -> None:
    """One prompt, no spread, no pair, a time that is no number: never NaN."""
    flat = np.zeros((3, 3))
    assert compared(whole(BASE, 4)[:1], whole(NEW, 4)[:1]).ratio.reason == "one prompt only: no interval"
    same = compared(flat, flat + 0.1)
    assert same.ratio.value == pytest.approx(math.exp(0.1)) and same.p is None and "no spread" in str(same.ratio.reason)
    empty = Observations(values=(), prompts=(), processes=())
    assert ratio_of_runs(empty, empty).ratio.reason == "no pairs to compare"
    broken = compared(flat, np.array([[np.nan, 0, 0]] * 3)).ratio
    assert broken.value is None and "not positive finite" in str(broken.reason)
    with pytest.raises(ValueError, match="same prompts"):
        compared(flat, flat[:2])


@pytest.mark.parametrize("seed", range(20))
def test_the_sign_test_is_scipy_s(seed: int) -> None:
    """Exact binomial over the pairs that differ; none where no pair does."""
    drawn = random.Random(seed)
    differences = [drawn.choice([-1.0, -0.5, 0.0, 0.5, 1.0]) for _ in range(drawn.randrange(1, 30))]
    lost, won = sum(one < 0 for one in differences), sum(one > 0 for one in differences)
    expected = scipy_stats.binomtest(lost, lost + won).pvalue if lost + won else None
    found = sign_test_p(differences)
    assert found is None if expected is None else found == pytest.approx(expected)


def test_a_percentile_is_bounded_where_the_shares_below_differ_from_it_by_a_t_test() -> None:
    """Scipy's t interval of the processes' shares at or below every value; the binomial error where they hardly differ."""
    values = np.random.default_rng(4).exponential(size=(4, 50)).round(3)
    found = within_pooled(Quantity(value=0.7, low=0.69, high=0.71, n=200, processes=4), values.tolist(), 50)
    least, kept = math.sqrt(0.25 / 200), []
    for x in sorted(values.flatten()):
        shares = (values <= x).mean(axis=1)
        half = scipy_stats.t.ppf(0.975, 3) * max(float(scipy_stats.sem(shares)), least)
        kept += [x] if abs(shares.mean() - 0.5) <= half else []
    below, above = (x for x in (values[values < kept[0]].max(), values[values > kept[-1]].min()))
    assert (found.low, found.high) == pytest.approx((below, above)) and found.value == 0.7


def test_a_percentile_keeps_the_wider_interval_and_one_that_few_values_cannot_bound_has_none() -> None:
    """The interval over processes reaches further here; 40 values in 4 do not bound the 95th percentile."""
    values = np.random.default_rng(4).exponential(size=(4, 50)).tolist()
    wide = Quantity(value=0.7, low=0.01, high=9.0, n=200, processes=4)
    assert within_pooled(wide, values, 50) == wide
    assert "40 values in 4 processes are too few to bound percentile 95" in (
        within_pooled(wide, [one[:10] for one in values], 95).reason or ""
    )


def test_a_ratio_of_percentiles_is_that_of_all_values_with_the_interval_of_pseudo_values() -> None:
    """Scipy's t interval of four pseudo-values, 4 times the log ratio of all less 3 times that of the others."""
    over, under = np.random.default_rng(6).exponential(size=(2, 4, 60)) + 1

    def log_ratio(kept: list[int]) -> float:
        a, b = (np.percentile(side[kept].flatten(), 50, method="median_unbiased") for side in (over, under))
        return math.log(a / b)

    whole = log_ratio([0, 1, 2, 3])
    pseudo = [4 * whole - 3 * log_ratio([i for i in range(4) if i != left]) for left in range(4)]
    half = scipy_stats.t.ppf(0.975, 3) * scipy_stats.sem(pseudo)
    found = percentile_ratio(over.tolist(), under.tolist(), 50, 240)
    assert (found.value, found.low, found.high) == pytest.approx(
        (math.exp(whole), math.exp(whole - half), math.exp(whole + half))
    )
    assert percentile_ratio(over[:2].tolist(), under[:2].tolist(), 50, 120).low is None
