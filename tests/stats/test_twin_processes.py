"""Two runs whose processes have prompts of their own: a process is compared with the one that has the same prompts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from harness.stats.crossed import Grouped
from harness.stats.two_runs import Observations, ratio_of_runs

Sides = tuple[Observations, Observations]


def runs(rng: np.random.Generator, processes: int, prompts: int, change: float) -> Sides:
    """Prompts differ by a factor of e^0.5, processes by luck of 10 %, decodes by noise of 2 %."""
    own = rng.normal(0, 0.5, (processes, prompts))

    def side(shift: float) -> Observations:
        logs = own + shift + rng.normal(0, 0.1, (processes, 1)) + rng.normal(0, 0.02, own.shape)
        places = [(j, i) for j in range(processes) for i in range(prompts)]
        return Observations(
            values=np.exp(logs).ravel().tolist(), prompts=[str(place) for place in places], processes=[j for j, _ in places]
        )

    return side(0.0), side(change)


def test_it_is_a_t_test_of_the_means_of_processes() -> None:
    """By scipy, from the log ratios of the twins."""
    base, new = runs(np.random.default_rng(1), 5, 4, 0.1)
    found = ratio_of_runs(base, new)
    means = (np.log(new.values) - np.log(base.values)).reshape(5, 4).mean(axis=1)
    expected = stats.ttest_1samp(means, 0)
    low, high = np.exp(expected.confidence_interval(0.95))
    assert found.ratio.value == pytest.approx(math.exp(means.mean())) and found.p == pytest.approx(expected.pvalue)
    assert (found.ratio.low, found.ratio.high) == (pytest.approx(low), pytest.approx(high))
    assert (found.ratio.n, found.ratio.processes) == (20, 5)


def test_its_interval_holds_the_change_as_often_as_it_says_whatever_the_prompts() -> None:
    """600 pairs of runs; prompts that differ much more than the change cost no width, because each has its twin."""
    rng, covered, halves = np.random.default_rng(2), 0, []
    for _ in range(600):
        ratio = ratio_of_runs(*runs(rng, 6, 8, 0.05)).ratio
        covered += ratio.low <= math.exp(0.05) <= ratio.high
        halves.append(math.log(ratio.high / ratio.low) / 2)
    assert 0.92 <= covered / 600 <= 0.98
    assert np.median(halves) < 2.57 * math.sqrt(2 * 0.1**2 / 6) * 1.1


def test_clusters_that_lie_in_several_processes_do_not_matter_to_twins() -> None:
    """The figure is the same as without them."""
    base, new = runs(np.random.default_rng(3), 4, 3, 0.1)
    labels = [Grouped("task", i % 2, prompt) for i, prompt in enumerate(base.prompts)]
    plain = [Grouped("task", prompt, prompt) for prompt in base.prompts]
    found, expected = (
        ratio_of_runs(*(Observations(values=one.values, prompts=named, processes=one.processes) for one in (base, new)))
        for named in (labels, plain)
    )
    assert found == expected and found.ratio.low is not None


def test_two_processes_are_spoken_of_alone() -> None:
    """No verdict on the code, an interval of prompts within them."""
    found = ratio_of_runs(*runs(np.random.default_rng(4), 2, 6, 0.1))
    assert found.p is None and found.ratio.these_processes_only and found.ratio.low is not None
