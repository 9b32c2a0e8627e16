"""Forward passes that a batch takes, and their price: from what each recorded prompt took alone, or an assumed distribution.

In lockstep a block takes as many passes as the row that needs most. Ragged, the whole batch takes as many passes as its
largest row.

Recorded: means are exact, over all batches of n different prompts of a record, each equally likely. A maximum has the mean
Σ_t 1 - C(c_t, n) / C(N, n), where c_t of the N prompts lie below t. This is the U-statistic (Hoeffding, Ann. Math. Stat.
19 (1948) 293) of the maximum of n prompts, unbiased for prompts that were not recorded. A draw with replacement could hold a
prompt twice, and its mean is too low. A prompt is drawn with all its blocks, and one that ended earlier counts as 0 in the
blocks it does not have. So lengths and the correlation between blocks are kept.

Assumed, where only a mean is known (such as Table 1's): every block takes 1 + Binomial(k-1, (mean-1)/(k-1)) passes. Blocks
are independent of each other and between rows, and all rows write equally many blocks. The largest of n rows lies below t
with the n-th power of one row's probability. harness.decoding.acceptance draws from the same distribution.

A batch's price is modelled: no pass has run at this size. How far the passes of new batches may be from the mean has two
causes, which add up: batches differ from each other, and the record is itself a sample of prompts. A seeded draw of whole
prompts gives the spread of a batch. The jackknife (leave one prompt out) of the mean gives the record's own error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import comb, exp, log, log1p
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.errors import UserError
from harness.frozen import frozen
from harness.models import ModelShape
from harness.roofline.ceilings import Ceilings
from harness.roofline.operation import PassCounts
from harness.roofline.pricing import SummedPrice, price_counts, sum_prices
from harness.roofline.step import WallSpeedups
from harness.scenario.arms import Batching


@frozen
class RecordedRow:
    """One prompt: the passes of each of its blocks, the last one included, and the tokens it wrote."""

    passes: tuple[int, ...]
    output_tokens: int


@frozen
class BatchStep:
    """Passes alike in width and context, ``count`` of them in a batch on average.

    ``opening``: some row commits its last block in the pass, so every row's tensor is 2k wide instead of k.
    ``committed_blocks``: blocks in the cache before the pass, in the row that has most; a mean where batches differ.
    """

    count: float
    opening: bool
    committed_blocks: float


@frozen
class BatchPasses:
    """Mean passes of a batch.

    ``row_passes`` is the mean over rows of the passes in which the row itself had something to decide.
    """

    rows: int
    batching: Batching
    steps: tuple[BatchStep, ...]
    row_passes: float

    @property
    def passes(self) -> float:
        """Forward passes after prefill."""
        return sum(step.count for step in self.steps)

    @property
    def opening_passes(self) -> float:
        """Passes that are 2k wide."""
        return sum(step.count for step in self.steps if step.opening)

    @property
    def waiting_share(self) -> float:
        """Share of all row-passes in which the row had nothing to decide."""
        return 1 - self.row_passes / self.passes

    def query_tokens_per_pass(self, block_size: int) -> float:
        """Mean query tokens of a row's tensor per pass."""
        return block_size * (1 + self.opening_passes / self.passes)


def recorded_batch(record: Sequence[RecordedRow], rows: int, batching: Batching) -> BatchPasses:
    """Mean passes of a batch of ``rows`` different prompts like those of ``record``.

    Raises:
        UserError: no row, or more rows than recorded prompts.
    """
    matrix, chance = passes_by_block(record), chance_of_all(len(record), rows)
    steps = _lockstep(matrix, chance) if batching == "lockstep" else _ragged(matrix, chance)
    return BatchPasses(rows=rows, batching=batching, steps=tuple(steps), row_passes=float(matrix.sum(axis=1).mean()))


def passes_by_block(record: Sequence[RecordedRow]) -> NDArray[np.int64]:
    """(N, blocks): the passes of each prompt by block, 0 after its last one."""
    blocks = max((len(row.passes) for row in record), default=0)
    return np.array([[*row.passes, *[0] * (blocks - len(row.passes))] for row in record], dtype=np.int64)


def chance_of_all(prompts: int, rows: int) -> NDArray[np.float64]:
    """(N + 1,): entry c is C(c, n) / C(N, n), the chance that c given prompts of N hold all n rows.

    Raises:
        UserError: n is below 1, or above N.
    """
    if not 1 <= rows <= prompts:
        raise UserError(
            f"a batch of {rows} from {prompts} recorded prompts: the largest of more rows than were recorded cannot be known; "
            f"ask for 1 to {prompts} rows, or record more prompts"
        )
    drawn = np.arange(rows)
    product: NDArray[np.float64] = np.prod(np.maximum(np.arange(prompts + 1)[:, None] - drawn, 0) / (prompts - drawn), axis=1)
    return product


def mean_maximum(values: NDArray[np.int64], chance: NDArray[np.float64]) -> float:
    """Mean of the largest of n of the N ``values`` (counts from 0 on), every subset equally likely."""
    return float((1 - chance[at_most(values)]).sum())


