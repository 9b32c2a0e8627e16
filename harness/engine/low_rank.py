"""The two operations of a gated adapter that work on some columns alone.

To a compiler each is one operation that it cannot look into. It would else fuse the sum with what follows, and in half
precision round the tokens beside the adapter in other places than without one. Axes: B rows, Q fed tokens, r rank.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn


def add_low_rank(out: Tensor, input: Tensor, down: Tensor, up: Tensor, start: int, end: int) -> None:
    """Add up down x to the columns ``start`` to ``end`` of ``out`` (B, Q, out), for x of ``input`` (B, Q, in); ``down`` is
    (r, in), ``up`` (out, r).
    """
    of_columns = input[:, start:end].to(down.dtype).flatten(0, 1)
    more = nn.functional.linear(nn.functional.linear(of_columns, down), up)
    out[:, start:end].add_(more.view(out.shape[0], end - start, -1))


def put_row(ids: Tensor, mask_id: int, row: int, start: int, end: int) -> None:
    """Write ``row`` over the masks in the columns ``start`` to ``end`` of ``ids`` (B, Q)."""
    of_block = ids[:, start:end]
    of_block.masked_fill_(of_block == mask_id, row)


_LIBRARY: Any = cast(Any, torch.library.Library)("sbd", "DEF")  # carries no types
_TERM = "(Tensor(a!) out, Tensor input, Tensor down, Tensor up, SymInt start, SymInt end) -> ()"
_LIBRARY.define(f"add_low_rank{_TERM}")
_LIBRARY.define("put_row(Tensor(a!) ids, SymInt mask_id, SymInt row, SymInt start, SymInt end) -> ()")
for _work in (add_low_rank, put_row):
    _LIBRARY.impl(_work.__name__, _work, "CompositeExplicitAutograd")
    torch.library.register_fake(f"sbd::{_work.__name__}", lambda *arguments: None, lib=_LIBRARY)
