"""Intervals of speedups: worked by hand, against least squares and a plain bootstrap, and on degenerate input."""

import math
import random
import statistics
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from harness.stats.bootstrap import influences, log_ratio, quantiles, smoothed
from harness.stats.crossed import Grouped, filled, variance_of_mean
from harness.stats.quantity import Quantity
from harness.stats.ratios import geometric_mean_ratio, ratio_of_totals, ratio_percentiles

PAIRS = [(3.0, 1.0), (2.5, 1.0), (8.0, 2.0), (2.7, 0.9), (4.1, 1.7)]
HAND = np.array([[1.0, 2.0, 3.0], [2.0, 3.0, 7.0], [3.0, 4.0, 5.0]])
"""Log ratios of 3 prompts in 3 processes. By hand: sums of squares 8 (prompts), 14 (processes), 26 in all, so 4 left."""


def from_table(logs: Any, method: Any = geometric_mean_ratio, repeats: int = 1, **arguments: Any) -> Quantity:
    """``method`` on a table (prompts, processes) of log ratios; an empty cell is NaN."""
    found = [(i, j, math.exp(x)) for i, row in enumerate(logs) for j, x in enumerate(row) if x == x] * repeats
    pairs = [(ratio, 1.0) for _, _, ratio in found]
    got = method(pairs, clusters=[i for i, _, _ in found], processes=[j for _, j, _ in found], **arguments)
    assert isinstance(got, Quantity)
    return got


def test_geometric_mean_ratio_is_the_t_interval_of_the_logs() -> None:
    """Value and interval equal scipy's t interval on log ratios, whether one process is named or none."""
    logs = np.log([a / b for a, b in PAIRS])
    low, high = scipy_stats.t.interval(0.95, len(logs) - 1, loc=logs.mean(), scale=scipy_stats.sem(logs))
    for processes, method in ((None, "t on log ratios"), ([7] * 5, "t on log ratios, this process only")):
        got = geometric_mean_ratio(PAIRS, processes=processes)
        assert got.value == pytest.approx(scipy_stats.gmean(np.exp(logs)), rel=1e-12) and got.method == method
        assert (got.low, got.high) == (pytest.approx(math.exp(low), rel=1e-12), pytest.approx(math.exp(high), rel=1e-12))


def test_three_processes_add_their_term_by_hand() -> None:
    """MS 4, 7 and 1: variance (4 + 7 - 1)/9, degrees 10² / (4²/2 + 7²/2 + 1²/4); processes vary by (7 - 1)/3."""
    got, reach = from_table(HAND), math.sqrt(10 / 9) * scipy_stats.t.ppf(0.975, 100 / 32.75)
    assert got.value == pytest.approx(math.exp(10 / 3)) and (got.n, got.processes) == (3, 3)
    assert (got.low, got.high) == pytest.approx((math.exp(10 / 3 - reach), math.exp(10 / 3 + reach)), rel=1e-12)
    assert (got.spread.prompt, got.spread.process) == pytest.approx((math.sqrt(4 / 3), math.sqrt(2)))
    assert got.method == "t on log ratios, prompts crossed with 3 processes"


def test_two_processes_are_these_two_only() -> None:
    """Their difference is no noise of the interval: t over prompts on the means of both."""
    got, means = from_table(HAND[:, :2]), HAND[:, :2].mean(axis=1)
    low, high = scipy_stats.t.interval(0.95, 2, loc=means.mean(), scale=scipy_stats.sem(means))
    assert (got.low, got.high) == pytest.approx((math.exp(low), math.exp(high)), rel=1e-12)
    assert got.method == "t on log ratios, these 2 processes only" and got.spread.process is None


@given(st.integers(0, 10**6), st.integers(3, 12), st.integers(3, 6))
def test_mean_squares_are_those_of_least_squares(seed: int, prompts: int, processes: int) -> None:
    """Fit grand mean, prompts, processes one after the other with lstsq: the drops in the residual are the sums of squares."""
    table = np.random.default_rng(seed).normal(size=(prompts, processes))
    rows, columns = np.repeat(np.eye(prompts), processes, axis=0), np.tile(np.eye(processes), (prompts, 1))

    def left(*design: Any) -> float:
        matrix = np.hstack([np.ones((table.size, 1)), *design])
        return float(((table.ravel() - matrix @ np.linalg.lstsq(matrix, table.ravel(), rcond=None)[0]) ** 2).sum())

    of_prompts = (left() - left(rows)) / (prompts - 1)
    of_processes = (left(rows) - left(rows, columns)) / (processes - 1)
    rest = left(rows, columns) / ((prompts - 1) * (processes - 1))
    found = variance_of_mean(table)
    assert found.value * table.size == pytest.approx(of_prompts + max(0.0, of_processes - rest), rel=1e-9)
    assert found.spread.process**2 * prompts == pytest.approx(max(0.0, of_processes - rest), rel=1e-9, abs=1e-9)
    assert of_processes > rest or found.degrees == prompts - 1