def at_most(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """(largest,): how many values are at most 0, 1, …, largest - 1."""
    counts: NDArray[np.int64] = np.cumsum(np.bincount(values))[:-1]
    return counts


def _lockstep(matrix: NDArray[np.int64], chance: NDArray[np.float64]) -> list[BatchStep]:
    """Block by block; every row commits its block when the next one opens, also one that has ended."""
    steps = []
    for block, passes in enumerate(matrix.T):
        opened = float(1 - chance[np.count_nonzero(passes == 0)])
        later = mean_maximum(passes, chance)
        if block:
            steps.append(BatchStep(count=opened, opening=True, committed_blocks=block - 1))
            later -= opened
        steps.append(BatchStep(count=later, opening=False, committed_blocks=block))
    return steps


def _ragged(matrix: NDArray[np.int64], chance: NDArray[np.float64]) -> list[BatchStep]:
    """Pass by pass; a row commits a block in the pass after the block's last one, unless it has ended."""
    ends = np.cumsum(matrix, axis=1)
    totals, never = ends[:, -1], -1
    opens = np.where(matrix[:, 1:] > 0, ends[:, :-1], never)
    committed = np.zeros(len(matrix), dtype=np.int64)
    steps = []
    for index in range(int(totals.max())):
        ended = totals <= index
        happens = float(1 - chance[np.count_nonzero(ended)])
        opening = (opens == index).any(axis=1)
        wide = float(1 - chance[np.count_nonzero(~opening)])
        context = _largest_given(committed, ended, happens, chance)
        steps += [
            BatchStep(count=wide, opening=True, committed_blocks=context),
            BatchStep(count=happens - wide, opening=False, committed_blocks=context),
        ]
        committed += opening
    return [step for step in steps if step.count > 0]


def _largest_given(values: NDArray[np.int64], ended: NDArray[np.bool_], happens: float, chance: NDArray[np.float64]) -> float:
    """Mean of the largest value in a batch, given that not all its rows have ended; by inclusion and exclusion.

    The unconditioned mean is too small in the late passes, which only batches with long rows reach.
    """
    below = at_most(values)
    below_and_ended = np.cumsum(np.bincount(values[ended], minlength=len(below)))[: len(below)]
    return float((happens - chance[below] + chance[below_and_ended]).sum() / happens)


def slowest_row_passes(block_size: int, mean_passes: float, rows: Any, blocks: int = 1) -> Any:
    """Mean passes until the slowest of ``rows`` rows has written ``blocks`` blocks, none of them waiting in between.

    ``rows`` is a number or a numpy array of them, and so is the result. The largest of ``rows`` draws of
    blocks + Binomial(blocks (k-1), (mean-1)/(k-1)): E[max] = sum over n of 1 - F(n)^rows.
    """
    tosses, chance = blocks * (block_size - 1), (mean_passes - 1) / (block_size - 1) if block_size > 1 else 0.0
    below = beyond = 0.0
    for heads in range(tosses):
        below += _binomial(heads, tosses, chance)
        beyond += 1 - min(1.0, below) ** rows
    return blocks + beyond


MOST_TOSSES = 1000
"""Above it a binomial coefficient is too large for a float."""


def _binomial(heads: int, tosses: int, chance: float) -> float:
    """Probability of so many heads; through logarithms where the coefficient is too large."""
    if tosses <= MOST_TOSSES or not 0 < chance < 1:
        return (comb(tosses, heads) if chance < 1 else 1) * chance**heads * (1 - chance) ** (tosses - heads)
    return exp(log(comb(tosses, heads)) + heads * log(chance) + (tosses - heads) * log1p(-chance))


CONFIDENCE = 0.95
DRAWS = 1000


@frozen
class PassesInterval:
    """The interval that holds the mean passes of so many new batches with probability CONFIDENCE.

    ``record_error``: standard error of the predicted mean.
    ``low`` and ``high`` are None with a ``reason`` where the record is too small to estimate its own error.
    """

    low: float | None
    high: float | None
    record_error: float | None
    reason: str | None = None


@frozen
class BatchPrediction(WallSpeedups):
    """SBD against NTP for one batch size and batching. Tokens are means per row, passes and times means per batch."""

    passes: BatchPasses
    interval: PassesInterval
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

    Each pass is priced at its own width and context, as often as it happens. The prefill's logits give NTP its first token, so
    NTP decodes one token less of every row. Its batch writes the same lengths and waits for its longest row too.

    Raises:
        UserError: no prompt wrote a second token, more rows than prompts, or an unknown dtype.
    """
    lengths = np.array([row.output_tokens for row in record], dtype=np.int64)
    if lengths.max() < 2:
        raise UserError("every recorded output is one token long: NTP decodes nothing, there is no speedup; record longer ones")
    rows, chance = passes.rows, chance_of_all(len(record), passes.rows)
    reached = [float(1 - chance[np.count_nonzero(lengths <= step)]) for step in range(1, int(lengths.max()))]

    def price(counted: Iterable[tuple[float, PassCounts]]) -> SummedPrice:
        return sum_prices((count, price_counts(shape, dtype, counts, ceilings)) for count, counts in counted)

    return BatchPrediction(
        passes=passes,
        interval=passes_interval(record, rows, passes.batching),
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
        return PassesInterval(low=None, high=None, record_error=None, reason=reason)
    means = _leaving_one_out(columns, rows)
    error = float(np.sqrt((len(record) - 1) * means.var()))
    half = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2) * float(np.hypot(deviation / np.sqrt(batches), error))
    centre = float(means.mean())
    return PassesInterval(low=centre - half, high=centre + half, record_error=error)


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
