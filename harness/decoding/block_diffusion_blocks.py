"""One block after another over a KV cache: block diffusion as SDAR, LLaDA2, Fast-dLLM v2, BD3-LM and Nemotron decode.

The prompt is read once. A block is fed until all its slots are known, then once more so that its KV is that of known tokens.
``merged``: that second time is part of the next block's first pass. In a batch all rows open their blocks together; a row with
nothing left to decide waits. Axes: B rows, w columns of the block, k of them unless the last block is cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from harness.decoding.block_diffusion_feed import BlockWork, Counts, Feed, Layout
from harness.decoding.passes import padded_segment, positions_to
from harness.decoding.session import Segment, upload


class Blocks(Layout):
    """Where blocks begin at multiples of k, a row's first block begins with what its prompt has behind its whole blocks."""

    def __init__(self, work: BlockWork) -> None:
        size, prompts = work.block_size, work.request.prompts
        of_sequence = work.protocol.borders == "sequence"
        self._whole = tuple([len(prompt) - len(prompt) % size * of_sequence for prompt in prompts])
        super().__init__(work, [prompt[whole:] for prompt, whole in zip(prompts, self._whole, strict=True)])
        self._prompt_width = max(self._whole)
        if work.protocol.committed == "block":
            self._prompt_width += -self._prompt_width % size
        self._left = work.request.max_new_tokens
        self.capacity = self._prompt_width + self._left + 3 * size
        self._ends = [whole + size for whole in self._whole]
        self._finished: Segment | None = None

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
            if self._protocol.commit == "merged":
                self._finished = self._committed(logits=0)
                self._open([])
            else:
                yield self._commit()

    @property
    def asked(self) -> Tensor:
        """See Layout; of every row the leftmost run of sub_block slots that has any left."""
        run = self._protocol.sub_block
        if run is None:
            return self.masked
        runs = torch.arange(self.masked.shape[1], device=self.masked.device) // run
        first = self.masked.int().argmax(dim=1, keepdim=True) // run
        return self.masked & (runs == first)

    def of_slots(self, logits: Tensor) -> Tensor:
        """See Layout; shifted, slot i gets the logits of position i - 1. Slot 0 has none of its own and must be known."""
        return logits if self._protocol.prediction == "own" else torch.cat([logits[:, :1], logits[:, :-1]], dim=1)

    def take(self, feed: Feed, tokens: Sequence[Sequence[int]]) -> tuple[Counts, Counts]:
        """See Layout."""
        return super().take(feed, tokens) if feed.says == "slots" else self._open(tokens)

    def _prompt(self) -> Feed:
        """The prompt, or its whole blocks; one block sees the other as in the cache."""
        width = self._prompt_width
        prompts = [prompt[:whole] for prompt, whole in zip(self._request.prompts, self._whole, strict=True)]
        segment = padded_segment(prompts, self._whole, self._device, self._logits_of_commit, width)
        if self._protocol.committed == "block":
            block = torch.arange(width) // self._size
            segment.visibility, segment.seen = "explicit", block[None, :] <= block[:, None]
        return self._keeping(segment, self._whole)

    def _decide(self) -> Feed:
        width, kept, segments = self.tokens.shape[1], 0, []
        if self._finished is not None:
            kept, segments, self._finished = self._size, [self._finished], None
        segments.append(Segment(tokens=self.tokens, positions=self._positions, visibility="bidirectional", logits=width))
        every = (kept,) * len(self.rows)
        return Feed(
            segments=segments, query_tokens=(kept + width,) * len(self.rows), keeps=every, kept_tokens=every, says="slots"
        )  # fmt: skip

    def _commit(self) -> Feed:
        return self._keeping(self._committed(self._logits_of_commit), (self._size,) * len(self.rows))

    def _committed(self, logits: int) -> Segment:
        return Segment(
            tokens=self.tokens, positions=self._positions, logits=logits,
            visibility="causal" if self._protocol.committed == "causal" else "bidirectional",
        )  # fmt: skip

    def _keeping(self, segment: Segment, kept: Counts) -> Feed:
        return Feed(
            segments=[segment], query_tokens=kept, kept_tokens=kept,
            keeps=(segment.tokens.shape[1],) * len(self.rows), says="first slot" if segment.logits else "nothing",
        )  # fmt: skip

    @property
    def _logits_of_commit(self) -> int:
        return int(self._protocol.first_slot == "committed")

    def _open(self, firsts: Sequence[Sequence[int]]) -> tuple[Counts, Counts]:
        """Give every row its next block, with its first token where that is known."""
        final = self._open_rows(firsts)
        self._width = self._size if self._protocol.last_block == "whole" else min(self._size, self._left)
        self._left -= self._size
        self.tokens = upload([row.slots[: self._width] for row in self.rows], self._device)
        self._positions = upload(positions_to(self._ends, self._size)[:, : self._width], self._device)
        self._ends = [end + self._size for end in self._ends]
        self._ask()
        return final, final
