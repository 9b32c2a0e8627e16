"""A replica under a steady load, in closed form: time per request, speed of a user and the largest load within a goal.

A request reads C chunks and decodes D passes. With n rows open a replica makes D / n steps per request, and C of them read a
chunk too. So a request takes E(n) = D t(n) / n + sum over its chunks of (mixed(n) - t(n)) seconds of the replica. Its row is
open for n E(n) seconds. Where every step reads as much as it may, a request takes the share F of one that its prompt has of the
tokens. So E(n) is never less than F full(n), and more than D / F rows are never open.

The seconds of the steps are a table: steps that decode, and steps that also read prompts. It has the batches up to the largest,
thinned out where there are many, at two contexts. Between entries prices are linear: rows and prompt tokens add bytes and
arithmetic, context adds cache. ``harness.roofline.step`` prices every entry. Prompts that share a step are priced as one with
as much in the cache before it on average: the attention among them is a little too dear.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache, lru_cache, partial
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.capacity.question import ServiceGoal
from harness.capacity.queueing import StepSeconds, passes_of
from harness.capacity.replica import Replica
from harness.frozen import frozen
from harness.roofline.step import DecodeArm

Floats = NDArray[np.float64]
ROWS_PRICED = 96
IDLE = np.geomspace(0.01, 0.9, 24)  # mean rows of a replica that mostly waits
CHUNK_STEP = 16  # prompt tokens of a step are priced as a multiple of it: matrix units work on tiles of at least 16 lines


@frozen
class PromptReading:
    """How prompts are read: at most ``chunk_tokens`` in a step, of one prompt or of several."""

    chunk_tokens: int

    def priced(self, tokens: int) -> int:
        """Prompt tokens of a step as priced."""
        return min(self.chunk_tokens, -(-tokens // CHUNK_STEP) * CHUNK_STEP)

    @property
    def table(self) -> set[int]:
        """Prompt tokens of the steps that every table has: powers of two, and a full step."""
        powers = range(self.chunk_tokens.bit_length())
        return {self.chunk_tokens, *(CHUNK_STEP << power for power in powers if CHUNK_STEP << power < self.chunk_tokens)}

    def chunks(self, prompt_tokens: int) -> list[tuple[int, int]]:
        """Of one prompt that shares no step, in order: (tokens as priced, tokens in the cache before them)."""
        starts = range(0, prompt_tokens, self.chunk_tokens)
        return [(self.priced(min(self.chunk_tokens, prompt_tokens - start)), start) for start in starts]


@frozen
class StepPrices:
    """Expected seconds of a replica's steps.

    ``rows``      (n,) batches that are priced, rising from 1
    ``contexts``  two mean contexts of a row
    ``decode_s``  (2, n) at these contexts
    ``tokens``    (k,) prompt tokens of a step, rising
    ``mixed_s``   (k, n + 1) steps that read these, which begin their prompt, with so many rows at the first context beside
                  them; entry 0 without rows
    ``later_s``   (k, o) what they cost more after the ``offsets``
    """

    rows: NDArray[np.int_]
    contexts: tuple[float, float]
    decode_s: Floats
    tokens: NDArray[np.int_]
    mixed_s: Floats
    offsets: Floats
    later_s: Floats

    def decode_at(self, context: float) -> Floats:
        """(n,) seconds of a decode pass at a mean context of a row."""
        (low, high), (first, second) = self.contexts, self.decode_s
        return np.asarray(first + (second - first) * (context - low) / (high - low))

    def reading_at(self, tokens: int, offset: float) -> Floats:
        """(n + 1,) seconds of a step that reads ``tokens`` as priced beside rows at the first context; entry 0: none."""
        above = int(np.searchsorted(self.tokens, tokens))
        below = max(above - 1, 0)
        between = self.tokens[above] - self.tokens[below]
        share = (tokens - self.tokens[below]) / between if between else 0.0
        later = [np.interp(offset, self.offsets, self.later_s[place]) for place in (below, above)]
        first, second = self.mixed_s[below] + later[0], self.mixed_s[above] + later[1]
        return np.asarray(first + share * (second - first))

    def as_function(self, reading: PromptReading) -> StepSeconds:
        """The same for any whole number of rows up to the largest, for a simulation."""
        low, high = self.contexts
        every = np.arange(self.rows[-1] + 1)
        first, second = (np.interp(every, [0, *self.rows], [0.0, *line]) for line in self.decode_s)
        slope = ((second - first) / (high - low)).tolist()
        base = (first - np.array(slope) * low).tolist()

        @cache
        def read_s(tokens: int, offset: float) -> Any:
            return (np.interp(every, [0, *self.rows], self.reading_at(tokens, offset)) - first).tolist()

        def step_s(tokens: int, offset: float, rows: int, context: float) -> float:
            decode: float = base[rows] + slope[rows] * context
            if tokens:
                decode += read_s(reading.priced(tokens), round(offset / CHUNK_STEP) * CHUNK_STEP)[rows]
            return decode

        return step_s


def price_steps(
    replica: Replica,
    arm: DecodeArm,
    *,
    largest_batch: int,
    contexts: tuple[float, float],
    reading: PromptReading,
    prompts: Sequence[int],
) -> StepPrices:
    """The table for prompts of these lengths.

    Raises:
        UnknownHardwareError: a split over devices whose link rate is not known.
    """
    rows = np.unique(np.geomspace(1, largest_batch, ROWS_PRICED).round().astype(int))
    kinds = np.array(sorted(reading.table | {chunk for prompt in set(prompts) for chunk, _ in reading.chunks(prompt)}))
    longest = max(prompts)
    offsets = np.unique(np.array([0.0, min(reading.chunk_tokens, longest), longest]))
    # Columns are batches or offsets, lines the contexts or the kinds of chunk.
    batches, chunks = rows.astype(float), kinds[:, None].astype(float)
    price = partial(replica.price_step, arm)
    # A chunk's last position has logits, as engines compute them for every chunk.
    read = partial(price, context_tokens=contexts[0], prefill_tokens=chunks, prefill_logits=1)
    alone = read(rows=0, prefill_context=offsets).expected_s
    return StepPrices(
        rows=rows,
        contexts=contexts,
        decode_s=price(rows=batches, context_tokens=np.array(contexts)[:, None]).expected_s,
        offsets=offsets,
        tokens=kinds,
        mixed_s=np.concatenate((alone[:, :1], read(rows=batches).expected_s), axis=1),
        later_s=alone - alone[:, :1],
    )


@frozen
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
    def offset(self) -> float:
        """Mean number of tokens in the cache before a chunk, over the tokens."""
        tokens = sum(times * chunk for (chunk, _), times in self.chunks.items())
        return sum(times * chunk * offset for (chunk, offset), times in self.chunks.items()) / tokens


@lru_cache(maxsize=64)
def mean_request(goal: ServiceGoal, arm: DecodeArm, reading: PromptReading) -> MeanRequest:
    """Of the goal's one kind of request, or of its trace."""
    chunks: Counter[tuple[int, int]] = Counter()
    for prompt, times in Counter(goal.prompts).items():
        for chunk in reading.chunks(prompt):
            chunks[chunk] += times
    prompts, outputs = np.array(goal.prompts, dtype=float), np.array(goal.outputs, dtype=float)
    passes = np.array([passes_of(output, arm.tokens_per_step) for output in goal.outputs], dtype=float)
    return MeanRequest(
        chunks={chunk: times / len(prompts) for chunk, times in chunks.items()},
        full_steps=float(prompts.mean()) / reading.chunk_tokens,
        passes=float(passes.mean()),
        context=float((passes * (prompts + outputs / 2)).sum() / passes.sum()),
        output_tokens=float(outputs.mean()),
    )


@frozen
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

    def at(self, values: Floats, rows: Any) -> Any:
        """One of the columns at other numbers of rows."""
        return np.interp(rows, self.rows, values)

    def loads(self, goal: ServiceGoal) -> Floats:
        """That keep so many rows open, in the goal's unit."""
        return self.users(goal.think_s) if goal.users is not None else 1 / self.request_s

    def users(self, think_s: float) -> Floats:
        """Users that keep so many rows open (Little's law)."""
        return (think_s + self.read_s + self.open_s) / self.request_s


def steady(prices: StepPrices, request: MeanRequest) -> Steady:
    """The columns up to the rows that are priced, or that can be open."""
    chunks, passes = sum(request.chunks.values()), request.passes
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
    return float(column.loads(goal)[good - 1]) if good else 0.0


def _leading(holds: NDArray[np.bool_]) -> int:
    """How many entries hold before the first that does not."""
    return len(holds) if holds.all() else int(np.argmin(holds))
