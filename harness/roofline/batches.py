"""Forward passes that a batch takes: from what each recorded prompt took alone, or from an assumed distribution.

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
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, exp, log, log1p
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.errors import UserError
from harness.frozen import frozen
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
    found: NDArray[np.int64] = np.cumsum(np.bincount(values))[:-1]
    return found


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
