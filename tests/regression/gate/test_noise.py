"""The noise floor: a percentile where there are enough repeats, a careful bound where there are not, never a guess."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from scipy import stats as scipy_stats

from harness.errors import RecordError
from harness.regression.gate.noise import NoiseFloor, from_json, margin, noise_floor
from harness.regression.metrics import MARGIN

FLOOR = NoiseFloor(metric="decode_s", ratio=0.03, repeats=20, pairs=10, method="m")


def test_many_repeats_give_the_observed_percentile() -> None:
    """Of 1, 2, ... 200 thousandths with either sign the 99th percentile of the size is the 198th."""
    estimates = [(-1) ** i * i / 1000 for i in range(1, 201)]
    assert noise_floor("t", estimates, 10).ratio == pytest.approx(math.expm1(0.198))


def test_twenty_repeats_give_the_larger_of_the_largest_and_the_prediction_bound() -> None:
    """By scipy's t; an outlier beyond that bound is the floor itself; a common bias counts in full."""
    estimates = np.random.default_rng(1).normal(0, 0.004, 20)
    bound = abs(estimates.mean()) + scipy_stats.t.ppf(0.995, 19) * estimates.std(ddof=1) * math.sqrt(1 + 1 / 20)
    floor = noise_floor("t", estimates.tolist(), 10)
    assert floor.ratio == pytest.approx(math.expm1(bound)) and floor.reason is None and floor.repeats == 20
    assert noise_floor("t", [0.0] * 29 + [-1.0], 10).ratio == pytest.approx(math.expm1(1.0))
    biased = noise_floor("t", [0.05] * 20, 10)
    assert biased.ratio == pytest.approx(math.expm1(0.05))


@pytest.mark.parametrize(
    ("estimates", "words"),
    [
        ([], "0 A/A repeats show no spread"),
        ([0.01], "1 A/A repeats"),
        ([0.01, math.nan], "no finite estimate in repeat 2 of 2"),
    ],
)
def test_what_is_not_known_is_none_with_its_reason(estimates: list[float], words: str) -> None:
    """And the margin falls back to 2 %, saying so."""
    floor = noise_floor("t", estimates, 10)
    assert floor.ratio is None and floor.reason is not None and words in floor.reason
    ratio, source = margin(floor, 10)
    assert ratio == MARGIN and words in source


def test_few_repeats_say_so() -> None:
    """Five are a bound, not a measurement; the reason travels into the margin's source."""
    floor = noise_floor("t", [0.001, -0.002, 0.003, 0.0, -0.001], 10)
    assert floor.ratio is not None and floor.reason is not None and "5 A/A repeats, 20 are wanted" in floor.reason
    assert "20 are wanted" in margin(floor, 10)[1]


def test_margin_is_the_larger_of_2_percent_and_the_floor() -> None:
    """0.5 % floor: 2 %; 3 %: 3 %, and √2 times its log for a gate of half the pairs, not less for one of more."""
    assert margin(replace(FLOOR, ratio=0.005), 10)[0] == MARGIN
    assert margin(FLOOR, 10)[0] == margin(FLOOR, 20)[0] == pytest.approx(0.03)
    assert margin(FLOOR, 5)[0] == pytest.approx(math.expm1(math.log(1.03) * math.sqrt(2)))
    assert "noise floor 3.000% from 20 A/A gates of 10 pairs" in margin(FLOOR, 10)[1]
    assert margin(None, 10) == (
        MARGIN,
        "the least margin; noise floor of this machine not known: not measured; sbd noise measures it",
    )


def test_json_round_trip() -> None:
    """Through text; another version or another key is refused with what to do."""
    for floor in (FLOOR, noise_floor("t", [], 10)):
        assert from_json(json.loads(json.dumps(asdict(floor), allow_nan=False))) == floor
    for broken in (asdict(FLOOR) | {"version": 99}, asdict(FLOOR) | {"odd": 1}, {"version": 1}):
        with pytest.raises(RecordError, match="run sbd noise again"):
            from_json(broken)
