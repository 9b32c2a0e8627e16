"""What one pass of a public block model feeds, and what its logits are for. Axes: B rows, n columns of a segment, k slots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from harness.decoding.open_blocks import BlockRow
from harness.decoding.session import Segment, upload
from harness.record.trace import Role

Said = Literal["slots", "first slot", "nothing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """One pass. ``says``: what its logits are read for: the block's slots, the next block's first slot, or nothing. The first
    pass of a decode is its prefill, whatever ``role`` says.

    ``query_tokens``, ``kept_tokens``  real tokens of each row, fed and kept
    ``keeps``                          columns that the session keeps of each row, padding included
    ``active``                         rows for which the pass does anything
    ``opens``                          whether the next block begins with this pass
    """

    role: Role
    segments: list[Segment]
    query_tokens: tuple[int, ...]
    keeps: tuple[int, ...]
    kept_tokens: tuple[int, ...]
    says: Said
    active: tuple[bool, ...]
    opens: bool = False

    @property
    def columns(self) -> int:
        """Tokens of each row, padding included."""
        return sum(segment.tokens.shape[1] for segment in self.segments)


class FeedPlan(Protocol):
    """The passes of one batch in one layout. After each of ``feeds`` its outcome is handed to ``take``."""

    @property
    def rows(self) -> Sequence[BlockRow]:
        """The rows' progress."""

    @property
    def capacity(self) -> int:
        """Tokens of a row that the session must make room for."""

    @property
    def asked(self) -> Tensor:
        """(B, w) bool: the slots that may be decided in this pass."""

    def feeds(self) -> Iterator[Feed]:
        """Every pass until all rows have ended."""

    def of_slots(self, logits: Tensor) -> Tensor:
        """(B, w, V): those of a pass's logits that predict the block's slots, in their order."""

    def write(self, chosen: Tensor, tokens: Tensor) -> Tensor:
        """Put ``tokens`` (B, w) where ``chosen``; (B, w) the same tokens, -1 elsewhere."""

    def take(self, feed: Feed, tokens: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What was read of a pass, row by row; (decided, final) tokens of each row."""


def right_aligned(rows: Sequence[Sequence[int]], width: int, device: torch.device) -> tuple[Tensor, Tensor | None]:
    """(B, width) ids with padding before the shorter rows, and (B, width) bool on the CPU, False there, or None."""
    ids = [[0] * (width - len(row)) + list(row) for row in rows]
    if all(len(row) == width for row in rows):
        return upload(ids, device), None
    valid = [[False] * (width - len(row)) + [True] * len(row) for row in rows]
    return upload(ids, device), torch.tensor(valid)


def positions_to(ends: Sequence[int], width: int, device: torch.device) -> Tensor:
    """(B, width): consecutive positions that end right before ``ends``; 0 on padding."""
    return (upload(ends, device)[:, None] - width + torch.arange(width, device=device)).clamp(min=0)


def slots_before(logits: Tensor) -> Tensor:
    """(B, w, V) shifted by one: slot i gets the logits of position i - 1. Slot 0 has none of its own and must be known."""
    return torch.cat([logits[:, :1], logits[:, :-1]], dim=1)
