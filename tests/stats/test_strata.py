"""Prompts in tasks and in clusters: variances by brute force, collapsed strata, and how often intervals hold a known truth."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from harness.stats.crossed import Cells, Grouped, gather, within_strata
from harness.stats.quantity import Quantity
from harness.stats.ratios import geometric_mean_ratio, ratio_of_totals
from harness.stats.sample_size import percentile, percentile_over_processes, prompts_for_width
from harness.stats.two_runs import Observations, ratio_of_runs

SIZES = (2, 5, 9, 3)


def cells_of(table: np.ndarray, groups: Sequence[tuple[Hashable, Hashable]]) -> Cells:
    """The cells of a table (prompts, processes)."""
    places = [(i, j) for i in range(len(table)) for j in range(table.shape[1])]
    return gather(table.reshape(-1, 1), [Grouped(*groups[i], f"{i:03d}") for i, _ in places], [j for _, j in places])


def ratio_of(table: np.ndarray, groups: Sequence[tuple[Hashable, Hashable]], method: Any = geometric_mean_ratio) -> Quantity:
    """``method`` on the log ratios of a table (prompts, processes)."""
    places = [(i, j) for i in range(len(table)) for j in range(table.shape[1])]
    pairs = [(math.exp(table[i, j]), 1.0) for i, j in places]
    prompts = [Grouped(*groups[i], f"{i:03d}") for i, _ in places]
    found = method(pairs, clusters=prompts, processes=[j for _, j in places])
    assert isinstance(found, Quantity)
    return found


def in_strata(sizes: Sequence[int]) -> list[tuple[Hashable, Hashable]]:
    """Unrelated prompts of strata of these sizes."""
    return [(f"task {h}", (h, i)) for h, size in enumerate(sizes) for i in range(size)]


def in_clusters(sizes: Sequence[int]) -> list[tuple[Hashable, Hashable]]:
    """One stratum of clusters of these sizes."""
    return [("", c) for c, size in enumerate(sizes) for _ in range(size)]


def test_the_variance_over_strata_is_the_textbooks() -> None:
    """Cochran (1977) 5.7 without sampling fractions: Σ n_h s_h² ÷ N², prompt by prompt in plain Python."""
    values = np.random.default_rng(1).normal(size=sum(SIZES)) + np.repeat([0.0, 5.0, -3.0, 40.0], SIZES)
    wanted, terms, start = 0.0, [], 0
    for size in SIZES:
        own = values[start : start + size].tolist()
        mean = math.fsum(own) / size
        terms.append(size * math.fsum((x - mean) ** 2 for x in own) / (size - 1) / sum(SIZES) ** 2)
        wanted, start = wanted + terms[-1], start + size
    found = cells_of(values[:, None], in_strata(SIZES)).variance(values[:, None])
    degrees = wanted**2 / math.fsum(term**2 / (size + 1) for term, size in zip(terms, SIZES, strict=True)) - 2
    assert found.value == pytest.approx(wanted, rel=1e-12)
    assert found.degrees == pytest.approx(min(degrees, sum(SIZES) - len(SIZES)), rel=1e-12)
    got = ratio_of(values[:, None], in_strata(SIZES))
    half = scipy_stats.t.ppf(0.975, found.degrees) * math.sqrt(wanted)
    assert (got.value, got.n) == (pytest.approx(math.exp(values.mean())), sum(SIZES))
    assert got.high / got.value == pytest.approx(math.exp(half), rel=1e-9) == got.value / got.low
    assert got.spread.prompt == pytest.approx(math.sqrt(wanted * sum(SIZES))) and got.spread.of_unit == 1


def test_degrees_over_strata_are_unbiased() -> None:
    """Ten strata of two with equal variances have 10 degrees: the mean of 1 ÷ degrees is near, plain Satterthwaite's is not."""
    drawn = np.random.default_rng(2).normal(size=(400, 10))
    stratum, plain, ours = np.repeat(np.arange(10), 2), [], []
    for row in drawn:
        away = np.repeat(row, 2) * np.tile([1.0, -1.0], 10)
        ours.append(within_strata(away, stratum).degrees)
        plain.append((row**2).sum() ** 2 / (row**4).sum())
    assert np.median(plain) < 5 < 8 < np.median(ours) <= 10


