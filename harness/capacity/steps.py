"""Seconds of the steps of one replica as a table: steps that decode, and steps that also read prompts.

A table has the batches up to the largest, thinned out where there are many, at two contexts. Between entries prices are linear:
rows and prompt tokens add bytes and arithmetic, context adds cache. ``harness.roofline.step`` prices every entry. Prompts that
share a step are priced as one with as much in the cache before it on average: the attention among them is a little too dear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from harness.capacity.queueing import StepSeconds, passes_of
from harness.capacity.replica import Replica
from harness.capacity.results import Method
from harness.frozen import frozen
from harness.roofline.step import DecodeArm, price_step

Floats = NDArray[np.float64]
ROWS_PRICED = 96
CHUNK_STEP = 16  # prompt tokens of a step are priced as a multiple of it: matrix units work on tiles of at least 16 lines


@frozen
class WayOfDecoding:
    """One way of decoding, with rows that do not wait for one another."""

    method: Method
    arm: DecodeArm

    @property
    def tokens_per_pass(self) -> float:
        """Mean tokens that a row writes in a step."""
        return float(self.arm.tokens_per_step)

    def passes_for(self, output_tokens: int) -> int:
        """Decode passes of an answer."""
        return passes_of(output_tokens, self.tokens_per_pass)


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
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
        read: dict[tuple[int, float], list[float]] = {}

        def step_s(tokens: int, offset: float, rows: int, context: float) -> float:
            decode: float = base[rows] + slope[rows] * context
            if not tokens:
                return decode
            key = reading.priced(tokens), round(offset / CHUNK_STEP) * CHUNK_STEP
            if key not in read:
                read[key] = (np.interp(every, [0, *self.rows], self.reading_at(*key)) - first).tolist()
            return decode + read[key][rows]

        return step_s


def price_steps(
    replica: Replica,
    way: WayOfDecoding,
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
    price = partial(price_step, replica.shape, replica.deployment, replica.ceilings, way.arm)
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
