"""A replica under a steady load, in closed form: time per request, speed of a user and the largest load within a goal.

A request reads C chunks and decodes D passes. With n rows open a replica makes D / n steps per request, and C of them read a
chunk too. So a request takes E(n) = D t(n) / n + sum over its chunks of (mixed(n) - t(n)) seconds of the replica. Its row is
open for n E(n) seconds. Where every step reads as much as it may, a request takes the share F of one that its prompt has of the
tokens. So E(n) is never less than F full(n), and more than D / F rows are never open.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from harness.capacity.question import ServiceGoal
from harness.capacity.steps import PromptReading, StepPrices, WayOfDecoding

Floats = NDArray[np.float64]
IDLE = np.geomspace(0.01, 0.9, 24)  # mean rows of a replica that mostly waits


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeanRequest:
    """The mean over a goal's requests for one way of decoding.

    ``chunks``         how often a request has a chunk of so many tokens (as priced) at such an offset
    ``full_steps``     F, prompt tokens of a request as a share of a step's
    ``passes``         decode passes D
    ``context``        mean context of a row over its passes
    ``output_tokens``  of an answer
    """

    chunks: dict[tuple[int, int], float]
    full_steps: float
    passes: float
    context: float
    output_tokens: float

    @property
    def steps_that_read(self) -> float:
        """Chunks C."""
        return sum(self.chunks.values())

    @property
    def offset(self) -> float:
        """Mean number of tokens in the cache before a chunk, over the tokens."""
        tokens = sum(times * chunk for (chunk, _), times in self.chunks.items())
        return sum(times * chunk * offset for (chunk, offset), times in self.chunks.items()) / tokens


@lru_cache(maxsize=64)
def mean_request(goal: ServiceGoal, way: WayOfDecoding, reading: PromptReading) -> MeanRequest:
    """Of the goal's one kind of request, or of its trace."""
    chunks: Counter[tuple[int, int]] = Counter()
    for prompt, times in Counter(goal.prompts).items():
        for chunk in reading.chunks(prompt):
            chunks[chunk] += times
    prompts, outputs = np.array(goal.prompts, dtype=float), np.array(goal.outputs, dtype=float)
    passes = np.array([way.passes_for(output) for output in goal.outputs], dtype=float)
    return MeanRequest(
        chunks={chunk: times / len(prompts) for chunk, times in chunks.items()},
        full_steps=float(prompts.mean()) / reading.chunk_tokens,
        passes=float(passes.mean()),
        context=float((passes * (prompts + outputs / 2)).sum() / passes.sum()),
        output_tokens=float(outputs.mean()),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steady:
    """By mean rows that are open (below 1: the replica waits most of the time), rising.

    ``request_s``     E: seconds of the replica per request
    ``read_s``        time to first token without a queue
    ``shared_s``      F full(n): what reading a prompt takes where all steps are full
    ``open_s``        of a row, from its first token to its last
    ``tokens_per_s``  of a user after the first token; infinite for answers of one token
    """

    rows: Floats
    request_s: Floats
    read_s: Floats
    shared_s: Floats
    open_s: Floats
    tokens_per_s: Floats

    def at(self, values: Floats, rows: Floats) -> Floats:
        """One of the columns at other numbers of rows."""
        return np.interp(rows, self.rows, values)

    def users(self, think_s: float) -> Floats:
        """Users that keep so many rows open (Little's law)."""
        return (think_s + self.read_s + self.open_s) / self.request_s


def steady(prices: StepPrices, request: MeanRequest) -> Steady:
    """The columns up to the rows that are priced, or that can be open."""
    chunks, passes = request.steps_that_read, request.passes
    most = max(1.0, min(float(prices.rows[-1]), passes / request.full_steps))
    known = prices.rows[prices.rows < most].astype(float)
    rows = np.concatenate((IDLE, known, [most]))
    decode_s = prices.decode_at(request.context)
    decode, deeper = np.interp(rows, prices.rows, decode_s), np.concatenate(([0.0], decode_s - prices.decode_s[0]))

    def beside(chunk: int, offset: float) -> Floats:
        """A step that reads a chunk, by rows."""
        return np.interp(rows, [0, *prices.rows], prices.reading_at(chunk, offset) + deeper)

    read = np.sum([times * beside(*chunk) for chunk, times in request.chunks.items()], axis=0)
    full = beside(int(prices.tokens[-1]), request.offset)
    shared = np.minimum(read, request.full_steps * full)
    request_s = np.maximum(passes * decode / rows + read - chunks * decode, shared)
    open_s = passes * np.minimum(request_s * rows / passes, full)
    # A row of its own waits for nobody: below one row its time is that of one row.
    later_tokens = request.output_tokens - 1
    speed = later_tokens / open_s if later_tokens > 0 else np.full(len(rows), np.inf)
    return Steady(rows=rows, request_s=request_s, read_s=read, shared_s=shared, open_s=open_s, tokens_per_s=speed)


def largest_load(goal: ServiceGoal, column: Steady) -> float:
    """The largest load of one replica within the goal, in the goal's unit; 0 where even a lone request fails.

    Rows in the goal's percentile: the mean and as many deviations of a Poisson number, but for users who never think. The queue
    in front of the prompts is M/D/1, with an exponential tail (Pollaczek and Khinchine). A simulation decides in the end.
    """
    share = goal.percentile / 100
    spread = 0.0 if goal.users is not None and not goal.think_s else NormalDist().inv_cdf(share)
    crowded = column.rows + spread * np.sqrt(column.rows)
    fast = column.at(column.tokens_per_s, crowded) >= (goal.tokens_per_s or 0.0)
    read_s, promised_s = column.at(column.read_s, crowded), goal.ttft_s
    if goal.users is not None and not goal.think_s:
        good = _leading(fast & (read_s <= promised_s))
        if not good:
            return 0.0
        queue = (promised_s - read_s[-1]) / column.request_s[-1] if good == len(fast) else 0.0
        return max(1.0, float(column.users(0.0)[good - 1] + queue))
    busy = np.minimum(column.shared_s / column.request_s, 1 - 1e-9)
    mean_wait_s = busy * column.shared_s / (2 * (1 - busy))
    tail = np.maximum(np.log(busy / (1 - share)), 0.0) / busy
    good = _leading(fast & (read_s + mean_wait_s * tail <= promised_s))
    if not good:
        return 0.0
    return float((column.users(goal.think_s) if goal.users is not None else 1 / column.request_s)[good - 1])


def _leading(holds: NDArray[np.bool_]) -> int:
    """How many entries hold before the first that does not."""
    return len(holds) if holds.all() else int(np.argmin(holds))
