"""Intervals against scipy's own distributions, and degenerate input that must never become NaN."""

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, special
from scipy import stats as scipy_stats

from harness.stats import quantity


def test_nothing_is_absent_with_a_reason() -> None:
    """Nothing in, None and a reason out."""
    for got in (quantity.wilson_interval(0, 0), quantity.paired_lower_bound([])):
        assert got.value is None and got.reason


ONLY = [(None, None), (1, "this process only"), (2, "these 2 processes only"), (3, None)]


@pytest.mark.parametrize(("processes", "words"), ONLY)
def test_from_three_processes_on_an_interval_is_about_others_too(processes: int | None, words: str | None) -> None:
    """Fewer do not show how processes differ, and the words say so."""
    assert quantity.Quantity(value=3.0, processes=processes).these_processes_only == words


@pytest.mark.parametrize(("k", "n"), [(0, 10), (10, 10), (57, 60), (5901, 6000)])
def test_wilson_equals_scipy(k: int, n: int) -> None:
    """The Wilson interval equals scipy.stats.binomtest's."""
    want = scipy_stats.binomtest(k, n).proportion_ci(0.95, method="wilson")
    got = quantity.wilson_interval(k, n)
    assert (got.low, got.high) == pytest.approx((want.low, want.high), abs=1e-12)


def most_likely_share_of_losses(pairs: int, gains: int, losses: int, difference: float) -> float:
    """By maximising the likelihood numerically: the share of gains is larger by ``difference``."""

    def unlikely(lost: float) -> float:
        shares = (lost + difference, lost, 1 - 2 * lost - difference)
        counts = (gains, losses, pairs - gains - losses)
        return -sum(special.xlogy(count, share) for count, share in zip(counts, shares, strict=True))

    within = (max(0.0, -difference), (1 - difference) / 2)
    return float(optimize.minimize_scalar(unlikely, bounds=within, method="bounded", options={"xatol": 1e-12}).x)


def test_the_constrained_shares_give_the_published_interval() -> None:
    """With the normal approximation they make Tango's 95 % interval of Fagerland, Lydersen & Laake, Stat. Med. 33 (2014) 2850:
    airway hyper-responsiveness of 21 children, 1 and 7 changed, -0.517 to -0.026."""
    for end, sign in ((-0.517, 1), (-0.026, -1)):
        lost = quantity.lost_share(21, 1, 7, end)
        score = (1 - 7 - 21 * end) / math.sqrt(21 * (2 * lost + end * (1 - end)))
        assert sign * score == pytest.approx(1.96, abs=0.006)


COUNTS = [(300, 12, 15), (40, 3, 0), (25, 0, 4), (6000, 280, 300), (7, 5, 2), (300, 0, 0), (60, 0, 3), (80, 1, 0)]


@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize("confidence", [0.95, 0.999])
def test_paired_bound_by_brute_force(counts: tuple[int, int, int], confidence: float) -> None:
    """At the bound so large a net gain has the probability that it should: likelihood maximised by search, the distribution
    of the net gain by convolving scipy's. No differing pair is the exact rule of three; one lucky win proves little more."""
    pairs, gains, losses = counts
    got = quantity.paired_lower_bound([1.0] * gains + [-1.0] * losses + [0.0] * (pairs - gains - losses), confidence)
    assert got.value == pytest.approx((gains - losses) / pairs)
    lost = most_likely_share_of_losses(pairs, gains, losses, got.low)
    differing = np.arange(pairs + 1)
    share = 2 * lost + got.low
    chance = scipy_stats.binom.sf(np.ceil((differing + gains - losses) / 2) - 1, differing, (lost + got.low) / share)
    total = float((scipy_stats.binom.pmf(differing, pairs, share) * chance).sum())
    assert total == pytest.approx((1 - confidence) / 2, rel=1e-4)


SHARES = [0.0, 0.01, 0.05]


@pytest.mark.parametrize("gained", SHARES)
@pytest.mark.parametrize(("pairs", "margin"), [(20, 0.05), (50, 0.1), (58, 0.05), (72, 0.05), (94, 0.05), (150, 0.05)])
def test_an_arm_at_the_margin_is_confirmed_in_at_most_half_of_5_percent(pairs: int, margin: float, gained: float) -> None:
    """Every outcome with its probability. At nominal 5 % the t bound gave up to 8 %, Tango's normal approximation 6.8 %."""
    lost, wrong = gained + margin, 0.0
    for gains, losses in itertools.product(range(pairs + 1), repeat=2):
        left = pairs - gains - losses
        if left < 0 or (gains and not gained) or (gains - losses) / pairs <= -margin:
            continue
        chance = scipy_stats.multinomial.pmf([gains, losses, left], pairs, [gained, lost, 1 - gained - lost])
        if chance > 1e-7:
            low = quantity.paired_lower_bound([1.0] * gains + [-1.0] * losses + [0.0] * left).low
            wrong += chance * (low is not None and low > -margin)
    assert wrong <= 0.025 + 1e-6


