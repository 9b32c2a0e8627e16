"""Expected decode time of a batch, SBD and NTP, with the context growing as it is written.

Every pass of the batch is priced at its own width and context, and weighted by how often it happens. The result is modelled:
no pass has run at this batch size. The NTP batch writes the same lengths and waits for its longest row too.

How far the passes of new batches may be from that mean has two causes, which add up: batches differ from each other, and the
record is itself a sample of prompts. A seeded draw of whole prompts gives the spread of a batch. The jackknife (leave one
prompt out) of the mean gives the record's own error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from harness.errors import UserError
from harness.frozen import frozen
from harness.models import ModelShape
from harness.roofline.batches import BatchPasses, RecordedRow, at_most, chance_of_all, passes_by_block
from harness.roofline.ceilings import Ceilings
from harness.roofline.operation import PassCounts
from harness.roofline.pricing import SummedPrice, price_counts, sum_prices
from harness.roofline.step import WallSpeedups
from harness.scenario.arms import Batching

CONFIDENCE = 0.95
DRAWS = 1000


@frozen
class BatchPrediction(WallSpeedups):
    """SBD against NTP for one batch size and batching. Tokens are means per row, passes and times means per batch."""

    passes: BatchPasses
    ntp_passes: float
    sbd_tokens: float
    ntp_tokens: float
    sbd: SummedPrice
    ntp: SummedPrice

    def _speedup(self, side: str) -> float:
        ntp_s, sbd_s = getattr(self.ntp, side), getattr(self.sbd, side)
        speedup: float = (ntp_s / self.ntp_tokens) / (sbd_s / self.sbd_tokens)
        return speedup


def predict_batch(
    shape: ModelShape,
    dtype: str,
    ceilings: Ceilings,
    passes: BatchPasses,
    record: Sequence[RecordedRow],
    *,
    block_size: int,
    prompt_tokens: int,
) -> BatchPrediction:
    """Price ``passes`` and NTP's over rows as long as those of ``record``, after ``prompt_tokens`` cached tokens per row.

    The prefill's logits give NTP its first token, so NTP decodes one token less of every row.

    Raises:
        UserError: no prompt wrote a second token, more rows than prompts, or an unknown dtype.
    """
    lengths = np.array([row.output_tokens for row in record], dtype=np.int64)
    if lengths.max() < 2:
        raise UserError("every recorded output is one token long: NTP decodes nothing, there is no speedup; record longer ones")
    rows = passes.rows
    chance = chance_of_all(len(record), rows)
    reached = [float(1 - chance[np.count_nonzero(lengths <= step)]) for step in range(1, int(lengths.max()))]

    def price(counted: Iterable[tuple[float, PassCounts]]) -> SummedPrice:
        return sum_prices((count, price_counts(shape, dtype, counts, ceilings)) for count, counts in counted)

    return BatchPrediction(
        passes=passes,
        ntp_passes=sum(reached),
        sbd_tokens=float(lengths.mean()),
        ntp_tokens=float(lengths.mean()) - 1,
        sbd=price(_sbd_passes(passes, block_size, prompt_tokens)),
        ntp=price(
            (count, PassCounts(rows=rows, query=1, context=prompt_tokens + step, logits=1, kept=rows))
            for step, count in enumerate(reached)
        ),
    )


def _sbd_passes(passes: BatchPasses, block_size: int, prompt_tokens: int) -> Iterable[tuple[float, PassCounts]]:
    """Every kind of pass with its count, at its width (2k where a row commits a block, else k) and context.

    A ragged pass that opens a block counts all rows as writing their KV, though few do: the term is small.
    """
    for step in passes.steps:
        yield (
            step.count,
            PassCounts(
                rows=passes.rows,
                query=2 * block_size if step.opening else block_size,
                context=prompt_tokens + round(step.committed_blocks * block_size),
                logits=block_size,
                kept=passes.rows * block_size if step.opening else 0,
            ),
        )


@frozen
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


def passes_interval(record: Sequence[RecordedRow], rows: int, batching: Batching, batches: int = 1) -> PassesInterval:
    """Prediction interval for the mean passes of ``batches`` batches of other prompts.

    mean ± z · √(deviation² / batches + error²). Quantiles of the drawn batches are too narrow, even for one batch.
    The longest row of the record bounds them: they held 87 % of the ragged batches of the tests' population.

    Raises:
        UserError: no row, or more rows than recorded prompts.
    """
    # A batch takes the sum over columns of its largest row: every block, or all blocks as one.
    matrix = passes_by_block(record)
    columns = matrix if batching == "lockstep" else matrix.sum(axis=1, keepdims=True)
    chance_of_all(len(record), rows)  # refuses what cannot be drawn
    drawn = _drawn(columns, rows)
    deviation = float(drawn.std(ddof=1))
    if rows == len(record):
        reason = f"{len(record)} recorded prompts make one batch of {rows}: nothing tells how another would differ"
        return PassesInterval(low=None, high=None, batch_deviation=deviation, record_error=None, reason=reason)
    means = _leaving_one_out(columns, rows)
    error = float(np.sqrt((len(record) - 1) * means.var()))
    half = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2) * float(np.hypot(deviation / np.sqrt(batches), error))
    centre = float(means.mean())
    return PassesInterval(low=centre - half, high=centre + half, batch_deviation=deviation, record_error=error)


def _drawn(columns: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    """(DRAWS,): passes of batches of ``rows`` different prompts."""
    random = np.random.default_rng(1)
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