def test_processes_with_prompts_of_their_own_are_one_mean_each() -> None:
    """Scipy's t interval over the processes' means, however far their prompts are apart; two processes are these two only."""
    table = np.full((15, 5), np.nan)
    for j, of_process in enumerate((0.0, 0.3, 0.1, 0.2, -0.1)):
        table[3 * j : 3 * j + 3, j] = of_process + np.array([-1.0, 0.4, 0.6])
    means = np.array([0.0, 0.3, 0.1, 0.2, -0.1])
    got = from_table(table)
    ends = np.exp(scipy_stats.t.interval(0.95, 4, loc=means.mean(), scale=scipy_stats.sem(means)))
    assert (got.value, got.low, got.high) == pytest.approx((math.exp(0.1), *ends))
    assert got.method == "t on log ratios, prompts of their own in 5 processes" and got.n == 15 and got.spread is not None
    assert got.spread.prompt == pytest.approx(math.sqrt(1.52 * 5 / 10)) and got.spread.process == 0
    two = from_table(table[:6, :2])
    error = math.sqrt(1.52 * 2 / 4 / 6) * scipy_stats.t.ppf(0.975, 4)
    assert two.low == pytest.approx(math.exp(0.15 - error)) and two.method == "t on log ratios, these 2 processes only"
    totals = from_table(table, ratio_of_totals)
    assert totals.low is not None and "prompts of their own" in (totals.method or "")


def test_processes_with_prompts_of_their_own_share_the_clusters_of_them() -> None:
    """Each process has a prompt of each of three tasks, which are the sample: the interval is that of their crossed table."""
    table = [[0.1, 0.2, 0.0], [0.4, 0.6, 0.5], [0.9, 0.8, 1.0]]
    cells = [(i, j) for i in range(3) for j in range(3)]
    own = geometric_mean_ratio(
        [(math.exp(table[i][j]), 1.0) for i, j in cells],
        clusters=[Grouped("", i, (i, j)) for i, j in cells],
        processes=[j for _, j in cells],
    )
    crossed = from_table(table)
    assert (own.low, own.high, own.n) == (pytest.approx(crossed.low), pytest.approx(crossed.high), 3)


def test_an_empty_cell_is_filled_by_the_least_squares_fit() -> None:
    """Yates's missing plot: what prompt + process, fitted on the cells there are, say of the empty ones."""
    drawn = np.random.default_rng(3)
    table, empty = drawn.normal(size=(9, 4)), drawn.random((9, 4)) < 0.15
    assert empty.any()
    design = np.hstack([np.repeat(np.eye(9), 4, axis=0), np.tile(np.eye(4), (9, 1))])
    known = ~empty.ravel()
    fit = (design @ np.linalg.lstsq(design[known], table.ravel()[known], rcond=None)[0]).reshape(9, 4)
    assert np.allclose(filled(table, empty), np.where(empty, fit, table), atol=1e-9)


def test_a_void_sample_does_not_lend_its_prompt_the_speed_of_the_other_processes() -> None:
    """Process 2 is e times faster on all 6 prompts. One of its cells is void: the value stays what it was."""
    table = np.arange(6.0)[:, None] + np.array([[0.0, 0.0, 1.0]])
    holed = table.copy()
    holed[0, 2] = np.nan
    full, got = from_table(table), from_table(holed)
    assert got.value == pytest.approx(full.value, rel=1e-9) and got.low == pytest.approx(full.low, rel=1e-6)


