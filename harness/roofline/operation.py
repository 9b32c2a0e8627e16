"""The counts that decide the cost of a pass, one operation of a pass, and arithmetic that takes numbers and arrays alike.

A count or a time in this package is a number, or a numpy array with one entry per cell of a grid. The annotations say ``int``
or ``float`` for both. Everything that is not +, -, * and / uses the functions of this module.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from harness.frozen import frozen
from harness.record.trace import ForwardPass, Role

OperationKind = Literal["linear", "attention", "memory", "link", "sampler"]


@frozen
class PassCounts:
    """The counts of a forward pass that decide what it costs; passes that agree in them cost the same.

    ``query``, ``context`` and ``logits`` are those of the longest row, to which the others are padded; ``kept`` is the sum
    over the rows of tokens whose KV stays. ``causal``: a query meets the pass's own tokens up to itself (a prefill), not all of
    them (a block). For a grid every other field may be a numpy array of one shape, and rows an expected number.
    """

    rows: int
    query: int
    context: int
    logits: int
    kept: int
    causal: bool = False

    @classmethod
    def of(cls, forward_pass: ForwardPass) -> PassCounts:
        """The counts of a recorded pass."""
        return cls(
            rows=forward_pass.rows,
            query=forward_pass.padded_query,
            context=forward_pass.padded_context,
            logits=max(forward_pass.logit_tokens, default=0),
            kept=sum(forward_pass.kept_tokens),
            causal=forward_pass.role == "prefill",
        )

    @property
    def lines(self) -> int:
        """Lines of the matrices that the layers multiply."""
        return self.rows * self.query

    @property
    def logit_lines(self) -> int:
        """Lines of the LM head's product."""
        return self.rows * self.logits


def describe_pass(role: Role, batch: int, query: int, context: int, *, logits: int, kept: int = 0) -> ForwardPass:
    """A pass written by hand, every row alike, for pricing only (nothing is decided in it)."""
    return ForwardPass(
        role=role,
        query_tokens=(query,) * batch,
        context_tokens=(context,) * batch,
        logit_tokens=(logits,) * batch,
        kept_tokens=(kept,) * batch,
        decided_tokens=(0,) * batch,
        final_tokens=(0,) * batch,
        active=(True,) * batch,
        padded_query=query,
        padded_context=context,
    )


@frozen
class Operation:
    """One operation of one pass on one device, summed over the layers.

    ``tokens`` are the lines m of its matrix product (per row for attention, per expert for a mixture): they decide its matrix
    rate. ``link_bytes`` cross the link to the other devices, in ``link_hops`` transfers that wait for one another. ``logits``
    are set for the sampler only; ``sharing``, the query heads that share a KV head, for attention only. ``pieces``: equal parts
    of the activations that follow one another (layers, sweeps), each written and read again before the next one begins.
    """

    name: str
    kind: OperationKind
    tokens: float
    sharing: float = 1
    flops: float = 0
    weight_bytes: float = 0
    kv_bytes: float = 0
    activation_bytes: float = 0
    link_bytes: float = 0
    link_hops: float = 0
    logits: int = 0
    pieces: int = 1

    @property
    def bytes_(self) -> float:
        """All bytes this operation reads and writes, wherever they are kept."""
        return self.weight_bytes + self.kv_bytes + self.activation_bytes

    def memory_bytes(self, cache_bytes: float | None) -> Any:
        """The bytes that cross to the device's own memory.

        A piece of activations stays on the chip as far as a cache of ``cache_bytes`` holds it; None: all of it is moved.
        """
        if cache_bytes is None:
            return self.bytes_
        return self.weight_bytes + self.kv_bytes + larger(self.activation_bytes - self.pieces * cache_bytes, 0)


def linear(name: str, layers: int, lines: int, weights: int, weight_bytes: float, moved_bytes: float) -> Operation:
    """A matrix product of ``lines`` lines in each layer, with its ``weights`` and ``weight_bytes`` of one layer.

    ``moved_bytes``: activations that one line reads and writes in one layer.
    """
    return Operation(
        name=name,
        kind="linear",
        tokens=lines,
        flops=2 * layers * lines * weights,
        weight_bytes=layers * weight_bytes,
        activation_bytes=layers * lines * moved_bytes,
        pieces=layers,
    )


Points = tuple[tuple[int, float], ...]


def larger(first: Any, second: Any) -> Any:
    """The larger of the two, entry by entry."""
    return np.maximum(first, second) if _is_array(first, second) else max(first, second)


def smaller(first: Any, second: Any) -> Any:
    """The smaller of the two, entry by entry."""
    return np.minimum(first, second) if _is_array(first, second) else min(first, second)


def choose(condition: Any, yes: Any, no: Any) -> Any:
    """``yes`` where the condition holds, else ``no``."""
    return np.where(condition, yes, no) if isinstance(condition, np.ndarray) else (yes if condition else no)


def is_one_of(value: Any, known: Sequence[int]) -> Any:
    """Whether it is among ``known``, entry by entry."""
    return np.isin(value, known) if isinstance(value, np.ndarray) else value in known


def some(condition: Any) -> bool:
    """Whether the condition holds anywhere."""
    return bool(np.any(condition)) if isinstance(condition, np.ndarray) else bool(condition)


def interpolate(points: Points, at: Any) -> Any:
    """Value at ``at`` on the log-log line through the neighbouring points; the outermost values beyond them."""
    if len(points) == 1:
        return points[0][1]
    if isinstance(at, np.ndarray):
        places, values = np.log(np.array(points, dtype=float)).T
        return np.exp(np.interp(np.log(np.maximum(at, points[0][0])), places, values))
    if at <= points[0][0]:
        return points[0][1]
    for (low, low_value), (high, high_value) in pairwise(points):
        if at <= high:
            share = math.log(at / low) / math.log(high / low)
            return low_value * math.exp(share * math.log(high_value / low_value))
    return points[-1][1]


def _is_array(first: Any, second: Any) -> bool:
    return isinstance(first, np.ndarray) or isinstance(second, np.ndarray)
