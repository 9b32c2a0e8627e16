"""What the layouts of block diffusion share; and Blocks: one block after another over a KV cache.

Blocks decodes as SDAR, LLaDA2, Fast-dLLM v2, BD3-LM and Nemotron do. The prompt is read once. A block is fed until all its
slots are known, then once more so that its KV is that of known tokens. ``merged``: that second time is part of the next block's
first pass. In a batch all rows open their blocks together; a row with nothing left to decide waits. Axes: B rows, n columns of
a segment, w columns of the block, k of them unless the last block is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from harness.decoding.open_blocks import BlockRow, DeviceBlocks
from harness.decoding.request import DecodeRequest, padded_segment, positions_to
from harness.decoding.session import Segment, upload
from harness.frozen import frozen
from harness.models.block_families import BlockProtocol

Counts = tuple[int, ...]
"""Tokens of each row."""


@frozen
class Feed:
    """One pass. ``says``: what its logits are read for: the block's slots, the next block's first slot, or nothing.

    ``query_tokens``, ``kept_tokens``  real tokens of each row, fed and kept; kept are the first of them
    """

    segments: list[Segment]
    query_tokens: Counts
    kept_tokens: Counts
    says: Literal["slots", "first slot", "nothing"]


@dataclass
class Layout(DeviceBlocks):
    """The passes of one batch. After each of ``feeds`` its outcome is handed to ``take``. ``begin_block(row, slots)`` is called
    as a block begins. ``capacity``: tokens of a row that the session must make room for.
    """

    request: DecodeRequest
    protocol: BlockProtocol
    size: int
    mask_id: int
    begin_block: Callable[[int, int], None]
    capacity: int = field(init=False)

    def __post_init__(self) -> None:
        self.device, self.width = self.request.device, self.size
        stop, most = self.request.stop, self.request.max_new_tokens
        self.rows = [BlockRow(stop, most, self.size, self.mask_id, first) for first in self.given()]

    def given(self) -> Sequence[Sequence[int]]:
        """The tokens with which each row's first block begins."""
        return [()] * len(self.request.prompts)

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
        final = tuple([row.decide(of_row) for row, of_row in zip(self.rows, tokens, strict=True)])
        if any(row.cut for row in self.rows):
            self._ask()
        return tuple([len(row.decided) for row in self.rows]), final

    def _open_rows(self, firsts: Sequence[Sequence[int]] = ()) -> Counts:
        """Give every row its next block, with its first token where that is known; how many tokens became final by it."""
        final = []
        for index, row in enumerate(self.rows):
            row.open_block()
            final.append(row.decide(firsts[index]) if firsts and row.masked[0] else 0)
            self.begin_block(index, sum(row.masked))
        return tuple(final)

    def _ask(self) -> None:
        """Tell the device which slots are to be decided."""
        self.masked = upload([row.masked[: self.width] for row in self.rows], self.device)


class Blocks(Layout):
    """Where blocks begin at multiples of k, a row's first block begins with what its prompt has after its whole blocks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._prompt_width = max(self._whole)
        if self.protocol.committed == "block":
            self._prompt_width += -self._prompt_width % self.size
        self._left = self.request.max_new_tokens
        self.capacity = self._prompt_width + self._left + 3 * self.size
        self._ends = [whole + self.size for whole in self._whole]
        self._finished: Segment | None = None
        self._logits_of_commit = int(self.protocol.first_slot == "committed")

    def given(self) -> Sequence[Sequence[int]]:
        """See Layout."""
        prompts, of_sequence = self.request.prompts, self.protocol.borders == "sequence"
        self._whole = tuple([len(prompt) - len(prompt) % self.size * of_sequence for prompt in prompts])
        return [prompt[whole:] for prompt, whole in zip(prompts, self._whole, strict=True)]

    def feeds(self) -> Iterator[Feed]:
        """See Layout."""
        if any(self._whole):
            yield self._prompt()
        else:
            self._open([])
        while not all(row.ended for row in self.rows):
            while any(row.deciding for row in self.rows):
                yield self._decide()
            if all(row.ended for row in self.rows):
                return
            if self.protocol.commit == "merged":
                self._finished = self._committed(logits=0)
                self._open([])
            else:
                yield self._keeping(self._committed(self._logits_of_commit), (self.size,) * len(self.rows))

    @property
    def asked(self) -> Tensor:
        """See Layout; of every row the leftmost run of sub_block slots that has any left."""
        run = self.protocol.sub_block
        if run is None:
            return self.masked
        runs = torch.arange(self.masked.shape[1], device=self.masked.device) // run
        first = self.masked.int().argmax(dim=1, keepdim=True) // run
        return self.masked & (runs == first)

    def of_slots(self, logits: Tensor) -> Tensor:
        """See Layout; shifted, slot i gets the logits of position i - 1. Slot 0 has none of its own and must be known."""
        return logits if self.protocol.prediction == "own" else torch.cat([logits[:, :1], logits[:, :-1]], dim=1)

    def take(self, feed: Feed, tokens: Sequence[Sequence[int]]) -> tuple[Counts, Counts]:
        """See Layout."""
        return super().take(feed, tokens) if feed.says == "slots" else self._open(tokens)

    def _prompt(self) -> Feed:
        """The prompt, or its whole blocks; one block sees the other as in the cache."""
        width = self._prompt_width
        prompts = [prompt[:whole] for prompt, whole in zip(self.request.prompts, self._whole, strict=True)]
        segment = padded_segment(prompts, self._whole, self.device, self._logits_of_commit, width)
        if self.protocol.committed == "block":
            block = torch.arange(width) // self.size
            segment.visibility, segment.seen = "explicit", block[None, :] <= block[:, None]
        return self._keeping(segment, self._whole)

    def _decide(self) -> Feed:
        width, kept, segments = self.tokens.shape[1], 0, []
        if self._finished is not None:
            kept, segments, self._finished = self.size, [self._finished], None
        segments.append(Segment(tokens=self.tokens, positions=self._positions, visibility="bidirectional", logits=width))
        rows = len(self.rows)
        return Feed(segments=segments, query_tokens=(kept + width,) * rows, kept_tokens=(kept,) * rows, says="slots")

    def _committed(self, logits: int) -> Segment:
        return Segment(
            tokens=self.tokens,
            positions=self._positions,
            logits=logits,
            visibility="causal" if self.protocol.committed == "causal" else "bidirectional",
        )

    def _keeping(self, segment: Segment, kept: Counts) -> Feed:
        return Feed(segments=[segment], query_tokens=kept, kept_tokens=kept, says="first slot" if segment.logits else "nothing")

    def _open(self, firsts: Sequence[Sequence[int]]) -> tuple[Counts, Counts]:
        """Give every row its next block, with its first token where that is known."""
        final = self._open_rows(firsts)
        self.width = self.size if self.protocol.last_block == "whole" else min(self.size, self._left)
        self._left -= self.size
        self.tokens = upload([row.slots[: self.width] for row in self.rows], self.device)
        self._positions = upload(positions_to(self._ends, self.size)[:, : self.width], self.device)
        self._ends = [end + self.size for end in self._ends]
        self._ask()
        return final, final