def test_a_process_that_lacks_too_many_prompts_leaves_no_interval() -> None:
    """Half the prompts of a process are missing: value, reason, no interval, from both estimators."""
    table = np.random.default_rng(0).normal(size=(10, 3))
    table[:5, 1] = np.nan
    for method in (geometric_mean_ratio, ratio_of_totals):
        got = from_table(table, method)
        assert got.value and got.low is None and "50% of the prompts" in got.reason


def test_repeats_of_a_prompt_are_one_observation() -> None:
    """Doubling every pair as a second repeat changes neither value nor interval nor n, of both estimators."""
    table = np.vstack([HAND[:, :2], [[1.0, 0.5], [2.0, 0.3]]])
    for method in (geometric_mean_ratio, ratio_of_totals):
        once, twice = from_table(table, method), from_table(table, method, repeats=2)
        assert twice.n == once.n == 5 and once.low is not None
        assert (twice.value, twice.low, twice.high) == pytest.approx((once.value, once.low, once.high), rel=1e-9)


def test_ratio_of_totals_by_hand() -> None:
    """(3 + 2.5 + 8 + 2.7 + 4.1) / (1 + 1 + 2 + 0.9 + 1.7); then 20.3 s for 70 tokens against 6.6 s for 66."""
    assert ratio_of_totals(PAIRS).value == pytest.approx(20.3 / 6.6, rel=1e-15)
    tokens = [(10.0, 12.0), (20.0, 18.0), (15.0, 15.0), (5.0, 6.0), (20.0, 15.0)]
    assert ratio_of_totals(PAIRS, tokens).value == pytest.approx((20.3 / 70) / (6.6 / 66), rel=1e-15)


SUMS = np.array(
    [[3.0, 10, 1.0, 12], [2.5, 20, 1.0, 18], [8.0, 15, 2.0, 15], [2.7, 5, 0.9, 6], [4.1, 20, 1.7, 15], [6.0, 21, 1.9, 20]]
)
"""(time, tokens, time, tokens) of six prompts."""


def test_influences_are_what_leaving_a_prompt_out_changes() -> None:
    """Against the derivative of the log ratio in a prompt's weight, by central differences."""
    found = influences(SUMS, SUMS.sum(axis=0))
    for i, row in enumerate(SUMS):
        up, down = (log_ratio(SUMS.sum(axis=0) + sign * 1e-6 * row) for sign in (1, -1))
        assert found[i] == pytest.approx(6 * float(up - down) / 2e-6, rel=1e-6)
    assert found.sum() == pytest.approx(0, abs=1e-12)


SIZES = np.log(SUMS[:, [1, 3]]).mean(axis=1)
SLOPE, MIDDLE = np.polyfit(SIZES, log_ratio(SUMS), 1)
LEFT = log_ratio(SUMS) - MIDDLE - SLOPE * SIZES
HIDDEN = math.sqrt(5 / scipy_stats.chi2.ppf(0.2, 5))
"""By which the spread of 6 sizes may be too low."""


def test_a_smoothed_prompt_lies_beside_the_line_as_its_donor_does() -> None:
    """Numpy's line through the log ratios over the sizes: at the size that a normal number gives, on the donor's side of it or
    on the other one. At its own size a donor is itself.
    """
    spread = SIZES.std(ddof=1) * HIDDEN
    normal = np.array([0.0, 1.0, -2.0, 0.5])
    found = smoothed(SUMS, np.array([1, 5, 6, 10]), normal)
    sizes = np.log(found[:, [1, 3]]).mean(axis=1)
    assert sizes == pytest.approx(SIZES.mean() + spread * normal)
    assert log_ratio(found) - MIDDLE - SLOPE * sizes == pytest.approx([LEFT[1], LEFT[5], -LEFT[0], -LEFT[4]])
    assert smoothed(SUMS, np.arange(6), (SIZES - SIZES.mean()) / spread) == pytest.approx(SUMS)


def test_where_all_answers_are_alike_the_size_is_the_steadier_time() -> None:
    """NTP's here, by hand: a prompt of the mean size without a residual has the means. Swapping the sides swaps the columns."""
    sums = np.array([[2.0, 8, 1.0, 8], [2.2, 8, 0.5, 8], [2.1, 8, 0.9, 8]])
    spread = np.log(sums[:, 0]).std(ddof=1) * math.sqrt(2 / scipy_stats.chi2.ppf(0.2, 2))
    normal = (np.log(sums[:, 0]) - np.log(sums[:, 0]).mean()) / spread
    assert smoothed(sums, np.arange(3), normal) == pytest.approx(sums)
    swapped = smoothed(sums[:, [2, 3, 0, 1]], np.array([4, 0]), np.array([1.0, -1.0]))
    assert swapped[:, [2, 3, 0, 1]] == pytest.approx(smoothed(sums, np.array([4, 0]), np.array([1.0, -1.0])))


