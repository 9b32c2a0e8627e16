"""A captured forward's attention as one call of the flash kernel: every part, piece and own token is a run of that call.

A long buffer is cut into pieces that run side by side, because flash attention splits only where the query is one token; what
each piece yields is merged by log-sum-exp. Query heads that share a KV head are folded into the query, so that each KV head is
read once. Tokens of a causal part take all that was committed before it together, as the pieces' queries, and what they see of
each other one by one, as runs of their own. Axes: B rows, Q query tokens, H query heads, G KV heads, D head dimension, P copies
of the queries (one a piece, one more for what causal tokens see of each other), N runs, T = B * Q * H / G folded queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from harness.decoding.uploading import upload
from harness.engine import flash_attention
from harness.engine.flash_attention import Runs
from harness.engine.used_kv import Fed
from harness.roofline.kv_slots import pieces_of


class FlashRuns:
    """A harness.engine.used_kv.CapturedAttention."""

    def __init__(self, fed: Fed) -> None:
        count = pieces_of(fed.rows * fed.groups, fed.slots)
        own = any(causal for _, causal in fed.parts)
        self._fed, self._copies = fed, count + own
        runs = [*_pieces(fed, count), *(_own(fed) if own else ())]
        self._longest = max(run.most for run in runs)
        self._widest = max(run.queries for run in runs)

        def table(values: Iterator[int], dtype: torch.dtype = torch.int32) -> Tensor:
            return upload(list(values), fed.device, dtype)

        end = _Run(0, 0, fed.rows * fed.slots, 0, 0, 0, 0)  # where keys begin has one entry more than there are runs
        self._asked = table(accumulate((run.queries for run in runs), initial=0))
        self._whose = table((run.whose for run in [*runs, end]), torch.long)
        self._base = table(run.base for run in [*runs, end])
        self._furthest = table(run.furthest for run in [*runs, end])
        self._before = table(run.before for run in runs)
        self._least, self._most = table(run.least for run in runs), table(run.most for run in runs)
        of_query = (number for number, run in enumerate(runs) for _ in range(run.queries))
        self._run_of_query = table(of_query, torch.long) if self._copies > 1 else None

    def read(self, used: Tensor) -> FlashReading:
        """See CapturedAttention."""
        seen = used.flatten()[self._whose]
        keys = (seen[:-1] - self._before).clamp(self._least, self._most)
        runs = Runs(
            asked=self._asked,
            starts=self._base + torch.minimum(seen, self._furthest),
            used=keys,
            widest=self._widest,
            longest=self._longest,
            # With a single copy each run sees something: a token is committed, or it sees itself.
            empty=None if self._run_of_query is None else (keys == 0)[self._run_of_query],
        )
        return FlashReading(runs, self._copies, self._fed.shared)


@dataclass(frozen=True, slots=True)
class FlashReading:
    """A harness.engine.used_kv.Reading: the runs of one forward over ``copies`` of its queries."""

    runs: Runs
    copies: int
    shared: int

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scaling: float | None) -> Tensor:
        """See Reading."""
        rows, heads, tokens, size = query.shape
        groups = keys.shape[1]
        folded = query.transpose(1, 2).reshape(rows, tokens, groups, self.shared, size).transpose(2, 3)
        packed = folded.expand(self.copies, -1, -1, -1, -1, -1) if self.copies > 1 else folded
        out, lse = flash_attention.attend(packed.reshape(-1, groups, size), keys, values, self.runs, scaling)
        if self.copies > 1:
            out = merge(out.view(self.copies, -1, groups, size), lse.reshape(self.copies, -1, groups))
        found = out.reshape(rows, tokens, self.shared, groups, size).transpose(2, 3)
        return found.to(query.dtype, memory_format=torch.contiguous_format).reshape(rows, tokens, heads, size)


def merge(outs: Tensor, lses: Tensor) -> Tensor:
    """Softmax over a union from softmaxes over its parts: (P, ..., D) outputs and their (P, ...) log-sum-exps in float32.

    out = Σ exp(lse_p - lse) out_p with lse = log Σ exp(lse_p): the parts' weights are a softmax of their log-sum-exps.
    """
    return (lses.softmax(dim=0)[..., None] * outs).sum(dim=0)


class _Run(NamedTuple):
    """A run before the used lengths are known. With u used slots of ``whose`` it begins at slot base + min(u, furthest) and has
    u - before keys, ``least`` to ``most``.
    """

    queries: int
    whose: int
    base: int
    furthest: int
    before: int
    least: int
    most: int


def _pieces(fed: Fed, count: int) -> Iterator[_Run]:
    """All parts over every piece of their row's buffer: the used slots that lie in it."""
    length = fed.slots // count
    for before in range(0, fed.slots, length):
        for row in range(fed.rows):
            for part, (width, _) in enumerate(fed.parts):
                yield _Run(width * fed.shared, part * fed.rows + row, row * fed.slots + before, 0, before, 0, length)


def _own(fed: Fed) -> Iterator[_Run]:
    """The tokens of causal parts, each over those of its part up to itself; of other parts, runs without keys.

    The own slots begin behind the used ones. A row that feeds padding there may have no room for it; nobody reads what it
    yields, but it must not read behind the buffer.
    """
    for row in range(fed.rows):
        for part, (width, causal) in enumerate(fed.parts):
            whose, base = part * fed.rows + row, row * fed.slots
            if causal:
                yield from (_Run(fed.shared, whose, base, fed.slots - width, 0, seen, seen) for seen in range(1, width + 1))
            else:
                yield _Run(width * fed.shared, whose, base, 0, 0, 0, 0)