def test_strata_crossed_with_processes_are_those_of_least_squares() -> None:
    """Mean squares from lstsq: strata by processes first, then prompts in their strata. Equal strata, so nothing is weighed."""
    strata, each, processes = 4, 3, 5
    prompts = strata * each
    table = np.random.default_rng(3).normal(size=(prompts, processes)) + np.repeat(np.arange(4.0), each)[:, None] * 3
    table += np.array([0.0, 1.0, -1.0, 2.0, 0.5])
    of_prompt = np.repeat(np.eye(prompts), processes, axis=0)
    crossed = np.vstack([np.kron(np.eye(strata)[i // each], np.eye(processes)[j]) for i in range(prompts) for j in range(5)])

    def left(*design: Any) -> float:
        matrix = np.hstack(design)
        return float(((table.ravel() - matrix @ np.linalg.lstsq(matrix, table.ravel(), rcond=None)[0]) ** 2).sum())

    by_stratum = np.repeat(np.eye(strata), each * processes, axis=0)
    of_prompts = (left(by_stratum) - left(of_prompt)) / (prompts - strata)
    rest = left(of_prompt, crossed) / ((prompts - strata) * (processes - 1))
    columns = table.mean(axis=0)
    of_processes = prompts * float(((columns - columns.mean()) ** 2).sum()) / (processes - 1)
    found = cells_of(table, in_strata([each] * strata)).variance(table)
    assert found.value * table.size == pytest.approx(of_prompts + of_processes - rest, rel=1e-9)
    assert found.of_prompts * table.size == pytest.approx(of_prompts, rel=1e-9)
    assert found.spread.process**2 * prompts == pytest.approx(of_processes - rest, rel=1e-9)


def test_clusters_of_unequal_sizes_have_the_sandwich() -> None:
    """C ÷ (C - 1) · Σ(sum of a cluster's residuals)² ÷ N², residuals of the mean over prompts; t with C - 1."""
    sizes = (1, 4, 2, 7, 3)
    values = np.random.default_rng(4).normal(size=17) + np.repeat([0.0, 1.0, -2.0, 0.5, 1.5], sizes)
    residuals, meat, start = values - values.mean(), 0.0, 0
    for size in sizes:
        meat, start = meat + math.fsum(residuals[start : start + size]) ** 2, start + size
    wanted = 5 / 4 * meat / 17**2
    got = ratio_of(values[:, None], in_clusters(sizes))
    half = scipy_stats.t.ppf(0.975, 4) * math.sqrt(wanted)
    assert got.value == pytest.approx(math.exp(values.mean())) and got.n == 17
    assert got.high / got.value == pytest.approx(math.exp(half), rel=1e-9)
    assert got.spread.of_unit == 17 / 5 and got.spread.prompt == pytest.approx(math.sqrt(wanted * 17))
    in_process = cells_of(np.stack([values, values + 1], axis=1), in_clusters(sizes)).units(
        np.stack([values, values + 1], axis=1)
    )
    assert in_process.mean(axis=0) == pytest.approx([values.mean(), values.mean() + 1])


def test_tasks_as_a_sample_are_their_means() -> None:
    """Three tasks of ten prompts, four processes: the same interval as of one prompt a task that takes its mean time."""
    drawn = np.random.default_rng(5)
    table = np.repeat(drawn.normal(size=(3, 1)), 10, axis=0) + drawn.normal(size=(30, 1)) + 0.1 * drawn.normal(size=(30, 4))
    means = table.reshape(3, 10, 4).mean(axis=1)
    got, wanted = ratio_of(table, in_clusters([10] * 3)), ratio_of(means, in_clusters([1] * 3))
    assert (got.value, got.low, got.high) == pytest.approx((wanted.value, wanted.low, wanted.high)) and got.n == 30


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ([3, 2, 4], [0, 1, 2]),
        ([1, 2, 4], [1, 0, 1]),
        ([1, 2, 1], [1, 0, 1]),
        ([3, 4, 1], [0, 1, 1]),
        ([1], [0]),
        ([1, 1, 1], [0, 0, 0]),
    ],
)
def test_strata_of_one_unit_are_one_together(sizes: list[int], wanted: list[int]) -> None:
    """By their sizes, not by their values; one alone joins the last of the others."""
    found = cells_of(np.zeros((sum(sizes), 1)), in_strata(sizes)).stratum.tolist()
    assert found == [number for number, size in zip(wanted, sizes, strict=True) for _ in range(size)]


def test_a_stratum_of_one_prompt_keeps_the_interval() -> None:
    """Ten tasks of one prompt each are no strata: the interval is that of ten prompts."""
    values = np.random.default_rng(6).normal(size=(10, 1))
    for method in (geometric_mean_ratio, ratio_of_totals):
        alone, plain = ratio_of(values, in_strata([1] * 10), method), ratio_of(values, in_strata([10]), method)
        assert (alone.value, alone.high) == pytest.approx((plain.value, plain.high))


@pytest.mark.parametrize("method", [geometric_mean_ratio, ratio_of_totals])
def test_one_cluster_has_no_interval(method: Any) -> None:
    """All prompts are about one text: a value, no interval, and the reason counts clusters."""
    values = np.random.default_rng(7).normal(size=(12, 3))
    got = ratio_of(values, in_clusters([12]), method)
    assert got.value and got.low is None and "one cluster only" in got.reason and got.n == 12


DRAWS = 300


def held(draw: Any, groups: Any, truth: Any, method: Any = geometric_mean_ratio, draws: int = DRAWS) -> float:
    """Percent of intervals that hold the truth; ``draw`` gives the part of tasks or clusters, and the table on top of it."""
    random, counts = np.random.default_rng(8), Counter[bool]()
    for _ in range(draws):
        parts, table = draw(random)
        got = ratio_of(table, groups, method)
        counts[got.low <= math.exp(truth(parts)) <= got.high] += 1
    return 100 * counts[True] / draws


def of_tasks(tasks: int, each: int, processes: int) -> Any:
    """Tasks that differ by 0.2, prompts by 0.1, decodes by 0.02, and so do processes where there are several."""
    process = 0.02 * (processes > 1)

    def draw(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        parts = 0.2 * random.normal(size=tasks)
        table = np.repeat(parts, each)[:, None] + 0.1 * random.normal(size=(tasks * each, 1))
        return parts, table + process * random.normal(size=(1, processes)) + 0.02 * random.normal(
            size=(tasks * each, processes)
        )

    return draw


@pytest.mark.parametrize(("tasks", "each"), [(3, 10), (10, 2)])
@pytest.mark.parametrize("processes", [1, 3])
def test_intervals_over_tasks_hold_their_truth(tasks: int, each: int, processes: int) -> None:
    """Of these tasks: their own mean. Of such tasks: the mean of all. Today's interval held the latter in 55 % of runs."""
    drawn = of_tasks(tasks, each, processes)
    these = held(drawn, in_strata([each] * tasks), np.mean)
    such = held(drawn, in_clusters([each] * tasks), lambda _: 0.0)
    assert these >= 92 and such >= 92
    assert held(drawn, in_strata([tasks * each]), lambda _: 0.0) < (80 if tasks == 3 else 96)


def test_an_interval_over_clusters_holds_its_truth() -> None:
    """Fifteen clusters of four, alike by half: 92 % and more; as unrelated prompts less than 85 %."""
    drawn, related = of_tasks(15, 4, 3), in_clusters([4] * 15)
    assert held(drawn, related, lambda _: 0.0) >= 92
    assert held(drawn, in_clusters([1] * 60), lambda _: 0.0) < 85


def test_a_ratio_of_totals_holds_its_truth_over_clusters_and_strata() -> None:
    """NTP's times vary, the arm's are 1: by totals the ratio is the mean of lognormal ones."""
    within = (0.1**2 + 0.02**2 + 0.02**2) / 2

    def these(parts: np.ndarray) -> float:
        return math.log(float(np.exp(parts).mean())) + within

    assert held(of_tasks(3, 10, 3), in_strata([10] * 3), these, ratio_of_totals, 60) >= 90
    assert held(of_tasks(15, 4, 3), in_clusters([4] * 15), lambda _: 0.2**2 / 2 + within, ratio_of_totals, 60) >= 90


def test_strata_narrow_a_ratio_of_totals() -> None:
    """Tasks far apart, prompts alike within: the interval is that of the prompts."""
    _, table = of_tasks(3, 10, 1)(np.random.default_rng(9))
    table = table + np.repeat([0.0, 1.0, 2.0], 10)[:, None]
    apart, whole = ratio_of(table, in_strata([10] * 3), ratio_of_totals), ratio_of(table, in_strata([30]), ratio_of_totals)
    assert apart.value == whole.value and math.log(apart.high / apart.low) < math.log(whole.high / whole.low) / 3


def test_a_plan_counts_clusters() -> None:
    """To halve an interval of 8 clusters of 5 takes about four times the prompts, t with their clusters' degrees."""
    table = np.repeat(np.random.default_rng(10).normal(size=8), 5)[:, None] * 0.1
    got = ratio_of(table, in_clusters([5] * 8))
    half = math.log(got.high / got.value)
    assert prompts_for_width(got, math.expm1(half * 1.0001)) == 40
    wanted = next(n for n in range(41, 400) if 4 * 40 * (scipy_stats.t.ppf(0.975, [n / 5 - 1, 7]) ** 2)[0] <= n * 5.592)
    assert prompts_for_width(got, math.expm1(half / 2)) == wanted, "t(7) is 2.365, whose square is 5.592"


def test_a_percentile_counts_equal_values_of_a_cluster_once() -> None:
    """Twenty clusters of five equal values: scipy's interval of the twenty."""
    values = np.random.default_rng(11).gamma(3, size=20)
    found = percentile(np.repeat(values, 5).tolist(), 50, clusters=np.repeat(np.arange(20), 5).tolist())
    theirs = scipy_stats.quantile_test(values, p=0.5).confidence_interval(confidence_level=0.95)
    assert (found.low, found.high, found.n) == (theirs.low, theirs.high, 100)
    prompts = [Grouped(*group, i) for i, group in enumerate(in_clusters([5] * 20))]
    over = percentile_over_processes(np.repeat(values, 5).tolist(), prompts, [0] * 100, 50)
    assert (over.low, over.high) == pytest.approx((theirs.low, theirs.high))


def test_two_runs_of_the_same_tasks_differ_by_prompts_within_them() -> None:
    """A change that each task shows as a whole is one of these tasks: only what differs between their prompts is chance."""
    base = np.random.default_rng(12).normal(size=(12, 1)) + np.zeros((1, 2))
    of_task, own = np.repeat([0.0, 0.3, 0.6], 4)[:, None], 0.01 * np.random.default_rng(13).normal(size=(12, 1))

    def observed(table: np.ndarray, groups: Any) -> Observations:
        places = [(i, j) for i in range(12) for j in range(table.shape[1])]
        return Observations(
            values=[math.exp(table[i, j]) for i, j in places],
            prompts=[Grouped(*groups[i], i) for i, _ in places],
            processes=[j for _, j in places],
        )

    groups = in_strata([4] * 3)
    found = ratio_of_runs(observed(base, groups), observed(base + of_task + own, groups)).ratio
    wanted = ratio_of((of_task + own), groups)
    assert (found.value, found.low, found.high) == pytest.approx((wanted.value, wanted.low, wanted.high))
    many = ratio_of_runs(
        observed(np.tile(base[:, :1], (1, 3)), groups), observed(np.tile((base + of_task + own)[:, :1], (1, 3)), groups)
    ).ratio
    assert math.log(many.high / many.low) == pytest.approx(math.log(wanted.high / wanted.low), rel=1e-6)
