"""One block after another over a KV cache: block diffusion as SDAR, LLaDA2, Fast-dLLM v2, BD3-LM and Nemotron decode.

The prompt is read once. A block is fed until all its slots are known, then once more so that its KV is that of known tokens.
``merged``: that second time is part of the next block's first pass. In a batch all rows open their blocks together; a row with
nothing left to decide waits. Axes: B rows, w columns of the block, k of them unless the last block is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from harness.decoding.block_diffusion_feed import Feed, positions_to, right_aligned, slots_before
from harness.decoding.open_blocks import BlockRow
from harness.decoding.request import DecodeRequest, StopRule
from harness.decoding.session import Segment, upload
from harness.models.block_families import BlockProtocol


class BlockDiffusionRow(BlockRow):
    """A BlockRow, in plain integers, whose first block begins with ``given`` tokens of the prompt: its slots are the columns
    behind them. Columns: positions 0..k-1 of the fed block. In every other block they are the slots.
    """

    def __init__(self, stop: StopRule, max_new_tokens: int, block_size: int, mask_id: int, given: int = 0) -> None:
        super().__init__(stop, max_new_tokens, block_size, mask_id)
        self._given_first = given
        self.given = 0

    def open_block(self) -> int:
        """Start the next block; see BlockRow."""
        self.given, self._given_first = self._given_first, 0
        self._room = len(self.slots) - self.given
        return super().open_block()

    @property
    def masked_columns(self) -> list[bool]:
        """Which columns are to be decided."""
        return [False] * self.given + self.masked[: len(self.slots) - self.given]

    def decide_columns(self, tokens: Sequence[int]) -> int:
        """Take the tokens of one pass by column (-1, or none at the end: not decided); returns how many output tokens became
        final by it.
        """
        slots = [*tokens[self.given :]]
        return self.decide(slots + [-1] * (len(self.slots) - len(slots)))


class Blocks:
    """A harness.decoding.block_diffusion_feed.FeedPlan. ``begin_block(row, slots)`` is called as a block begins."""

    def __init__(
        self,
        request: DecodeRequest,
        protocol: BlockProtocol,
        block_size: int,
        mask_id: int,
        begin_block: Callable[[int, int], None],
    ) -> None:
        self._request, self._protocol, self._size, self._begin_block = request, protocol, block_size, begin_block
        lengths = [len(prompt) for prompt in request.prompts]
        self._whole = [length - length % block_size if protocol.borders == "sequence" else length for length in lengths]
        self.rows = [
            BlockDiffusionRow(request.stop, request.max_new_tokens, block_size, mask_id, given=length - whole)
            for length, whole in zip(lengths, self._whole, strict=True)
        ]
        self._width = max(self._whole)
        if protocol.committed == "block":
            self._width += -self._width % block_size
        self.capacity = self._width + request.max_new_tokens + 3 * block_size
        self._ends = [whole + block_size for whole in self._whole]
        self._left = request.max_new_tokens
        self._finished: Segment | None = None
        self._tokens = self._positions = self._masked = torch.empty(0)

    def feeds(self) -> Iterator[Feed]:
        """See FeedPlan."""
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
        """See FeedPlan; of every row the leftmost run of sub_block slots that has any left."""
        run = self._protocol.sub_block
        if run is None:
            return self._masked
        runs = torch.arange(self._masked.shape[1], device=self._masked.device) // run
        first = self._masked.int().argmax(dim=1, keepdim=True) // run
        return self._masked & (runs == first)

    def of_slots(self, logits: Tensor) -> Tensor:
        """See FeedPlan."""
        return logits if self._protocol.prediction == "own" else slots_before(logits)

    def write(self, chosen: Tensor, tokens: Tensor) -> Tensor:
        """See FeedPlan."""
        self._tokens = torch.where(chosen, tokens, self._tokens)
        self._masked = self._masked ^ chosen
        return torch.where(chosen, tokens, -1)

    def take(self, feed: Feed, tokens: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """See FeedPlan."""
        if feed.opens:
            return self._open(tokens)
        final = tuple([row.decide_columns(one) for row, one in zip(self.rows, tokens, strict=True)])
        if any(row.cut for row in self.rows):
            self._masked = self._upload([row.masked_columns for row in self.rows])
        return tuple([len(one) - list(one).count(-1) for one in tokens]), final

    def _prompt(self) -> Feed:
        """The prompt, or its whole blocks; one block sees the other as in the cache."""
        device, width = self._request.device, self._width
        prompts = [prompt[:whole] for prompt, whole in zip(self._request.prompts, self._whole, strict=True)]
        tokens, valid = right_aligned(prompts, width, device)
        block = torch.arange(width) // self._size
        of_blocks = self._protocol.committed == "block"
        segment = Segment(
            tokens=tokens, positions=positions_to(self._whole, width, device), logits=self._logits_of_commit, valid=valid,
            visibility="explicit" if of_blocks else "causal", seen=block[None, :] <= block[:, None] if of_blocks else None,
        )  # fmt: skip
        return self._keeping(segment, tuple(self._whole), active=(True,) * len(self.rows))

    def _decide(self) -> Feed:
        segment = Segment(
            tokens=self._tokens, positions=self._positions, visibility="bidirectional", logits=self._tokens.shape[1]
        )
        finished, self._finished = self._finished, None
        segments, kept = [segment] if finished is None else [finished, segment], 0 if finished is None else self._size
        every = (kept,) * len(self.rows)
        return Feed(
            role="commit+decide" if kept else "decide", segments=segments, keeps=every, kept_tokens=every, says="slots",
            query_tokens=(kept + self._tokens.shape[1],) * len(self.rows), active=tuple([row.deciding for row in self.rows]),
        )  # fmt: skip

    def _commit(self) -> Feed:
        every = (self._size,) * len(self.rows)
        active = tuple([not row.ended for row in self.rows])
        return self._keeping(self._committed(self._logits_of_commit), every, active)

    def _committed(self, logits: int) -> Segment:
        return Segment(
            tokens=self._tokens, positions=self._positions, logits=logits,
            visibility="causal" if self._protocol.committed == "causal" else "bidirectional",
        )  # fmt: skip

    def _keeping(self, segment: Segment, kept: tuple[int, ...], active: tuple[bool, ...]) -> Feed:
        return Feed(
            role="commit+decide", segments=[segment], query_tokens=kept, kept_tokens=kept, active=active, opens=True,
            keeps=(segment.tokens.shape[1],) * len(self.rows), says="first slot" if segment.logits else "nothing",
        )  # fmt: skip

    @property
    def _logits_of_commit(self) -> int:
        return int(self._protocol.first_slot == "committed")

    def _open(self, firsts: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Give every row its next block, with its first token where that is known."""
        decided, final = [0] * len(self.rows), [0] * len(self.rows)
        for index, row in enumerate(self.rows):
            row.open_block()
            if firsts and not row.given and not row.ended:
                decided[index], final[index] = 1, row.decide_columns(firsts[index])
            self._begin_block(index, sum(row.masked))
        width = self._size if self._protocol.last_block == "whole" else min(self._size, self._left)
        self._left -= self._size
        given = (prompt[whole:] for prompt, whole in zip(self._request.prompts, self._whole, strict=True))
        columns = [[*(tail if row.given else ()), *row.slots][:width] for tail, row in zip(given, self.rows, strict=True)]
        self._tokens = upload(columns, self._request.device)
        self._positions = positions_to(self._ends, self._size, self._request.device)[:, :width]
        self._ends = [end + self._size for end in self._ends]
        self._masked = self._upload([row.masked_columns for row in self.rows])
        return tuple(decided), tuple(final)

    def _upload(self, masked: list[list[bool]]) -> Tensor:
        return upload(masked, self._request.device)[:, : self._tokens.shape[1]]
