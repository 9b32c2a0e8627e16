"""The batches at which Set Block Decoding pays: every batch is priced, none is inferred from its neighbours.

The set need not be one range. Small batches are bound by weights, where a block is nearly free (on a mixture of experts they
may lose, because a block visits more experts); larger ones are bound by arithmetic, where SBD computes more; and at long
contexts the cache is what is read, once per pass instead of once per token, so that SBD can pay again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.capacity.replica import Replica
from harness.capacity.results import BreakEven


def break_even(replica: Replica, context_tokens: int, largest_batch: int) -> BreakEven:
    """Where SBD pays at this context, over all batches of the replica, whether they fit (``largest_batch``) or not.

    Raises:
        UnknownHardwareError: a split over devices whose link rate is not known.
    """
    everywhere = replica.at_all(context_tokens)
    sides: tuple[Any, ...] = (everywhere.wall_speedup, everywhere.wall_speedup_overlapped, everywhere.wall_speedup_serial)
    (pays, overlapped, serial), searched = map(paying_ranges, sides), len(replica.batches)
    last = pays[0][1] if pays and pays[0][1] < searched else None
    return BreakEven(
        context_tokens=context_tokens,
        reason=None,
        tensor_parallel=replica.deployment.tensor_parallel,
        searched_batch=searched,
        largest_batch=largest_batch,
        pays=pays,
        pays_overlapped=overlapped,
        pays_serial=serial,
        last_batch=last,
        tokens_per_pass=None if last is None else last * replica.acceptance.block_size,
    )


def paying_ranges(wall_speedup: NDArray[np.float64]) -> tuple[tuple[int, int], ...]:
    """(first, last batch) of every run of batches with a speedup above 1; entry i is the speedup at batch i + 1."""
    edges = np.diff(np.concatenate(([0], (wall_speedup > 1).astype(int), [0])))
    starts, ends = np.flatnonzero(edges == 1) + 1, np.flatnonzero(edges == -1)
    return tuple((int(start), int(end)) for start, end in zip(starts, ends, strict=True))
