"""What one pass of a public block model feeds, and what all layouts share. Axes: B rows, n columns of a segment, k slots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from harness.decoding.open_blocks import BlockRow, DeviceBlocks
from harness.decoding.request import DecodeRequest
from harness.decoding.session import Segment, upload
from harness.models.block_families import BlockProtocol

Counts = tuple[int, ...]
"""Tokens of each row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """One pass. ``says``: what its logits are read for: the block's slots, the next block's first slot, or nothing.

    ``query_tokens``, ``kept_tokens``  real tokens of each row, fed and kept
    ``keeps``                          columns that the session keeps of each row, padding included
    """

    segments: list[Segment]
    query_tokens: Counts
    keeps: Counts
    kept_tokens: Counts
    says: Literal["slots", "first slot", "nothing"]


@dataclass(frozen=True, slots=True)
class BlockWork:
    """A batch to be decoded in blocks. ``begin_block(row, slots)`` is called as a block begins."""

    request: DecodeRequest
    protocol: BlockProtocol
    block_size: int
    mask_id: int
    begin_block: Callable[[int, int], None]


class Layout(DeviceBlocks):
    """The passes of one batch. After each of ``feeds`` its outcome is handed to ``take``. ``capacity``: tokens of a row that
    the session must make room for. ``given``: tokens with which each row's first block begins.
    """

    capacity: int

    def __init__(self, work: BlockWork, given: Sequence[Sequence[int]] | None = None) -> None:
        self._work, self._protocol, self._request, self._device = work, work.protocol, work.request, work.request.device
        self._size = self._width = work.block_size
        stop, most = work.request.stop, work.request.max_new_tokens
        given = given or [()] * len(work.request.prompts)
        self.rows = [BlockRow(stop, most, work.block_size, work.mask_id, first) for first in given]

    def feeds(self) -> Iterator[Feed]:
        """Every pass until all rows have ended."""
        raise NotImplementedError

    @property
    def asked(self) -> Tensor:
        """(B, w) bool: the slots that may be decided in this pass."""
        return self.masked

    def of_slots(self, logits: Tensor) -> Tensor:
        """(B, w, V): those of a pass's logits that predict the block's slots, in their order."""
        return logits

    def take(self, feed: Feed, tokens: Sequence[Sequence[int]]) -> tuple[Counts, Counts]:
        """What was read of a pass, row by row; (decided, final) tokens of each row."""
        final = tuple([row.decide(one) for row, one in zip(self.rows, tokens, strict=True)])
        if any(row.cut for row in self.rows):
            self._ask()
        return tuple([len(row.decided) for row in self.rows]), final

    def _open_rows(self, firsts: Sequence[Sequence[int]] = ()) -> Counts:
        """Give every row its next block, with its first token where that is known; how many tokens became final by it."""
        final = []
        for index, row in enumerate(self.rows):
            row.open_block()
            final.append(row.decide(firsts[index]) if firsts and row.masked[0] else 0)
            self._work.begin_block(index, sum(row.masked))
        return tuple(final)

    def _ask(self) -> None:
        """Tell the device which slots are to be decided."""
        self.masked = upload([row.masked[: self._width] for row in self.rows], self._device)
