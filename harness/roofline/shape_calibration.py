"""Fits the top rung to measured passes of a model: the factor of each one on the price of the rung below.

A few shapes are measured. The roofline predicts only the change with batch, width and context. The passes come as counts
with seconds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.errors import UserError
from harness.frozen import frozen
from harness.models import ModelShape
from harness.models.deployment import Deployment
from harness.roofline.ceilings import Ceilings, PassFactors
from harness.roofline.operation import PassCounts, Points, interpolate
from harness.roofline.operations import SAMPLER_SWEEPS
from harness.roofline.pricing import ATTENTION, PassPrice, price_counts
from harness.roofline.storage import LOGIT_BYTES

MEASURED_CONTEXT, MEASURED_BLOCKS = 128, 4
"""Prompt tokens before the passes that a run measures, and blocks that it decodes there."""
SPREAD_PERCENTILES = (10, 90)
Array = NDArray[Any]
Span = tuple[float, float]
VISITS_SD, VISITS_DEGREES = 0.15, 8
"""Standard deviation of the logarithm of a pass's time from visit to visit, and its degrees of freedom: 0.144, rounded up, in
four published timed parts of 30 s to 20 minutes on a shared CPU (`python -m benchmarks.prediction_published` works it out).
"""
T_90_OF_8_DEGREES = 1.397
"""90th percentile of Student's t at VISITS_DEGREES: the standard deviation is itself an estimate."""
UNSEEN_MOVEMENT: Span = (math.exp(-T_90_OF_8_DEGREES * VISITS_SD), math.exp(T_90_OF_8_DEGREES * VISITS_SD))
"""Between these multiples the cost of a pass lies from visit to visit, 80 times in 100; used where visits are too few."""


@frozen
class MeasuredPass:
    """One timed decode pass: its forward, and everything after it until the next one.

    ``decode`` numbers its decode, ``visit`` the time at which that decode and its neighbours ran.
    """

    counts: PassCounts
    forward_s: float
    after_s: float
    decode: int = 0
    visit: int = 0


def shape_calibrated(
    base: Ceilings,
    shape: ModelShape,
    deployment: Deployment | str,
    passes: Sequence[MeasuredPass],
    machine_spread: tuple[float, float] = (1.0, 1.0),
    decodes: int = 1,
    least_spread: Span = (1.0, 1.0),
) -> Ceilings:
    """The ceilings of ``base`` corrected by ``passes``.

    ``machine_spread``: multiples of its median between which the machine's own speed moved, from a fixed piece of work beside
    every sample. It is drift; only what is left in a mean of so many decodes also counts as spread among passes.
    ``decodes``: how many decodes are averaged for comparison with a price.
    ``least_spread``: least multiples for the spread of measured decodes, because few visits agree by chance. Within it the
    uncertainty of the factors grows as the visits get fewer.

    Raises:
        UserError: there is no measured pass, or one took less than the price of its attention.
    """
    if not passes:
        raise UserError("no measured pass to start from; give at least one")
    factors = np.array([_factors(measured, price_counts(shape, deployment, measured.counts, base)) for measured in passes])
    if factors.min() <= 0:
        raise UserError(
            f"a measured pass took less than attention alone should on the {base.rung} rung, so that rung is no ground to "
            "stand on; calibrate again when the machine is quiet"
        )
    lines, visits = np.array([measured.counts.lines for measured in passes]), np.array([measured.visit for measured in passes])
    centers = {int(n): _center(factors[lines == n], visits[lines == n]) for n in np.unique(lines)}
    points = centers | _derived(base, shape, deployment, narrower(passes))
    low, high = _spread(passes, lines, factors[:, 1] / [centers[int(n)][1] for n in lines])
    at_least = min(low, least_spread[0]), max(high, least_spread[1])
    spread = _of_mean(at_least, visits, lines, machine_spread, decodes)
    per_line = shape.vocab * (base.sampler_s_per_logit or SAMPLER_SWEEPS * LOGIT_BYTES / base.bandwidth_bytes_per_s)
    corrections = _pass_factors(passes, dict(sorted(points.items())), tuple(centers), spread, per_line)
    return replace(base, rung="shape-calibrated", factors=corrections)


def narrower(passes: Sequence[MeasuredPass]) -> list[MeasuredPass]:
    """Passes of 2, 4, 8 ... tokens below the narrowest measured one of several, visit by visit; none where it has two.

    A pass of one token is another kernel or graph than one of several, so its factor says little of two tokens. Seconds are
    taken on the line through the narrowest pass of several tokens and one at least twice as wide, and are not below the
    line to the pass of one token.
    """
    visits: dict[int, dict[int, list[MeasuredPass]]] = {}
    for one in passes:
        visits.setdefault(one.visit, {}).setdefault(one.counts.lines, []).append(one)
    return [found for of_lines in visits.values() for found in _narrower(of_lines)]


def _narrower(of_lines: dict[int, list[MeasuredPass]]) -> Iterator[MeasuredPass]:
    times = {n: statistics.median(one.forward_s for one in alike) for n, alike in of_lines.items()}
    least = min((n for n in times if n > 1), default=1)
    wider = min((n for n in times if n >= 2 * least), default=None)
    if wider is None or 1 not in times or least == 1:
        return
    slope = max(0.0, (times[wider] - times[least]) / (wider - least))
    like = of_lines[least][0]
    n = 2
    while n < least:
        along, from_one = times[least] - slope * (least - n), times[1] + (times[least] - times[1]) * (n - 1) / (least - 1)
        counts = PassCounts(rows=1, query=n, context=like.counts.context, logits=n, kept=0)
        yield replace(like, counts=counts, forward_s=max(along, from_one))
        n *= 2