def test_bootstrap_t_is_that_of_a_plain_loop() -> None:
    """Another generator, plain Python, the same definition: quantiles agree to 6 %, and the interval is made of them."""
    drawn, reaches = random.Random(2), []
    spreads = [statistics.pvariance([math.log(row[k] / row[k + 1]) for row in SUMS]) for k in (0, 2)]
    shares = [spread / math.fsum(spreads) for spread in spreads]
    spread = statistics.stdev(SIZES) * HIDDEN

    def prompt() -> tuple[float, float, float, float]:
        donor, size, side = drawn.randrange(6), SIZES.mean() + spread * drawn.gauss(0, 1), drawn.choice((-1, 1))
        longer, (a, n, b, m) = size - SIZES[donor], SUMS[donor]
        gained = MIDDLE + SLOPE * size + side * LEFT[donor] - math.log(a / n / b * m)
        factors = math.exp(longer + shares[0] * gained), math.exp(longer), math.exp(longer - shares[1] * gained)
        return a * factors[0], n * factors[1], b * factors[2], m * factors[1]

    every = [prompt() for _ in range(120_000)]
    whole = float(log_ratio(np.array(every).sum(axis=0)))
    for start in range(0, len(every), 6):
        rows = every[start : start + 6]
        t_ntp, n_ntp, t_arm, n_arm = (math.fsum(row[k] for row in rows) / 6 for k in range(4))
        own = [r[0] / t_ntp - r[1] / n_ntp - r[2] / t_arm + r[3] / n_arm for r in rows]
        reaches.append((math.log(t_ntp / n_ntp / t_arm * n_arm) - whole) / math.sqrt(math.fsum(x * x for x in own) / 5 / 6))
    either = sorted(map(abs, reaches))[19_000 - 1]
    higher, lower = sorted(reaches)[19_500 - 1], sorted(-one for one in reaches)[19_500 - 1]
    below, above = quantiles(SUMS, 0.95)
    assert below == pytest.approx(max(higher, either), rel=0.06) and above == pytest.approx(max(lower, either), rel=0.06)
    got = ratio_of_totals([(r[0], r[2]) for r in SUMS], [(r[1], r[3]) for r in SUMS], processes=[0] * 6)
    error = float(np.std(influences(SUMS, SUMS.sum(axis=0)), ddof=1)) / math.sqrt(6)
    assert got.high == pytest.approx(got.value * math.exp(above * error), rel=1e-9)
    assert got.low == pytest.approx(got.value * math.exp(-below * error), rel=1e-9)
    assert got.method == "bootstrap-t, this process only"


@pytest.mark.parametrize("prompts", [16, 50])
def test_where_long_answers_gain_less_a_claim_at_the_truth_is_rarely_confirmed(prompts: int) -> None:
    """400 runs, lengths of lognormal spread 0.5, log speedup 1.1 - 0.3 log length: images gave 6 and 8 %. The truth by the
    moments of the lognormal distribution."""
    drawn, spread, slope, noise = np.random.default_rng(prompts), 0.5, 0.3, 0.05
    truth = 1.1 - ((1 + slope) ** 2 - 1) * spread**2 / 2 - noise**2 / 2
    confirmed = 0
    for _ in range(400):
        size = spread * drawn.normal(size=prompts)
        logs, tokens = 1.1 - slope * size + noise * drawn.normal(size=prompts), 1_000 * np.exp(size)
        times = list(zip(tokens.tolist(), (tokens * np.exp(-logs)).tolist(), strict=True))
        low = ratio_of_totals(times, list(zip(tokens.tolist(), tokens.tolist(), strict=True))).low
        confirmed += low is not None and low > math.exp(truth)
    assert confirmed <= 18


