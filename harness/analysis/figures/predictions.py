"""The roofline's price of the recorded passes beside measured time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from harness.analysis.figures.arm_metrics import Pair
from harness.analysis.tally.pass_values import DURING_RUN, EX_ANTE_SHAPE, rung_of
from harness.analysis.tally.tally import Decodes, labels_of
from harness.frozen import frozen
from harness.stats.quantity import Quantity, absent, exact
from harness.stats.ratios import geometric_mean_ratio, product_of_independent, ratio_of_independent


@frozen
class Prediction:
    """The roofline's price of the recorded passes, compared with measured time. Intervals: the band overlapped..not overlapped.

    ``decode_s`` is the predicted Σ of decode passes over the arm's timed samples. ``wall_speedup`` is a geometric mean over
    prompts, as the measured one is. ``*_error`` are predicted ÷ measured - 1. ``ex_ante``: the seconds of a pass were known
    before the first sample of the part. Else they were calibrated during the run, with passes measured before, among and after
    the samples. The number of passes is always the recorded one.
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


def predictions(
    drifts: Mapping[str, tuple[float, float]], pairs: Sequence[Pair], tallies: Decodes, measured: Quantity
) -> tuple[Prediction, ...]:
    """Per price: the predicted decode time of the arm and wall speedup, each with its error; ex-ante ones first.

    The decode is predicted over all timed samples of the arm, the speedup over the pairs of ``measured`` and by the same
    estimator: a geometric mean over prompts, in which a slow prompt weighs as much as a fast one.
    The band of the speedup is the range over the three overlap assumptions, each made for both arms alike. The top rung
    measures each kind of pass by itself, so there the errors of the two arms are independent. The drift of the machine
    (``drifts``, by price) widens the decode alone: it cancels in a ratio of interleaved arms.
    """
    timed = [tally for tally in tallies if tally.decode_s is not None and tally.sums.timed]
    return tuple(_prediction(rung, drift, pairs, timed, measured) for rung, drift in drifts.items()) if timed else ()


def _prediction(rung: str, drift: tuple[float, float], pairs: Sequence[Pair], timed: Decodes, measured: Quantity) -> Prediction:
    band = np.sum([tally.sums.priced_s[rung] for tally in timed], axis=0).tolist()
    drifts = drift != (1.0, 1.0) and band[0] > 0  # every output may end with its first token: then nothing was decoded
    low, expected, high = product_of_independent(band, (drift[0], 1.0, drift[1])) if drifts else band
    decode = Quantity(value=expected, low=low, high=high, n=len(timed), method="overlap band")
    speedup = _predicted_speedup(rung, pairs)
    return Prediction(
        rung=rung_of(rung),
        ex_ante=rung != DURING_RUN,
        decode_s=decode,
        decode_error=relative_error(decode, exact(math.fsum(tally.decode_s or 0.0 for tally in timed))),
        wall_speedup=speedup,
        wall_speedup_error=relative_error(speedup, measured),
    )


def _predicted_speedup(rung: str, pairs: Sequence[Pair]) -> Quantity:
    usable = [pair for pair in pairs if all(rung in tally.sums.priced_s for tally in pair)]
    if not usable:
        return absent("no decode of NTP to compare with")
    means = [_mean_s_per_token([pair[side] for pair in usable], rung) for side in (0, 1)]
    if absent_mean := next((mean for side in means for mean in side if mean.value is None), None):
        return absent_mean
    ntp, arm = ([mean.value or 0.0 for mean in side] for side in means)
    if rung_of(rung) == "shape-calibrated":
        low, expected, high = ratio_of_independent(ntp, arm)
        return Quantity(value=expected, low=low, high=high, n=len(usable), method="overlap band and spread of measured passes")
    ratios = [one / other for one, other in zip(ntp, arm, strict=True)]
    return Quantity(value=ratios[1], low=min(ratios), high=max(ratios), n=len(usable), method="overlap band")


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
