"""Seconds of the steps of one replica: passes that decode, and passes that also read a chunk of a prompt.

A table has the batches up to the largest, thinned out where there are many, at two contexts. Between entries prices are linear:
rows add bytes and arithmetic, context adds cache. A decode pass of SBD is the mean over a block, (first + (l - 1) later) / l.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from harness.capacity.acceptance import AssumedAcceptance
from harness.capacity.queueing import StepSeconds
from harness.capacity.replica import Replica
from harness.roofline.operation import PassCounts
from harness.roofline.pricing import ATTENTION, price_counts

Floats = NDArray[np.float64]
ROWS_PRICED = 96
CHUNK_STEP = 16  # a prompt's last chunk is priced as a multiple of it: matrix units work on tiles of at least 16 lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way of decoding. ``passes``: of so many rows at a context, each kind of pass with its share of all."""

    method: Literal["ntp", "sbd"]
    tokens_per_pass: float
    passes: Callable[[Any, Any], Sequence[tuple[float, PassCounts]]]

    def passes_for(self, output_tokens: int) -> int:
        """Decode passes of an answer, whose first token comes from the prompt's pass."""
        return max(1, round((output_tokens - 1) / self.tokens_per_pass))


def ways_of(acceptance: AssumedAcceptance) -> tuple[Way, Way]:
    """NTP, and SBD with this acceptance of a row."""
    k, share = acceptance.block_size, 1 / acceptance.passes_per_block

    def ntp(rows: Any, context: Any) -> Sequence[tuple[float, PassCounts]]:
        return [(1.0, PassCounts(rows=rows, query=1, context=context, logits=1, kept=rows))]

    def sbd(rows: Any, context: Any) -> Sequence[tuple[float, PassCounts]]:
        before = np.minimum(k, context)  # of the block before this one: fed again, so not yet in the cache
        first = PassCounts(rows=rows, query=before + k, context=context - before, logits=k, kept=rows * before)
        return [(share, first), (1 - share, PassCounts(rows=rows, query=k, context=context, logits=k, kept=0 * rows))]

    return (
        Way(method="ntp", tokens_per_pass=1.0, passes=ntp),
        Way(method="sbd", tokens_per_pass=acceptance.nfe_speedup, passes=sbd),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How prompts are read: the chunks of one of them, in order, as (tokens as priced, tokens in the cache before them)."""

    chunk_tokens: int

    def priced(self, tokens: int) -> int:
        """Tokens of a chunk as priced."""
        return min(self.chunk_tokens, -(-tokens // CHUNK_STEP) * CHUNK_STEP)

    def chunks(self, prompt_tokens: int) -> list[tuple[int, int]]:
        """Of one prompt."""
        starts = range(0, prompt_tokens, self.chunk_tokens)
        return [(self.priced(min(self.chunk_tokens, prompt_tokens - start)), start) for start in starts]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepPrices:
    """Expected seconds of a replica's steps.

    ``rows``      (n,) batches that are priced, rising from 1
    ``contexts``  two mean contexts of a row
    ``decode_s``  (2, n) at these contexts
    ``mixed_s``   by tokens of a chunk as priced: (n + 1,) with so many rows at the first context, entry 0 without rows; the
                  chunk begins its prompt
    ``later_s``   by tokens of a chunk: what it costs more at the offsets ``offsets``
    """

    rows: NDArray[np.int_]
    contexts: tuple[float, float]
    decode_s: Floats
    mixed_s: dict[int, Floats]
    offsets: Floats
    later_s: dict[int, Floats]

    def decode_at(self, context: float) -> Floats:
        """(n,) seconds of a decode pass at a mean context of a row."""
        (low, high), (first, second) = self.contexts, self.decode_s
        return np.asarray(first + (second - first) * (context - low) / (high - low))

    def mixed_at(self, chunk: int, offset: float, context: float) -> Floats:
        """(n,) seconds of a pass that reads a chunk too."""
        more = np.interp(offset, self.offsets, self.later_s[chunk])
        return np.asarray(self.mixed_s[chunk][1:] + more + self.decode_at(context) - self.decode_s[0])

    def as_function(self, reading: Reading) -> StepSeconds:
        """The same for any whole number of rows up to the largest, for a simulation."""
        low, high = self.contexts
        every = np.arange(self.rows[-1] + 1)
        first, second = (np.interp(every, [0, *self.rows], [0.0, *line]) for line in self.decode_s)
        slope = ((second - first) / (high - low)).tolist()
        base = (first - np.array(slope) * low).tolist()
        mixed = {chunk: (np.interp(every, [0, *self.rows], line) - first).tolist() for chunk, line in self.mixed_s.items()}
        more: dict[tuple[int, float], float] = {}

        def step_s(tokens: int, offset: float, rows: int, context: float) -> float:
            decode: float = base[rows] + slope[rows] * context
            if not tokens:
                return decode
            chunk = reading.priced(tokens)
            if (chunk, offset) not in more:
                more[chunk, offset] = float(np.interp(offset, self.offsets, self.later_s[chunk]))
            return decode + mixed[chunk][rows] + more[chunk, offset]

        return step_s


def price_steps(
    replica: Replica, way: Way, *, largest_batch: int, contexts: tuple[float, float], reading: Reading, prompts: Sequence[int]
) -> StepPrices:
    """The table for prompts of these lengths.

    Raises:
        UnknownHardwareError: a split over devices whose link rate is not known.
    """
    rows = np.unique(np.geomspace(1, largest_batch, ROWS_PRICED).round().astype(int))
    kinds = sorted({chunk for prompt in set(prompts) for chunk, _ in reading.chunks(prompt)})
    last = max((reading.chunks(prompt)[-1][1] for prompt in prompts if prompt), default=0)
    offsets = np.unique(np.array([0.0, min(reading.chunk_tokens, last), last]))
    # Columns are batches, lines the contexts or the kinds of chunk.
    at = np.broadcast_to(np.array(contexts)[:, None], (2, len(rows)))
    decode_s = _step_s(replica, way, np.broadcast_to(rows.astype(float), at.shape), at)
    chunks = np.array(kinds, dtype=float)[:, None]
    alone = _seconds(replica, [_chunk(*np.broadcast_arrays(chunks, offsets[None, :]))])
    shape = (len(kinds), len(rows))
    mixed_s = _step_s(
        replica, way, np.broadcast_to(rows.astype(float), shape), np.full(shape, contexts[0]), np.broadcast_to(chunks, shape)
    )
    return StepPrices(
        rows=rows, contexts=contexts, decode_s=decode_s, offsets=offsets,
        mixed_s={kind: np.concatenate(([alone[i, 0]], mixed_s[i])) for i, kind in enumerate(kinds)},
        later_s={kind: alone[i] - alone[i, 0] for i, kind in enumerate(kinds)},
    )  # fmt: skip


def _step_s(replica: Replica, way: Way, rows: Floats, contexts: Floats, chunks: Floats | None = None) -> Floats:
    """Expected seconds of a step that decodes ``rows``, and reads the first chunk of a prompt where ``chunks`` are given."""
    shares, passes = zip(*way.passes(rows, contexts), strict=True)
    # All kinds of pass in one call, along a new first axis.
    fields = {
        name: np.stack([np.broadcast_to(getattr(one, name), rows.shape) for one in passes])
        for name in PassCounts.__dataclass_fields__
    }  # fmt: skip
    read = [] if chunks is None else [_chunk(np.broadcast_to(chunks, fields["rows"].shape), np.zeros(fields["rows"].shape))]
    return np.asarray(np.tensordot(shares, _seconds(replica, [*read, PassCounts(**fields)]), axes=1))


def _chunk(tokens: Any, offset: Any) -> PassCounts:
    """A chunk of one prompt; its last position has logits, as engines compute them for every chunk."""
    return PassCounts(rows=1, query=tokens, context=offset, logits=1, kept=tokens)


def _seconds(replica: Replica, groups: Sequence[PassCounts]) -> Any:
    """Expected seconds of one pass over groups of rows: weights are read once and all lines multiplied together, but every
    group has its own attention.
    """
    price = lambda counts: price_counts(replica.shape, replica.deployment, counts, replica.ceilings)  # noqa: E731
    if len(groups) == 1:
        return price(groups[0]).expected_s
    lines, logits, kept = (sum(values) for values in zip(*((g.lines, g.logit_lines, g.kept) for g in groups), strict=True))
    joined = price(PassCounts(rows=1, query=lines, context=0, logits=logits, kept=kept))
    seconds = joined.expected_s - _attention_s(joined) + sum(_attention_s(price(group)) for group in groups)
    return np.maximum(seconds, joined.fixed_s) if replica.ceilings.fixed_hidden else seconds


def _attention_s(price: Any) -> Any:
    return sum(cost.expected_s for cost in price.operations if cost.name == ATTENTION)