def test_processes_widen_the_ratio_of_totals() -> None:
    """The same prompts in 4 processes that differ by 20 %: wider than in 4 that agree, by their term."""
    prompts = np.random.default_rng(1).normal(size=(12, 1))
    alike, unlike = (from_table(prompts + np.array([[0, a, -a, 2 * a]]), ratio_of_totals) for a in (0.0, 0.2))
    assert unlike.high / unlike.value > 1.02 * alike.high / alike.value
    assert unlike.spread.process == pytest.approx(np.std([0, 0.2, -0.2, 0.4], ddof=1), rel=0.1)


def test_percentiles_are_over_prompts_not_over_samples() -> None:
    """Prompts of ratio 1, 2, 4, 8, 16, the last decoded ten times: the median is 4, the ends interpolate the logs."""
    pairs = [*((2.0**i, 1.0) for i in range(5)), *[(16.0, 1.0)] * 9]
    assert ratio_percentiles(pairs, [0, 1, 2, 3, 4, *[4] * 9]) == pytest.approx((2**0.4, 4.0, 2**3.6))
    assert ratio_percentiles([]) is None and ratio_percentiles([(1.0, math.nan)]) is None


METHODS = pytest.mark.parametrize("method", [geometric_mean_ratio, ratio_of_totals])


@METHODS
@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        ([(3.0, 1.0)], "one prompt only: no interval"),
        ([(3.0, 1.0), (6.0, 2.0), (9.0, 3.0), (1.5, 0.5), (30.0, 10.0)], "same ratio"),
        ([*[(3.0, 1.0)] * 9, (3.0 + 1e-13, 1.0)], "same ratio"),
    ],
)
def test_degenerate_ratios_keep_the_value_and_say_why_there_is_no_interval(
    method: Any, pairs: list[tuple[float, float]], reason: str
) -> None:
    """One prompt, no spread, the spread of a rounding error: a finite value, no interval, a reason."""
    got = method(pairs, processes=[0] * len(pairs))
    assert math.isfinite(got.value) and got.low is None and got.high is None and got.spread is None
    assert reason in got.reason and got.processes == 1


def test_an_interval_beyond_all_numbers_is_not_given() -> None:
    """Two prompts that differ by 280 orders of magnitude: the end would be infinite."""
    got = geometric_mean_ratio([(1e70, 1e-70), (1e-70, 1e70)])
    assert got.value == pytest.approx(1) and got.low is None and got.reason == "so wide an interval says nothing"


@METHODS
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 0.0, -1.0, 1e-320, 1e308])
def test_what_is_no_time_has_no_ratio(method: Any, bad: float) -> None:
    """NaN, infinite, zero or negative, on either side: None with a reason that shows the pair; nothing at all likewise."""
    for pair in ((bad, 1.0), (1.0, bad)):
        got = method([*PAIRS, pair])
        assert got.value is None and got.low is None and "1 of 6 pairs are not positive finite" in got.reason
    assert method([]).value is None and method([]).reason


def test_few_prompts_have_no_interval_of_the_ratio_of_totals() -> None:
    """It would hold the truth too seldom with fewer than five; said instead of printed."""
    assert ratio_of_totals(PAIRS).low is not None
    got = ratio_of_totals(PAIRS[:4])
    assert got.value and got.low is None and got.reason == "4 prompts only: no interval; a ratio of totals takes 5"


def test_one_odd_prompt_among_equal_ones_has_no_bootstrap() -> None:
    """Every third resample misses the odd one and shows no spread at all: said, not divided by zero."""
    got = ratio_of_totals([*[(3.0, 1.0)] * 9, (4.0, 1.0)])
    assert got.value and got.low is None and "nearly all prompts gave the same ratio" in got.reason


def test_prompts_alike_in_processes_that_differ_have_an_interval_of_processes() -> None:
    """No spread over prompts: t with 3 degrees of freedom over the 4 processes."""
    process = np.array([0.0, 0.1, 0.3, 0.2])
    low, high = scipy_stats.t.interval(0.95, 3, loc=process.mean(), scale=scipy_stats.sem(process))
    for method in (geometric_mean_ratio, ratio_of_totals):
        got = from_table(np.tile(process, (6, 1)), method)
        assert got.low == pytest.approx(math.exp(low), rel=0.02) and got.high == pytest.approx(math.exp(high), rel=0.02)


TIME = st.integers(10, 1000).map(lambda n: n / 100)


