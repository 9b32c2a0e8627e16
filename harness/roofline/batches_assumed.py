"""Forward passes of a batch where only a mean is known, such as Table 1's: the distribution of a block is assumed.

Assumed are blocks of one kind, independent of each other and between rows, with 1 + Binomial(k-1, (mean-1)/(k-1)) passes,
and rows that all write equally many blocks; harness.decoding.acceptance draws from the same distribution. What rests on it
is labelled so. Rows are independent draws, so the largest of n lies below t with the n-th power of a row's probability.
"""

from __future__ import annotations

from math import comb

from harness.errors import UserError
from harness.roofline.batches import BatchPasses, Step
from harness.scenario.arms import Batching

ASSUMPTION = "passes per block of a row: 1 + binomial with the given mean, blocks and rows independent, rows of equal length"


def assumed_batch(block_size: int, mean_passes: float, rows: int, blocks: int, batching: Batching) -> BatchPasses:
    """Mean passes of a batch whose rows write ``blocks`` blocks each, at ``mean_passes`` per block and row.

    Raises:
        UserError: no row or no block, or a mean outside 1..k.
    """
    if rows < 1 or blocks < 1 or not 1 <= mean_passes <= block_size:
        raise UserError(
            f"given were block size {block_size}, {mean_passes:g} passes per block, {rows} rows, {blocks} blocks; sizes must "
            "be at least 1 and the mean must lie between 1 and the block size"
        )
    steps = _lockstep if batching == "lockstep" else _ragged
    return BatchPasses(
        rows=rows, batching=batching, steps=steps(block_size, mean_passes, rows, blocks), row_passes=blocks * mean_passes,
        assumed=ASSUMPTION,
    )  # fmt: skip


def slowest_row_passes(block_size: int, mean_passes: float, rows: int) -> float:
    """Mean passes of a block in lockstep: the largest of ``rows`` draws of 1 + Binomial(k-1, (mean-1)/(k-1)).

    E[max] = sum over n of 1 - F(n)^rows.
    """
    mass = _binomial(block_size - 1, _chance(block_size, mean_passes))
    return 1 + _mean_maximum(mass, rows)


def _lockstep(block_size: int, mean_passes: float, rows: int, blocks: int) -> tuple[Step, ...]:
    slowest = slowest_row_passes(block_size, mean_passes, rows)
    steps = [Step(count=slowest, opening=False, committed_blocks=0)]
    for block in range(1, blocks):
        steps.append(Step(count=1, opening=True, committed_blocks=block - 1))
        steps.append(Step(count=slowest - 1, opening=False, committed_blocks=block))
    return tuple(step for step in steps if step.count > 0)


def _ragged(block_size: int, mean_passes: float, rows: int, blocks: int) -> tuple[Step, ...]:
    """Block j of a row opens behind j + Binomial(j(k-1), p) passes; the row takes blocks + Binomial(blocks(k-1), p)."""
    chance = _chance(block_size, mean_passes)
    # ends[j][t]: probability that the first j blocks take t passes.
    ends = [[0.0] * j + _binomial(j * (block_size - 1), chance) for j in range(blocks + 1)]
    committed = [0.0] * blocks  # [j]: probability that a row has committed more than j blocks before this pass
    steps = []
    ended = 0.0
    for index in range(blocks * block_size):
        ended += ends[blocks][index]
        happens = 1 - min(1.0, ended) ** rows
        opens = [ends[j][index] if index < len(ends[j]) else 0.0 for j in range(1, blocks)]
        wide = min(happens, 1 - (1 - sum(opens)) ** rows)
        context = sum(1 - (1 - min(1.0, share)) ** rows for share in committed)
        steps.append(Step(count=wide, opening=True, committed_blocks=context))
        steps.append(Step(count=happens - wide, opening=False, committed_blocks=context))
        committed = [share + opened for share, opened in zip(committed, [*opens, 0.0], strict=True)]
    return tuple(step for step in steps if step.count > 0)


def _chance(block_size: int, mean_passes: float) -> float:
    return (mean_passes - 1) / (block_size - 1) if block_size > 1 else 0.0


def _binomial(tosses: int, chance: float) -> list[float]:
    """Probability of 0..tosses heads."""
    return [comb(tosses, n) * chance**n * (1 - chance) ** (tosses - n) for n in range(tosses + 1)]


def _mean_maximum(mass: list[float], rows: int) -> float:
    """Mean of the largest of ``rows`` draws of 0, 1, … with this probability mass."""
    total, below = 0.0, 0.0
    for share in mass[:-1]:
        below += share
        total += 1 - min(1.0, below) ** rows
    return total
