"""The order of the pairs of a gate: balanced, without a rhythm, and what it takes out of the estimate."""

from __future__ import annotations

import math
from collections import Counter
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.analysis.judge.judgement import Judgement
from harness.regression.gate.procedure import GatePlan, PairOrder, PairStage, judge_in_pairs, place_terms
from harness.regression.metrics import TimedMetric
from harness.stats.one_sided import freed_mean

seeds = st.integers(0, 2**32 - 1)
stages: st.SearchStrategy[PairStage] = st.sampled_from(("pair", "rerun"))
METRIC = TimedMetric(name="decode_s_per_token", part="p", batch_size=1, arm="ntp", label="NTP")


def sides(seed: int, stage: PairStage, pairs: int) -> list[str]:
    """The processes in the order they run: B for BASE, N for NEW."""
    return [side for sign in PairOrder(seed).signs(stage, pairs) for side in ("BN" if sign > 0 else "NB")]


@given(seeds, stages, st.integers(1, 5))
def test_each_side_stands_once_in_each_place_of_a_block(seed: int, stage: PairStage, blocks: int) -> None:
    """Of the eight processes of every block; so by place in the pair too, and at every look at whole blocks."""
    run = sides(seed, stage, 4 * blocks)
    for start in range(0, len(run), 8):
        places = Counter((side, place % 4) for place, side in enumerate(run[start : start + 8]))
        assert places == {(side, place): 1 for side in "BN" for place in range(4)}


def test_no_period_holds() -> None:
    """For any period up to 16 the side of a process is that of the one a period before in about half of the cases.

    ABBA has 100 % at a period of 4. Periods within a block of eight processes lean one way, for its second half is the first
    turned round; longer ones do not.
    """
    agree = {period: [0, 0] for period in range(3, 17)}
    for seed in range(300):
        run = sides(seed, "pair", 40)
        for period, tally in agree.items():
            tally[0] += sum(a == b for a, b in zip(run, run[period:], strict=False))
            tally[1] += len(run) - period
    shares = {period: same / all_ for period, (same, all_) in agree.items()}
    assert all(0.2 < share < 2 / 3 for share in shares.values()), shares
    assert all(0.45 < shares[period] < 0.55 for period in (8, 11, 12, 13, 14, 15, 16)), shares


def test_every_pair_is_a_fair_coin_and_blocks_are_independent() -> None:
    """So no fixed pattern of a machine, whatever it is, leans to a side in the mean over gates."""
    signs = np.array([PairOrder(seed).signs("pair", 12) for seed in range(4_000)])
    assert np.abs(signs.mean(axis=0)).max() < 0.06
    between = np.corrcoef(signs[:, [0, 1, 4, 5, 8, 9]].T) - np.eye(6)
    assert np.abs(between).max() < 0.06
    assert PairOrder(3).signs("pair", 12) != PairOrder(3).signs("rerun", 12)
    assert PairOrder(3).signs("pair", 8) == PairOrder(3).signs("pair", 12)[:8]


@given(seeds, st.floats(-0.1, 0.1), st.lists(st.floats(-0.2, 0.2), min_size=4, max_size=4), st.floats(-0.02, 0.02))
def test_places_and_drift_are_taken_out_exactly(seed: int, change: float, places: list[float], step: float) -> None:
    """Noise-free processes, each slower by its place of four and by a steady drift: the change is what was put in."""
    order = PairOrder(seed)
    for count in (8, 12):
        machine = [places[i % 4] + step * i for i in range(2 * count)]
        signs = order.signs("pair", count)
        d = [change + sign * (machine[2 * i + 1] - machine[2 * i]) for i, sign in enumerate(signs)]
        mean = freed_mean(d, place_terms(signs))
        assert mean.mean == pytest.approx(change, abs=1e-12) and mean.standard_error is None
        assert mean.degrees == count - 3


@given(seeds, st.floats(-0.2, 0.2))
def test_a_slower_second_process_is_taken_out_of_few_pairs_too(seed: int, slower: float) -> None:
    """From four pairs on."""
    signs = PairOrder(seed).signs("pair", 4)
    assert freed_mean([0.03 + slower * sign for sign in signs], place_terms(signs)).mean == pytest.approx(0.03, abs=1e-12)


@pytest.mark.parametrize(
    ("signs", "terms"),
    [((1, -1, -1), 0), ((1, -1, -1, 1), 1), ((1,) * 12, 0), ((1, -1) * 6, 1), ((1, 1, -1, -1) * 2, 2), ((1, 1, 1, 1, -1), 1)],
)
def test_terms_that_the_order_cannot_show_are_left_out(signs: tuple[int, ...], terms: int) -> None:
    """Too few pairs; one order throughout; ABBA, where odd and even pairs have one order each."""
    assert len(place_terms(signs)) == terms


def gated(d: list[float], rerun: list[float], order: PairOrder) -> tuple[Judgement, ...]:
    """The answer of a gate of one metric."""
    left = {"pair": iter(d), "rerun": iter(rerun)}
    return judge_in_pairs([METRIC], lambda step: {METRIC.key: [*islice(left[step.stage], step.pairs)]}, GatePlan(), order)


@pytest.mark.parametrize("change", [0.0, 0.06])
def test_a_machine_slow_every_fourth_process_hides_and_fakes_nothing(change: float) -> None:
    """Of 100 gates; with the order taken as ABBA and no term for the place, A/A failed in 468 of 1,000."""
    generator, found = np.random.default_rng(4), Counter[str]()
    for seed in range(100):
        order, drawn = PairOrder(seed), []
        for stage in ("pair", "rerun"):
            slow = 0.1 * ((np.arange(24) + generator.integers(4)) % 4 == 0) + generator.normal(0, 0.01, 24)
            d = math.log1p(change) + np.array(order.signs(stage, 12)) * (slow[1::2] - slow[::2])
            drawn.append(d.tolist())
        found[gated(*drawn, order)[0].state] += 1
    assert found["missed"] == (100 if change else 0) and found["met"] >= (0 if change else 95)