DIFFERENCES = st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]), min_size=1, max_size=60)


@given(DIFFERENCES)
def test_paired_bound_is_a_number_below_the_mean(data: list[float]) -> None:
    """For any differences: finite, at least -1, never above the mean."""
    got = quantity.paired_lower_bound(data)
    assert -1 - 1e-12 <= got.low <= got.value + 1e-12


@given(DIFFERENCES, st.integers(2, 5), st.randoms(use_true_random=False))
def test_copies_of_the_same_pairs_add_nothing(data: list[float], copies: int, shuffled: random.Random) -> None:
    """Whole answers copied under their label, in any order, give the bound of the answers themselves."""
    whole = [float(round(one)) for one in data]
    labelled = [(one, label) for label, one in enumerate(whole)] * copies
    shuffled.shuffle(labelled)
    got = quantity.paired_lower_bound([one for one, _ in labelled], clusters=[label for _, label in labelled])
    assert got.low == pytest.approx(quantity.paired_lower_bound(whole).low, abs=1e-7)


@given(DIFFERENCES)
def test_pairs_that_stand_alone_are_counted_in_full(data: list[float]) -> None:
    """A label for each pair is no label."""
    assert quantity.paired_lower_bound(data, clusters=range(len(data))) == quantity.paired_lower_bound(data)


def test_where_no_pair_differs_clusters_are_what_is_counted() -> None:
    """1,000 questions about 100 texts, none differs: what is wrong with a text that was not seen is wrong with all ten."""
    got = quantity.paired_lower_bound([0.0] * 1_000, clusters=[i // 10 for i in range(1_000)])
    assert got.low == pytest.approx(quantity.paired_lower_bound([0.0] * 100).low)
    assert got.n == 1_000 and got.method == "score bound; 1000 related pairs count as 100"


@pytest.mark.parametrize("size", [2, 5, 10])
def test_related_pairs_confirm_no_more_often_than_said(size: int) -> None:
    """400 simulated runs at the margin, all pairs of a cluster alike: at most 2.5 % and what chance adds."""
    drawn, confirmed, clusters = np.random.default_rng(size), 0, 1_000 // size
    labels = [i // size for i in range(clusters * size)]
    for _ in range(400):
        of_cluster = drawn.choice([1.0, -1.0, 0.0], clusters, p=[0.02, 0.03, 0.95])
        low = quantity.paired_lower_bound(np.repeat(of_cluster, size).tolist(), clusters=labels).low
        confirmed += low is not None and low > -0.01
    assert confirmed <= 18


def test_pairs_needed_is_the_first_number_that_can_show_it() -> None:
    """With one pair fewer the bound of all-equal data is at or below the margin."""
    n = quantity.pairs_needed(0.01)
    enough, short = quantity.paired_lower_bound([0.0] * n), quantity.paired_lower_bound([0.0] * (n - 1))
    assert short.low <= -0.01 < enough.low


def test_means_over_repeats_are_bounded_by_t_over_prompts() -> None:
    """As scipy's t interval, over prompts or over clusters of them; where few prompts hold the variance, by the score bound."""
    drawn = np.random.default_rng(1)
    means = (drawn.binomial(8, 0.6, 200) - drawn.binomial(8, 0.6, 200)) / 8
    got = quantity.paired_lower_bound(means.tolist())
    assert got.low == pytest.approx(scipy_stats.t.interval(0.95, 199, loc=means.mean(), scale=scipy_stats.sem(means))[0])
    pairs = means.reshape(100, 2).mean(axis=1)
    related = quantity.paired_lower_bound(means.tolist(), clusters=[i // 2 for i in range(200)])
    assert related.low == pytest.approx(scipy_stats.t.interval(0.95, 99, loc=pairs.mean(), scale=scipy_stats.sem(pairs))[0])
    few = quantity.paired_lower_bound([-0.5] * 10 + [0.0] * 290)
    assert few.method == "score bound" and quantity.paired_lower_bound([0.1] * 300).method == "score bound"


@pytest.mark.parametrize("lost_by_few", [False, True])
def test_repeats_at_a_temperature_confirm_and_decide(lost_by_few: bool) -> None:
    """300 prompts in 8 repeats, NTP right in 70 % of them, 300 runs. At the margin of 5 points, which all prompts lose alike or
    few wholly, at most 5 % are confirmed; without a loss 90 % are, 64 % by the score bound.
    """
    drawn, confirmed = np.random.default_rng(8), {0.05: 0, 0.0: 0}
    for loss, _ in itertools.product(confirmed, range(300)):
        right = drawn.beta(3, 1.3, 300)
        share = loss * 4.3 / 3
        kept = right * (drawn.random(300) >= share) if lost_by_few else right * (1 - share)
        means = (drawn.binomial(8, kept) - drawn.binomial(8, right)) / 8
        confirmed[loss] += (quantity.paired_lower_bound(means.tolist()).low or 0.0) > -0.05
    assert confirmed[0.05] <= 15 and confirmed[0.0] >= 270
