"""Two layouts of block diffusion: Canvas feeds the whole sequence in every pass, Window opens k slots anew behind every pass.

Canvas (LLaDA, arXiv 2502.09992; Dream, arXiv 2508.15487) has no KV cache. All slots of the answer are there from the start and
every token sees every other. Only the slots of the current block may be decided: the block size is how far ahead a pass may
decide. The first pass is the prefill: every other pass reads the prompt again.

In a Window (SDLM, arXiv 2509.24007) the leading sure slots stay, the rest is drafted again behind them. A pass feeds the newest
token twice. The clean copy, whose KV is kept, sees what is before it. The window's first token is the second copy, which sees
the whole window. The window does not see the clean copy. Every position predicts the token behind it, so the window's k
positions predict k tokens. The prompt is read as NTP reads it. Published code opens the first window in that pass; here that is
a pass of its own. Axes: B rows, A slots of the answer, w of them in the current block, k slots of the window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from harness.decoding.block_diffusion_feed import Feed, positions_to, right_aligned
from harness.decoding.open_blocks import BlockRow
from harness.decoding.request import DecodeRequest
from harness.decoding.session import Segment, upload
from harness.models.block_families import BlockProtocol


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


class Window:
    """A harness.decoding.block_diffusion_feed.FeedPlan."""

    def __init__(
        self,
        request: DecodeRequest,
        protocol: BlockProtocol,
        block_size: int,
        mask_id: int,
        begin_block: Callable[[int, int], None],
    ) -> None:
        self._request, self._size, self._begin_block = request, block_size, begin_block
        self._masks = [mask_id] * (block_size - 1)
        self.rows = [BlockRow(request.stop, request.max_new_tokens, block_size, mask_id) for _ in request.prompts]
        self._clean: list[Sequence[int]] = [prompt[-1:] for prompt in request.prompts]  # tokens whose KV is not kept yet
        self._lengths = [len(prompt) for prompt in request.prompts]
        self._last = [prompt[-1] for prompt in request.prompts]
        self.capacity = max(self._lengths) + request.max_new_tokens + 2 * block_size
        self.asked = torch.empty(0)

    def feeds(self) -> Iterator[Feed]:
        """See FeedPlan."""
        yield self._prompt()
        while not all(row.ended for row in self.rows):
            active = tuple([not row.ended for row in self.rows])
            for index, row in enumerate(self.rows):
                row.open_block()
                self._begin_block(index, sum(row.masked))
            self.asked = upload([row.masked for row in self.rows], self._request.device)
            yield self._feed(active)

    def of_slots(self, logits: Tensor) -> Tensor:
        """See FeedPlan; the window begins one token before its slots, so nothing is shifted."""
        return logits

    def write(self, chosen: Tensor, tokens: Tensor) -> Tensor:
        """See FeedPlan; what stays is fed as clean tokens in the next pass."""
        return torch.where(chosen, tokens, -1)

    def take(self, feed: Feed, tokens: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """See FeedPlan."""
        if feed.says == "nothing":
            return (0,) * len(self.rows), (0,) * len(self.rows)
        final = []
        for index, (row, one) in enumerate(zip(self.rows, tokens, strict=True)):
            final.append(row.decide(one))
            self._clean[index] = row.output[len(row.output) - final[-1] :]
            self._lengths[index] += final[-1]
            self._last[index] = row.output[-1] if row.output else self._last[index]
        return tuple([len(one) - list(one).count(-1) for one in tokens]), tuple(final)

    def _prompt(self) -> Feed:
        """The prompt; its last token is fed anew with the first window, so its KV is not kept."""
        width, lengths = max(self._lengths), tuple(self._lengths)
        tokens, valid = right_aligned(self._request.prompts, width, self._request.device)
        segment = Segment(
            tokens=tokens, positions=positions_to(lengths, width, self._request.device), visibility="causal", logits=1,
            valid=valid,
        )  # fmt: skip
        return Feed(
            role="prefill", segments=[segment], query_tokens=lengths, kept_tokens=tuple([length - 1 for length in lengths]),
            keeps=(width - 1,) * len(lengths), says="nothing", active=(True,) * len(lengths),
        )  # fmt: skip

    def _feed(self, active: tuple[bool, ...]) -> Feed:
        device, size = self._request.device, self._size
        width = max(map(len, self._clean))
        window = [[last, *self._masks] for last in self._last]
        rows = [[*clean, *slots] for clean, slots in zip(self._clean, window, strict=True)]
        tokens, valid = right_aligned(rows, width + size, device)
        ends = [length + size - 1 for length in self._lengths]  # the window begins with the newest token, at its position
        positions = torch.cat([positions_to(self._lengths, width, device), positions_to(ends, size, device)], dim=1)
        seen = torch.ones(width + size, width + size, dtype=torch.bool)
        seen[:width] = seen[:width].tril()
        seen[width:, width - 1] = False
        segment = Segment(tokens=tokens, positions=positions, visibility="explicit", logits=size, valid=valid, seen=seen)
        kept = tuple(map(len, self._clean))
        return Feed(
            role="commit+decide", segments=[segment], query_tokens=tuple([count + size for count in kept]), kept_tokens=kept,
            keeps=(width,) * len(kept), says="slots", active=active,
        )  # fmt: skip
