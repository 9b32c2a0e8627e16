"""The roofline's price of the recorded passes beside measured time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import PositiveFloat, PositiveInt

from harness.analysis.figures.arm_metrics import Pair
from harness.analysis.tally.pass_values import DURING_RUN, EX_ANTE_SHAPE, rung_of
from harness.analysis.tally.tally import Decodes, labels_of
from harness.config_file import Name, StrictModel, read_yaml
from harness.errors import InvariantError
from harness.frozen import frozen
from harness.stats.quantity import Quantity, absent, exact
from harness.stats.ratios import geometric_mean_ratio, ratio_of_independent

FILE = Path(__file__).with_name("prediction_bands.yaml")
LEAST_ERROR = 0.05
"""Where measured passes agree to the last digit a prediction is still not exact."""


class Bands(StrictModel):
    """How far predictions of the wall speedup were off, as `python -m benchmarks.prediction_published` found.

    ``reach``  by price, the 80 % quantile of |log(predicted / measured)| in multiples of its scale (see ``reach_of``). Each run
               counts alike. A price that is absent here has no interval.
    ``runs``, ``arms``  that the quantiles are of
    """

    version: Literal[1]
    runs: PositiveInt
    arms: PositiveInt
    reach: dict[Name, PositiveFloat]


@cache
def bands() -> Bands:
    """The table that travels with the program.

    Raises:
        InvariantError: the file is damaged.
    """
    return read_yaml(FILE, InvariantError).value(Bands)


@frozen
class Prediction:
    """The roofline's price of the recorded passes, compared with measured time.

    ``decode_s`` is the predicted Σ of decode passes over the arm's timed samples. ``wall_speedup`` is a geometric mean over
    prompts, as the measured one is; its interval comes from ``Bands``. ``*_error`` are predicted ÷ measured - 1. ``ex_ante``:
    the seconds of a pass were known before the first sample of the part. Else they were calibrated during the run, with passes
    measured before, among and after the samples. The number of passes is always the recorded one.
    """

    rung: str
    decode_s: Quantity
    decode_error: Quantity
    wall_speedup: Quantity
    wall_speedup_error: Quantity
    ex_ante: bool

    @property
    def price(self) -> str:
        """Which of PRICES it is."""
        return EX_ANTE_SHAPE if self.ex_ante and self.rung == DURING_RUN else self.rung


def predictions(prices: Sequence[str], pairs: Sequence[Pair], tallies: Decodes, measured: Quantity) -> tuple[Prediction, ...]:
    """Per price: the predicted decode time of the arm and wall speedup, each with its error; ex-ante ones first.

    The decode is predicted over all timed samples of the arm, the speedup over the pairs of ``measured`` and by the same
    estimator: a geometric mean over prompts, in which a slow prompt weighs as much as a fast one.
    """
    timed = [tally for tally in tallies if tally.decode_s is not None and tally.sums.timed]
    return tuple(_prediction(price, pairs, timed, measured) for price in prices) if timed else ()


def _prediction(price: str, pairs: Sequence[Pair], timed: Decodes, measured: Quantity) -> Prediction:
    decode = exact(math.fsum(tally.sums.priced_s[price][1] for tally in timed), n=len(timed))
    speedup = _predicted_speedup(price, pairs)
    return Prediction(
        rung=rung_of(price),
        ex_ante=price != DURING_RUN,
        decode_s=decode,
        decode_error=relative_error(decode, exact(math.fsum(tally.decode_s or 0.0 for tally in timed))),
        wall_speedup=speedup,
        wall_speedup_error=relative_error(speedup, measured),
    )


def _predicted_speedup(price: str, pairs: Sequence[Pair]) -> Quantity:
    usable = [pair for pair in pairs if all(price in tally.sums.priced_s for tally in pair)]
    if not usable:
        return absent("no decode of NTP to compare with")
    means = [_mean_s_per_token([pair[side] for pair in usable], price) for side in (0, 1)]
    if absent_mean := next((mean for side in means for mean in side if mean.value is None), None):
        return absent_mean
    ntp, arm = ([mean.value or 0.0 for mean in side] for side in means)
    table, speedup = bands(), ntp[1] / arm[1]
    if price not in table.reach:
        return exact(speedup, n=len(usable))
    far = math.exp(table.reach[price] * reach_of(ntp, arm))
    method = f"80 % interval, from the errors of {table.arms} arms in {table.runs} published runs"
    return Quantity(value=speedup, low=speedup / far, high=speedup * far, n=len(usable), method=method)


def reach_of(ntp: Sequence[float], arm: Sequence[float]) -> float:
    """Scale of a prediction's error: half the logarithmic width that the spread of the measured passes gives the ratio of the
    two (low, expected, high), and LEAST_ERROR beside it.
    """
    low, _, high = ratio_of_independent(ntp, arm)
    return math.hypot(LEAST_ERROR, math.log(high / low) / 2)


def _mean_s_per_token(tallies: Decodes, rung: str) -> list[Quantity]:
    """(low, expected, high): the geometric mean over prompts and processes of the priced decode seconds per decode token."""
    tokens = [tally.decode_tokens for tally in tallies]
    ends = zip(*(tally.sums.priced_s[rung] for tally in tallies), strict=True)
    return [geometric_mean_ratio(list(zip(map(float, end), tokens, strict=True)), *labels_of(tallies)) for end in ends]


def relative_error(predicted: Quantity, measured: Quantity) -> Quantity:
    """Predicted ÷ measured - 1."""
    if predicted.value is None or not measured.value:
        return absent(predicted.reason or measured.reason or "nothing measured to compare with")
    return exact(predicted.value / measured.value - 1, n=measured.n)
