"""Passes of a batch from those of its prompts: against every batch there can be, one by one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from harness.errors import UserError
from harness.roofline.batches import BatchPasses, RecordedRow, passes_interval, recorded_batch, slowest_row_passes

Passes = tuple[tuple[bool, int], ...]
BATCHINGS = ("lockstep", "ragged")
# Prompts of one to four blocks of one to five passes.
PROMPTS = st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), min_size=1, max_size=6)


def record_of(prompts: Sequence[Sequence[int]]) -> list[RecordedRow]:
    """Prompts by their passes per block, each of as many tokens as fill its blocks of four."""
    return [RecordedRow(passes=tuple(passes), output_tokens=4 * len(passes)) for passes in prompts]


def walk(batch: Sequence[Sequence[int]], batching: str) -> Passes:
    """The decoder's rules in miniature, row by row and pass by pass: (some row commits, blocks in the cache) of every pass."""
    block, left, cached = [-1] * len(batch), [0] * len(batch), [0] * len(batch)
    passes = []
    while True:
        waiting = [row for row in range(len(batch)) if left[row] == 0]
        more = [row for row in waiting if block[row] + 1 < len(batch[row])]
        together = len(waiting) == len(batch) and bool(more)
        opening = (range(len(batch)) if together else ()) if batching == "lockstep" else more
        commits = []
        for row in opening:
            if block[row] >= 0:
                commits.append(row)
            block[row] += 1
            left[row] = batch[row][block[row]] if block[row] < len(batch[row]) else 0
        if not any(left):
            return tuple(passes)
        passes.append((bool(commits), max(cached)))
        for row in commits:
            cached[row] += 1
        left = [max(0, one - 1) for one in left]


def summed(passes: Passes) -> np.ndarray:
    """Passes, those that open a block, and the blocks in the cache summed over the passes."""
    return np.array([len(passes), sum(wide for wide, _ in passes), sum(cached for _, cached in passes)], dtype=float)


def figures(found: BatchPasses) -> np.ndarray:
    """The same of a prediction."""
    return np.array([found.passes, found.opening_passes, sum(step.count * step.committed_blocks for step in found.steps)])


@pytest.mark.parametrize("batching", BATCHINGS)
@settings(max_examples=150)
@given(prompts=PROMPTS, data=st.data())
def test_a_batch_agrees_with_every_batch_there_can_be(batching: str, prompts: list[list[int]], data: st.DataObject) -> None:
    """Passes, wide passes and context: the mean over all sets of n different prompts, each walked through pass by pass."""
    rows = data.draw(st.integers(1, len(prompts)))
    expected = np.mean([summed(walk(batch, batching)) for batch in itertools.combinations(prompts, rows)], axis=0)
    found = recorded_batch(record_of(prompts), rows, batching)
    assert figures(found) == pytest.approx(expected)
    own = math.fsum(map(sum, prompts)) / len(prompts)
    assert found.row_passes == pytest.approx(own)
    assert found.waiting_share == pytest.approx(1 - own / expected[0])
    assert found.query_tokens_per_pass(4) == pytest.approx(4 * (expected[0] + expected[1]) / expected[0])


def test_two_prompts_by_hand() -> None:
    """Passes (1, 3) and (2, 1): lockstep 2 + 3; ragged 4, wide where the first (pass 2) and the second (pass 3) open one."""
    record = record_of([[1, 3], [2, 1]])
    lockstep, ragged = (recorded_batch(record, 2, batching) for batching in ("lockstep", "ragged"))
    assert (lockstep.passes, lockstep.opening_passes, lockstep.row_passes) == (5, 1, 3.5)
    assert (ragged.passes, ragged.opening_passes) == (4, 2)
    assert [(step.opening, step.committed_blocks) for step in ragged.steps] == [(False, 0), (True, 0), (True, 1), (False, 1)]


def test_a_batch_larger_than_the_record_is_refused() -> None:
    """Named are the rows asked for, the prompts there are, and what to do."""
    with pytest.raises(UserError, match=r"batch of 3 from 2 recorded prompts.*record more"):
        recorded_batch(record_of([[1], [2]]), 3, "lockstep")
    with pytest.raises(UserError, match="batch of 0"):
        recorded_batch(record_of([[1], [2]]), 0, "ragged")
    with pytest.raises(UserError, match="batch of 3"):
        passes_interval(record_of([[1], [2]]), 3, "lockstep")


