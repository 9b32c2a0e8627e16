"""Planned numbers of prompts: by brute force with scipy's distributions, and by running what was planned."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from harness.stats.quantity import Quantity, Spread, absent, paired_lower_bound
from harness.stats.ratios import geometric_mean_ratio
from harness.stats.sample_size import cautious, cautious_share, pairs_to_decide, prompts_for_width, prompts_to_decide

PAIRS = [(3.0, 1.0), (2.5, 1.0), (8.0, 2.0), (2.7, 0.9)]


def measured(value: float, prompt: float, process: float | None = None, processes: int | None = 1) -> Quantity:
    """A ratio with this spread; the interval itself is not looked at."""
    return Quantity(value=value, low=1.0, high=9.0, n=10, processes=processes, spread=Spread(prompt=prompt, process=process))


def power(n: int, distance: float, spread: float) -> float:
    """Of the two-sided t test with n prompts, by scipy's noncentral t; the far tail is left out."""
    return float(scipy_stats.nct.sf(scipy_stats.t.ppf(0.975, n - 1), n - 1, distance * math.sqrt(n) / spread))


@pytest.mark.parametrize("width", [0.01, 0.05, 0.3])
def test_prompts_for_a_width_are_the_fewest(width: float) -> None:
    """By brute force over n with scipy's t: one prompt fewer would not be enough."""
    ratio = geometric_mean_ratio(PAIRS)
    spread = np.log([a / b for a, b in PAIRS]).std(ddof=1)
    enough = next(n for n in range(2, 10**6) if scipy_stats.t.ppf(0.975, n - 1) * spread / math.sqrt(n) <= math.log1p(width))
    assert prompts_for_width(ratio, width) == enough
    assert prompts_for_width(absent("nothing"), width) is None


def test_no_number_of_prompts_narrows_what_processes_add() -> None:
    """3 processes that differ by 10 %: ±5 % is out of reach, ±50 % is not."""
    ratio = measured(3.0, 0.25, 0.1, 3)
    assert prompts_for_width(ratio, 0.05) is None and prompts_for_width(ratio, 0.5) is not None


def test_few_processes_cost_degrees_of_freedom() -> None:
    """The width by brute force, with the variance of both parts and Satterthwaite's degrees of freedom: 4 processes, 5 %."""

    def reach(n: int) -> float:
        of_prompts, of_processes = 0.25**2 / n, 0.05**2 / 4
        degrees = (of_prompts + of_processes) ** 2 / (of_prompts**2 / (n - 1) + of_processes**2 / 3)
        return float(scipy_stats.t.ppf(0.975, degrees)) * math.sqrt(of_prompts + of_processes)

    wanted = next(n for n in range(2, 10**4) if reach(n) <= math.log(1.1))
    assert prompts_for_width(measured(3.0, 0.25, 0.05, 4), 0.1) == wanted


@pytest.mark.parametrize(("value", "spread"), [(3.3, 0.25), (2.0, 0.4), (3.02, 0.05), (30.0, 0.1)])
def test_prompts_to_decide_are_the_fewest_with_the_power(value: float, spread: float) -> None:
    """By brute force over n: the power is reached, and not with one prompt fewer."""
    found, distance = prompts_to_decide(measured(value, spread), 3.0), abs(math.log(value / 3))
    assert found.prompts == next(n for n in range(2, 10**4) if power(n, distance, spread) >= 0.9)
    assert found.processes == 1 and found.reason is None


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (measured(3.0, 0.25), "equals the bound"),
        (Quantity(value=3.2, n=1, reason="one prompt only: no interval"), "one prompt only"),
        (absent("not timed"), "not timed"),
        (measured(3.0001, 0.5), "1,000,000 prompts are not enough"),
    ],
)
def test_what_cannot_be_planned_says_why(ratio: Quantity, words: str) -> None:
    """None with the reason."""
    found = prompts_to_decide(ratio, 3.0)
    assert found.prompts is None and words in found.reason


