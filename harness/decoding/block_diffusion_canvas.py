"""The whole sequence in every pass, without a KV cache (LLaDA, arXiv 2502.09992; Dream, arXiv 2508.15487).

All slots of the answer are there from the start, every token sees every other, and only the slots of the current block may be
decided: the block size is how far ahead a pass may decide. The first pass reads the prompt for the first time, as every other
reads it again, so it is the prefill. Axes: B rows, A slots of the answer, w of them in the current block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from harness.decoding.block import BlockRow
from harness.decoding.block_diffusion_feed import Feed, positions_to, right_aligned
from harness.decoding.request import DecodeRequest
from harness.decoding.session import Segment
from harness.decoding.uploading import upload
from harness.models.block_protocol import BlockProtocol


class Canvas:
    """A harness.decoding.block_diffusion_feed.FeedPlan."""

    def __init__(
        self,
        request: DecodeRequest,
        protocol: BlockProtocol,
        block_size: int,
        mask_id: int,
        begin_block: Callable[[int, int], None],
    ) -> None:
        self._size, self._answer, self._begin_block = block_size, request.max_new_tokens, begin_block
        self._shift = int(protocol.prediction == "shifted")
        self.rows = [BlockRow(request.stop, request.max_new_tokens, block_size, mask_id) for _ in request.prompts]
        lengths = [len(prompt) for prompt in request.prompts]
        width = max(lengths) + self._answer
        canvas = [[*prompt, *[mask_id] * self._answer] for prompt in request.prompts]
        self._tokens, self._valid = right_aligned(canvas, width, request.device)
        self._fed = tuple([length + self._answer for length in lengths])
        self._positions = positions_to(self._fed, width, request.device)
        self.capacity = width
        self._start = -block_size
        self._masked = torch.empty(0)

    def feeds(self) -> Iterator[Feed]:
        """See FeedPlan."""
        while not all(row.ended for row in self.rows):
            self._open()
            while any(row.deciding for row in self.rows):
                yield self._feed()

    @property
    def asked(self) -> Tensor:
        """See FeedPlan."""
        return self._masked

    def of_slots(self, logits: Tensor) -> Tensor:
        """See FeedPlan; the pass's logits begin with the block's first slot, or the position before it."""
        return logits[:, : self._masked.shape[1]]

    def write(self, chosen: Tensor, tokens: Tensor) -> Tensor:
        """See FeedPlan."""
        first = self._tokens.shape[1] - self._answer + self._start
        block = self._tokens[:, first : first + chosen.shape[1]]
        self._tokens[:, first : first + chosen.shape[1]] = torch.where(chosen, tokens, block)
        self._masked = self._masked ^ chosen
        return torch.where(chosen, tokens, -1)

    def take(self, feed: Feed, tokens: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """See FeedPlan."""
        final = [row.decide([*one, *[-1] * (self._size - len(one))]) for row, one in zip(self.rows, tokens, strict=True)]
        if any(row.cut for row in self.rows):
            self._ask()
        return tuple([len(one) - list(one).count(-1) for one in tokens]), tuple(final)

    def _open(self) -> None:
        self._start += self._size
        for index, row in enumerate(self.rows):
            row.open_block()
            self._begin_block(index, sum(row.masked))
        self._ask()

    def _ask(self) -> None:
        width = min(self._size, self._answer - self._start)
        self._masked = upload([row.masked[:width] for row in self.rows], self._tokens.device)

    def _feed(self) -> Feed:
        nothing = (0,) * len(self.rows)
        segment = Segment(
            tokens=self._tokens, positions=self._positions, visibility="bidirectional", valid=self._valid,
            logits=self._answer - self._start + self._shift,
        )  # fmt: skip
        return Feed(
            role="decide", segments=[segment], query_tokens=self._fed, keeps=nothing, kept_tokens=nothing, says="slots",
            active=tuple([row.deciding for row in self.rows]),
        )  # fmt: skip
