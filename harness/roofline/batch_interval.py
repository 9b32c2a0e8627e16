"""How far the passes of new batches may be from their predicted mean.

Two causes add up: batches differ from each other, and the record is itself a sample of prompts. A seeded draw of whole
prompts gives the spread of a batch. The jackknife (leave one prompt out) of the mean gives the record's own error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from harness.roofline.batches import RecordedRow, at_most, chance_of_all, passes_by_block
from harness.scenario.arms import Batching

CONFIDENCE = 0.95
DRAWS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PassesInterval:
    """The interval that holds the mean passes of so many new batches with probability CONFIDENCE.

    ``batch_deviation``: standard deviation between batches; ``record_error``: standard error of the predicted mean.
    ``low`` and ``high`` are None with a ``reason`` where the record is too small to estimate its own error.
    """

    low: float | None
    high: float | None
    batch_deviation: float
    record_error: float | None
    reason: str | None = None


def passes_interval(
    record: Sequence[RecordedRow], rows: int, batching: Batching, batches: int = 1, seed: int = 1
) -> PassesInterval:
    """Prediction interval for the mean passes of ``batches`` batches of other prompts.

    mean ± z · √(deviation² / batches + error²). Quantiles of the drawn batches are too narrow, even for one batch.
    The longest row of the record bounds them: they held 87 % of the ragged batches of the tests' population.

    Raises:
        UserError: no row, or more rows than recorded prompts.
    """
    columns = _columns(passes_by_block(record), batching)
    chance_of_all(len(record), rows)  # refuses what cannot be drawn
    drawn = _drawn(columns, rows, seed)
    deviation = float(drawn.std(ddof=1))
    if rows == len(record):
        reason = f"{len(record)} recorded prompts make one batch of {rows}: nothing tells how another would differ"
        return PassesInterval(low=None, high=None, batch_deviation=deviation, record_error=None, reason=reason)
    means = _leaving_one_out(columns, rows)
    error = float(np.sqrt((len(record) - 1) * means.var()))
    half = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2) * float(np.hypot(deviation / np.sqrt(batches), error))
    centre = float(means.mean())
    return PassesInterval(low=centre - half, high=centre + half, batch_deviation=deviation, record_error=error)


def _columns(matrix: NDArray[np.int64], batching: Batching) -> NDArray[np.int64]:
    """(N, columns) such that a batch takes the sum over columns of its largest row: every block, or all blocks as one."""
    return matrix if batching == "lockstep" else matrix.sum(axis=1, keepdims=True)


def _drawn(columns: NDArray[np.int64], rows: int, seed: int) -> NDArray[np.int64]:
    """(DRAWS,): passes of batches of ``rows`` different prompts."""
    random = np.random.default_rng(seed)
    batches = [random.choice(len(columns), rows, replace=False) for _ in range(DRAWS)]
    return np.array([columns[batch].max(axis=0).sum() for batch in batches])


def _leaving_one_out(columns: NDArray[np.int64], rows: int) -> NDArray[np.float64]:
    """(N,): mean passes of a batch with each prompt in turn left out."""
    # Leaving out a prompt that is at most v lowers the count by one.
    chance = chance_of_all(len(columns) - 1, rows)
    means = np.zeros(len(columns))
    for values in columns.T:
        counts = at_most(values)
        # [x]: a left-out value x counts among those at most v for v ≥ x, and not for v < x.
        kept = np.concatenate([[0.0], np.cumsum(1 - chance[np.minimum(counts, len(columns) - 1)])])
        reduced = np.concatenate([np.cumsum((1 - chance[counts - 1])[::-1])[::-1], [0.0]])
        means += (kept + reduced)[values]
    return means