@pytest.mark.parametrize("batching", BATCHINGS)
@pytest.mark.parametrize(("k", "rows", "blocks"), [(1, 2, 3), (3, 1, 3), (3, 2, 2), (2, 2, 3), (2, 3, 2)])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_several_blocks_agree_with_enumeration(batching: str, k: int, rows: int, blocks: int, share: float) -> None:
    """Against every outcome of all the coin tosses, each walked through: in lockstep block by block, ragged all at once."""
    expected = 0.0
    for tosses in itertools.product((0, 1), repeat=rows * blocks * (k - 1)):
        block = iter(np.array(tosses, dtype=int).reshape(rows * blocks, k - 1).sum(axis=1) + 1)
        batch = [[int(next(block)) for _ in range(blocks)] for _ in range(rows)]
        weight = share ** sum(tosses) * (1 - share) ** (len(tosses) - sum(tosses))
        expected += weight * float(summed(walk(batch, batching))[0])
    mean = 1 + share * (k - 1)
    together = slowest_row_passes(k, mean, rows, blocks)
    found = blocks * slowest_row_passes(k, mean, rows) if batching == "lockstep" else together
    assert found == pytest.approx(expected)


def drawn(count: int, seed: int) -> list[RecordedRow]:
    """Prompts of a known population: easy and hard ones (so blocks of a prompt resemble each other), of two to five blocks."""
    random = np.random.default_rng(seed)
    prompts = []
    for _ in range(count):
        hardness = random.choice([0.1, 0.3, 0.5])
        prompts.append((1 + random.binomial(15, hardness, size=random.integers(2, 6))).tolist())
    return record_of(prompts)


@pytest.mark.parametrize("batching", BATCHINGS)
def test_the_records_own_error_is_the_jackknifes(batching: str) -> None:
    """Against the definition: predict again without each prompt in turn."""
    record = drawn(40, seed=3)
    means = [recorded_batch(record[:i] + record[i + 1 :], 8, batching).passes for i in range(len(record))]
    found = passes_interval(record, 8, batching, batches=4)
    assert found.record_error == pytest.approx(math.sqrt(39 / 40 * sum((m - np.mean(means)) ** 2 for m in means)))
    assert found.low is not None and found.high is not None
    centre = recorded_batch(record, 8, batching).passes
    assert found.low < centre == pytest.approx((found.low + found.high) / 2)


@pytest.mark.parametrize(("batching", "batches"), [("lockstep", 16), ("ragged", 1)])
def test_the_interval_holds_what_it_promises(batching: str, batches: int) -> None:
    """200 records of 64 prompts, each with batches of 8 other prompts: 95 % of the means lie inside, give or take 4 deviations.

    Fewer do if the interval forgets the record's error, or cuts off at the record's own longest row (one ragged batch: 87 %).
    """
    held, trials, rows = 0, 200, 8
    for trial in range(trials):
        interval = passes_interval(drawn(64, seed=trial), rows, batching, batches)
        others = [row.passes for row in drawn(rows * batches, seed=10_000 + trial)]
        means = np.mean([len(walk(others[i : i + rows], batching)) for i in range(0, len(others), rows)])
        assert interval.low is not None and interval.high is not None
        held += interval.low <= means <= interval.high
    assert held / trials == pytest.approx(0.95, abs=4 * math.sqrt(0.05 * 0.95 / trials))


def test_a_record_of_one_batch_has_no_error_of_its_own() -> None:
    """Eight prompts say nothing of how other eights would differ: no interval, and why."""
    found = passes_interval(drawn(8, seed=1), 8, "lockstep", batches=2)
    assert found.low is None and found.high is None and "one batch of 8" in str(found.reason)


@pytest.mark.parametrize("k", [1001, 1050, 5000])
def test_blocks_of_thousands_are_priced_as_smaller_ones(k: int) -> None:
    """Their coefficients are too large for a float: against the binomial distribution of scipy."""
    mean, rows = k / 3, 4
    heads = np.arange(k)
    below = stats.binom.cdf(heads, k - 1, (mean - 1) / (k - 1))
    assert slowest_row_passes(k, mean, rows) == pytest.approx(1 + float((1 - below**rows).sum()), rel=1e-6)
