"""Decoding as the public families of block models do it, by a BlockProtocol; the rule that picks slots is any solver.

This module has the pass, the same for all, and two of the three layouts (blocks, window, canvas) that decide what it feeds and
keeps. The mask token is never written. Slots after a stop or the length limit are not decided; published code decides them and
then cuts them off.

Canvas (LLaDA, arXiv 2502.09992; Dream, arXiv 2508.15487) has no KV cache. All slots of the answer are there from the start and
every token sees every other. Only the slots of the current block may be decided: the block size is how far ahead a pass may
decide. The first pass is the prefill: every other pass reads the prompt again.

In a window (SDLM, arXiv 2509.24007) the leading sure slots stay, the rest is drafted again after them. A pass feeds the newest
token twice. The clean copy, whose KV is kept, sees what is before it. The window's first token is the second copy, which sees
the whole window. The window does not see the clean copy. Every position predicts the token after it, so the window's k
positions predict k tokens. The prompt is read as NTP reads it. Published code opens the first window in that pass; here that is
a pass of its own. Axes: B rows, A slots of the answer, w of them in the current block, k slots of the window, n columns of a
segment, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from harness.decoding.acceptance import Acceptance
from harness.decoding.block_diffusion_blocks import Blocks, Counts, Feed, Layout
from harness.decoding.request import Decoder, DecodeRequest, finished, make_pass, padded_segment, positions_to
from harness.decoding.sampling import draw, usable
from harness.decoding.session import ModelSession, upload
from harness.decoding.solvers import BlockView
from harness.models.block_families import BlockProtocol
from harness.record.trace import ForwardPass, Role


class Canvas(Layout):
    """The segment is the whole canvas; ``tokens`` and ``masked`` are of the current block."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._answer = self.request.max_new_tokens
        rows = [[*prompt, *[self.mask_id] * self._answer] for prompt in self.request.prompts]
        self._fed = tuple(map(len, rows))
        self._segment = padded_segment(rows, self._fed, self.device, logits=0)
        self._segment.visibility = "bidirectional"
        self.capacity = max(self._fed)
        self._start = -self.size

    def feeds(self) -> Iterator[Feed]:
        """See Layout."""
        nothing = (0,) * len(self.rows)
        while not all(row.ended for row in self.rows):
            self._start += self.size
            self.width = min(self.size, self._answer - self._start)
            first = self.capacity - self._answer + self._start
            self._block = self.tokens = self._segment.tokens[:, first : first + self.width]
            self._open_rows()
            self._ask()
            self._segment.logits = self._answer - self._start + (self.protocol.prediction == "shifted")
            while any(row.deciding for row in self.rows):
                yield Feed(segments=[self._segment], query_tokens=self._fed, kept_tokens=nothing, says="slots")

    def of_slots(self, logits: Tensor) -> Tensor:
        """See Layout; the pass's logits begin with the block's first slot, or the position before it."""
        return logits[:, : self.width]

    def decide(self, chosen: Tensor, tokens: Tensor) -> Tensor:
        """See DeviceBlocks."""
        said = super().decide(chosen, tokens)
        self._block[:] = self.tokens
        return said


class OpenWindow(Layout):
    """What stays of a window is fed as clean tokens in the next pass."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._masks = [self.mask_id] * (self.size - 1)
        self._texts = [list(prompt) for prompt in self.request.prompts]
        self._unkept: Counts = (1,) * len(self._texts)  # newest tokens of each text whose KV is not kept yet
        self.capacity = max(map(len, self._texts)) + self.request.max_new_tokens + 2 * self.size

    def feeds(self) -> Iterator[Feed]:
        """See Layout; the window begins one token before its slots, so no logits are shifted."""
        yield self._prompt()
        while not all(row.ended for row in self.rows):
            self._open_rows()
            self._ask()
            yield self._feed()

    def decide(self, chosen: Tensor, tokens: Tensor) -> Tensor:
        """See DeviceBlocks; the device keeps no tokens of a window."""
        return torch.where(chosen, tokens, -1)

    def take(self, feed: Feed, tokens: Sequence[Sequence[int]]) -> tuple[Counts, Counts]:
        """See Layout."""
        if feed.says == "nothing":
            return (0,) * len(self.rows), (0,) * len(self.rows)
        decided, self._unkept = super().take(feed, tokens)
        for row, text, count in zip(self.rows, self._texts, self._unkept, strict=True):
            text += row.output[len(row.output) - count :]
        return decided, self._unkept

    def _prompt(self) -> Feed:
        """The prompt; its last token is fed anew with the first window, so its KV is not kept."""
        lengths = tuple(map(len, self._texts))
        segment = padded_segment(self.request.prompts, lengths, self.device, logits=1)
        return Feed(
            segments=[segment], query_tokens=lengths, kept_tokens=tuple([length - 1 for length in lengths]), says="nothing"
        )

    def _feed(self) -> Feed:
        size, kept, lengths = self.size, self._unkept, [*map(len, self._texts)]
        width = max(kept)
        texts = zip(self._texts, kept, strict=True)
        rows = [[*text[len(text) - count :], text[-1], *self._masks] for text, count in texts]
        segment = padded_segment(rows, lengths, self.device, logits=size)
        ends = [length + size - 1 for length in lengths]  # the window begins with the newest token, at its position
        positions = [positions_to(lengths, width), positions_to(ends, size)]
        segment.positions = upload(torch.cat(positions, dim=1), self.device)
        segment.visibility = "explicit"
        segment.seen = torch.ones(width + size, width + size, dtype=torch.bool)
        segment.seen[:width] = segment.seen[:width].tril()
        segment.seen[width:, width - 1] = False
        return Feed(segments=[segment], query_tokens=tuple([count + size for count in kept]), kept_tokens=kept, says="slots")


LAYOUTS = {"blocks": Blocks, "window": OpenWindow, "canvas": Canvas}


def decode_block_diffusion(
    session: ModelSession,
    request: DecodeRequest,
    *,
    protocol: BlockProtocol,
    block_size: int,
    mask_id: int,
    acceptance: Acceptance,
) -> Decoder:
    """Yield every pass as it happens; the generator's return value is the whole Generation.

    The first pass is the prefill: what it decides is no decode token, as with the token that a prompt gives NTP.
    """
    layout: Layout = LAYOUTS[protocol.layout](request, protocol, block_size, mask_id, acceptance.begin_block)
    session.reset(len(request.prompts), layout.capacity)
    suppressed = request.never_written(mask_id)
    passes: list[ForwardPass] = []
    for feed in layout.feeds():
        logits, made = make_pass(session, feed.segments, feed.query_tokens)
        read: list[list[int]] = []
        if feed.says == "first slot":
            read = session.read(draw(usable(logits[:, -1:], suppressed), request))
        elif feed.says == "slots":
            of_slots = usable(layout.of_slots(logits), suppressed)
            chosen = acceptance.choose(BlockView(of_slots, layout.asked, request.temperature, request.figures))
            read = session.read(layout.decide(chosen, draw(of_slots, request)))
        made.keep(session, feed.kept_tokens)
        active = tuple([row.deciding if feed.says == "slots" else not row.ended for row in layout.rows])
        decided, final = layout.take(feed, read)
        role: Role = "commit+decide" if any(feed.kept_tokens) else "decide"
        passes.append(made.described(role if passes else "prefill", feed.kept_tokens, decided, final, active))
        yield passes[-1]
    return finished(request, layout.rows, passes)