@pytest.mark.parametrize(("bound", "power_"), [(0.0, 0.9), (-1.0, 0.9), (math.nan, 0.9), (3.0, 1.0), (3.0, 0.2)])
def test_senseless_questions_are_refused(bound: float, power_: float) -> None:
    """A bound that no ratio can have, a power that nothing reaches."""
    with pytest.raises(ValueError, match="positive bound"):
        prompts_to_decide(measured(3.3, 0.25), bound, power_)


def test_where_processes_differ_more_of_them_are_asked_for() -> None:
    """3.3x with 3 processes that differ by 10 %: no prompts would do. What is asked for instead does, simulated."""
    ratio = measured(3.3, 0.1, 0.1, 3)
    found = prompts_to_decide(ratio, 3.0)
    assert found.processes > 3
    assert found.reason == "the processes differ: with 3 of them no number of prompts would do"
    drawn, decided, prompts, processes = np.random.default_rng(4), 0, found.prompts, found.processes
    where = [(i, j) for i in range(prompts) for j in range(processes)]
    for _ in range(200):
        logs = math.log(3.3) + drawn.normal(0, 0.1, (prompts, 1)) + drawn.normal(0, 0.1, (1, processes))
        pairs = [(math.exp(x), 1.0) for x in logs.ravel()]
        got = geometric_mean_ratio(pairs, [i for i, _ in where], [j for _, j in where])
        decided += got.low is not None and got.low > 3
    assert decided >= 0.84 * 200


def test_processes_that_agree_are_not_multiplied() -> None:
    """A process term that costs nothing: the prompts of the plain plan, in the processes there are."""
    plain = prompts_to_decide(measured(3.3, 0.25, None, 1), 3.0).prompts
    for process in (0.0, 0.002):
        found = prompts_to_decide(measured(3.3, 0.25, process, 5), 3.0)
        assert found.processes == 5 and found.reason is None and 0 <= found.prompts - plain <= 1


@pytest.mark.parametrize(
    ("difference", "differing", "limit"), [(0.0, 0.02, -0.01), (-0.005, 0.03, -0.01), (0.0, 0.1, -0.05), (-0.02, 0.02, -0.05)]
)
def test_planned_pairs_show_the_difference_with_the_power(difference: float, differing: float, limit: float) -> None:
    """Simulated: the bound of as many pairs is above the limit in 90 % of 400 runs, give or take 4; with half as many it is
    not."""
    drawn, pairs = np.random.default_rng(3), pairs_to_decide(difference, differing, limit)
    shares = [(differing + difference) / 2, (differing - difference) / 2, 1 - differing]

    def shown(number: int) -> int:
        return sum(
            (paired_lower_bound([1.0] * gains + [-1.0] * losses + [0.0] * rest).low or -1) > limit
            for gains, losses, rest in drawn.multinomial(number, shares, 400).tolist()
        )

    assert 344 <= shown(pairs) <= 392 and shown(pairs // 2) < 300


@pytest.mark.parametrize(("seen", "pairs"), [(0, 50), (3, 50), (50, 50)])
def test_a_cautious_share_is_the_upper_bound(seen: int, pairs: int) -> None:
    """As scipy's exact one-sided test bounds it at 80 %."""
    wanted = scipy_stats.binomtest(seen, pairs, alternative="less").proportion_ci(0.8, method="exact").high
    assert cautious_share(seen / pairs, pairs) == pytest.approx(wanted)


def test_few_processes_hide_as_much_as_few_prompts() -> None:
    """3 processes, standard deviation 1: with probability 80 % not below what 1 / √(χ²(20 %, 2) ÷ 2) says."""
    found = cautious(Spread(prompt=1.0, process=1.0), 8, 3)
    assert found.process == pytest.approx(math.sqrt(2 / scipy_stats.chi2.ppf(0.2, 2)))
    assert found.prompt == pytest.approx(math.sqrt(7 / scipy_stats.chi2.ppf(0.2, 7)))
    assert cautious(Spread(prompt=1.0), 8, 1).process is None