def _derived(
    base: Ceilings, shape: ModelShape, deployment: Deployment | str, passes: Sequence[MeasuredPass]
) -> dict[int, Array]:
    found: dict[int, list[tuple[float, float, float]]] = {}
    for one in passes:
        found.setdefault(one.counts.lines, []).append(_factors(one, price_counts(shape, deployment, one.counts, base)))
    return {n: np.median(factors, axis=0) for n, factors in found.items()}


def _pass_factors(
    passes: Sequence[MeasuredPass], centers: dict[int, Array], lines: tuple[int, ...], spread: Span, s_per_line: float
) -> PassFactors:
    """``centers``: factors of the three overlaps by matrix lines, of which ``lines`` were measured; ``s_per_line``: what a
    logit line costs where none says.
    """
    overlapped, expected, serial = (tuple((n, float(center[side])) for n, center in centers.items()) for side in range(3))
    single = [measured.after_s for measured in passes if measured.counts.logits == 1]
    after_block = _after_block(passes)
    return PassFactors(
        overlapped=overlapped,
        expected=expected,
        serial=serial,
        spread=spread,
        spread_between=_between(spread, tuple(point for point in expected if point[0] in lines)),
        measured_lines=lines,
        after_one_s=float(np.median(single)) if single else None,
        after_block_s=after_block,
        s_per_line=s_per_line,
        s_per_block_line=_slope(after_block) or s_per_line,
    )


def _factors(measured: MeasuredPass, price: PassPrice) -> tuple[float, float, float]:
    """Measured ÷ priced without attention: overlapped, as expected, serial."""
    attention = next(cost for cost in price.operations if cost.name == ATTENTION)
    own = (attention.low_s, attention.expected_s, attention.high_s)
    first, second, third = ((measured.forward_s - a) / (whole - a) for whole, a in zip(price.forward, own, strict=True))
    return first, second, third


def _center(factors: Array, visits: Array) -> Array:
    """Median over the visits of the median within each.

    A slow minute of the machine is dropped: interleaved arms share it, so it cancels in their ratio.
    """
    found: Array = np.median([np.median(factors[visits == visit], axis=0) for visit in np.unique(visits)], axis=0)
    return found


def _spread(passes: Sequence[MeasuredPass], lines: Array, relative: Array) -> Span:
    """Spread of the decodes' means, as multiples of the center: within a decode slow passes average out.

    It includes what neighbouring decodes share. That part cancels in a ratio of interleaved arms only if these are short. The
    larger a batch, the further apart in time its arms are decoded.
    """
    of_decode: dict[tuple[int, int], list[float]] = {}
    for measured, n, factor in zip(passes, lines, relative, strict=True):
        of_decode.setdefault((measured.decode, int(n)), []).append(factor)
    means = np.log([np.mean(factors) for factors in of_decode.values()])
    low, high = np.exp(np.percentile(means, SPREAD_PERCENTILES)).tolist()
    return min(low, 1.0), max(high, 1.0)


def _of_mean(spread: Span, visits: Array, lines: Array, machine_spread: Span, decodes: int) -> Span:
    """Prediction interval of the mean of so many decodes: its own error and that of the measured ones are independent.

    The measured decodes lie at a few moments of a part, the predicted ones in between. Each predicted decode adds its own
    draw of the machine's drift. Decodes of one visit share the machine's state, so they count as one.
    """
    fewest = min(len(np.unique(visits[lines == n])) for n in np.unique(lines))
    own, moved = np.log(spread) * math.sqrt(1 / fewest + 1 / decodes), np.log(machine_spread) / math.sqrt(decodes)
    low, high = np.exp(np.hypot(own, moved) * (-1, 1)).tolist()
    return low, high


def _between(spread: Span, factors: Points) -> Span:
    """``spread`` where a factor is interpolated from its neighbours: wider by the leave-one-out error of the measured factors.

    The first factor has no lower neighbour and is left out. The error is taken at the 80 % interval of a normal.
    """
    missed = [
        math.log(interpolate(factors[:place] + factors[place + 1 :], n) / factor)
        for place, (n, factor) in enumerate(factors)
        if place
    ]
    if not missed:
        return spread
    typical = math.sqrt(statistics.fmean(error**2 for error in missed))
    beyond = typical * statistics.NormalDist().inv_cdf(SPREAD_PERCENTILES[1] / 100)
    low, high = np.exp(np.hypot(np.log(spread), beyond) * (-1, 1)).tolist()
    return low, high


def _after_block(passes: Sequence[MeasuredPass]) -> Points:
    block = [p for p in passes if p.counts.logits > 1]
    lines = sorted({p.counts.logit_lines for p in block})
    return tuple((n, float(np.median([p.after_s for p in block if p.counts.logit_lines == n]))) for n in lines)


def _slope(points: Points) -> float | None:
    """Seconds a line from the smallest measured pass to the largest; None without two passes or a rising time."""
    if len(points) < 2 or points[-1][1] <= points[0][1]:
        return None
    return (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0])