@st.composite
def designs(draw: st.DrawFn) -> list[tuple[tuple[float, float], tuple[float, float], str, int]]:
    """Paired decodes of 5 to 7 prompts in 1 to 4 processes, each once to three times: times, tokens, prompt, process."""
    processes = draw(st.integers(1, 4))
    places = [(f"p{i}", j) for i in range(draw(st.integers(5, 7))) for j in range(processes)]
    tokens = {prompt: (float(draw(st.integers(1, 300))), float(draw(st.integers(1, 300)))) for prompt, _ in places}
    repeats = draw(st.integers(1, 3))
    return [((draw(TIME), draw(TIME)), tokens[prompt], prompt, process) for prompt, process in places * repeats]


def both(design: list[tuple[tuple[float, float], tuple[float, float], str, int]]) -> list[Quantity]:
    """The two estimators of a design."""
    times, tokens, prompts, processes = ([*column] for column in zip(*design, strict=True))
    per_token = [(a / n, b / m) for (a, b), (n, m) in zip(times, tokens, strict=True)]
    return [geometric_mean_ratio(per_token, prompts, processes), ratio_of_totals(times, tokens, prompts, processes)]


def ends(found: Quantity) -> list[float]:
    """Value, and the interval where there is one; all of them numbers, and a reason where there is none."""
    given = [end for end in (found.value, found.low, found.high) if end is not None]
    assert len(given) == (1 if found.reason else 3) and all(math.isfinite(end) for end in given)
    return given


@settings(deadline=None, max_examples=40)
@given(designs(), st.sampled_from([1e-3, 0.3, 7.0, 1e6]), st.randoms(use_true_random=False))
def test_neither_the_unit_nor_the_order_of_the_samples_matters(design: Any, scale: float, shuffle: random.Random) -> None:
    """All times in another unit: no ratio and no interval moves. Samples in another order: nothing changes at all."""
    scaled = [((a * scale, b * scale), *rest) for (a, b), *rest in design]
    shuffled = shuffle.sample(design, len(design))
    for found, other, mixed in zip(both(design), both(scaled), both(shuffled), strict=True):
        assert ends(other) == pytest.approx(ends(found), rel=1e-8) and other.reason == found.reason
        assert mixed == found


@settings(deadline=None, max_examples=40)
@given(designs())
def test_swapping_the_arms_mirrors_the_interval(design: Any) -> None:
    """1 ÷ value, and each end 1 ÷ the other one."""
    swapped = [((b, a), (m, n), *rest) for (a, b), (n, m), *rest in design]
    for found, other in zip(both(design), both(swapped), strict=True):
        value, *interval = ends(other)
        assert [1 / value, *(1 / end for end in reversed(interval))] == pytest.approx(ends(found), rel=1e-8)


@pytest.mark.parametrize(("prompts", "processes"), [(40, 1), (10, 5)])
def test_intervals_cover_a_known_truth(prompts: int, processes: int) -> None:
    """300 simulated runs: 91 to 98.5 % for both estimators (benchmarks.interval_coverage counts thousands)."""
    from benchmarks.interval_coverage import Setting, coverage

    for count in coverage(Setting(name="test", prompts=prompts, processes=processes), 300):
        assert count.none == 0 and 91 <= count.coverage_pct <= 98.5


def test_a_total_is_marked_where_few_prompts_hold_it() -> None:
    """Effective prompts by hand: nine of weight 1 and one of w are (9 + w)² ÷ (9 + w²), a third of ten at w = 9.92."""

    def of(weight: float) -> Quantity:
        times = [(3.0 + 0.01 * i, 1.0) for i in range(9)] + [(3.0 * weight, weight)]
        return ratio_of_totals(times, [(1.0, 1.0)] * 9 + [(weight, weight)])

    assert of(9.7).low is not None
    marked = of(30.0)
    assert marked.value and marked.low is None and marked.high is None
    assert "1 of 10 prompts hold 77% of a total, which weighs as 1.7 equal prompts" in marked.reason
    assert of(10.2).low is None


def test_a_wider_level_of_the_bootstrap_is_a_higher_quantile_of_the_same_resamples() -> None:
    """99.9 % reaches further than 95 %, which is what it was before another level was asked for."""
    pairs = [(3.0 * math.exp(0.1 * math.sin(i)), 1.0) for i in range(20)]
    first, wide, again = ratio_of_totals(pairs), ratio_of_totals(pairs, confidence=0.999), ratio_of_totals(pairs)
    assert first == again and wide.low < first.low
