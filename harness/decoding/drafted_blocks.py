"""The drafted block of every row where the model reads it: what a pass of verified decoding is fed, and where its drafts go.

Mirrors the integers of harness.decoding.verification. Nothing is uploaded between two passes that only draft. Axes: B rows,
k slots of a block.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from harness.decoding.session import Segment
from harness.decoding.uploading import upload
from harness.decoding.verification import VerifiedRow
from harness.record.trace import Role


class DraftedBlocks:
    """``checks``: rows whose block the next pass checks, up to the slots ``ends``; ``opens``: of these, the rows whose next
    block rides along; ``drafts``: rows that feed a block of masks and drafts, their own or the one that rides along. ``masked``
    (B, k) bool: the slots of that block which are still to be drafted.
    """

    def __init__(self, block_size: int, mask_id: int, opens_ahead: bool, device: torch.device) -> None:
        self._size, self._mask_id, self._opens_ahead, self._device = block_size, mask_id, opens_ahead, device
        self._slots = torch.arange(block_size, device=device)
        self._stale = True
        self._checked = self._drafted = torch.empty(0, 0, dtype=torch.long)
        self._starts = torch.empty(0, 2, dtype=torch.long)
        self.masked = torch.empty(0, 0, dtype=torch.bool)
        self.checks = self.opens = self.drafts = [False]
        self.ends = [block_size]

    @property
    def role(self) -> Role:
        """Of the pass that was fed last."""
        if not any(self.checks):
            return "draft"
        return "verify+draft" if any(self.drafts) else "verify"

    @property
    def query_tokens(self) -> tuple[int, ...]:
        """Tokens of each row in that pass."""
        checked = [end * checks for end, checks in zip(self.ends, self.checks, strict=True)]
        return tuple([count + self._size * drafts for count, drafts in zip(checked, self.drafts, strict=True)])

    def feed(self, rows: Sequence[VerifiedRow], context: Sequence[int]) -> list[Segment]:
        """What the next pass reads behind ``context`` committed tokens of each row: blocks to check, then blocks to draft."""
        self.checks = [row.checking for row in rows]
        self.opens = [self._opens_ahead and row.checking and True in row.masked_next for row in rows]
        self.drafts = [row.drafting or opens for row, opens in zip(rows, self.opens, strict=True)]
        self.ends = [row.end for row in rows]
        if self._stale or any(self.checks):
            self._upload(rows, context)
        self._stale = any(self.checks)  # the rows go on from another place
        segments = []
        if any(self.checks):
            ends = [end * checks for end, checks in zip(self.ends, self.checks, strict=True)]
            segments.append(self._segment(self._checked, self._starts[:, :1], ends, causal=True))
        if any(self.drafts):
            segments.append(
                self._segment(self._drafted, self._starts[:, 1:], [self._size * one for one in self.drafts], causal=False)
            )
        return segments

    def draft(self, chosen: Tensor, tokens: Tensor) -> Tensor:
        """Put ``tokens`` (B, k) where ``chosen``, which must be masked slots; (B, k) the same tokens, -1 elsewhere."""
        self._drafted = torch.where(chosen, tokens, self._drafted)
        self.masked = self.masked ^ chosen
        return torch.where(chosen, tokens, -1)

    def ask_anew(self) -> None:
        """Other slots are to be drafted than the device knows of."""
        self._stale = True

    def _upload(self, rows: Sequence[VerifiedRow], context: Sequence[int]) -> None:
        """Everything about every row in one copy: where its two blocks begin, what is in them, which slots to draft."""
        size, nothing = self._size, [self._mask_id] * self._size
        table = [
            [start, start + row.end * opens, *row.slots, *(nothing if opens else row.slots),
             *(row.masked_next if opens else row.masked)]
            for row, start, opens in zip(rows, context, self.opens, strict=True)
        ]  # fmt: skip
        held = upload(table, self._device)
        self._starts = held[:, :2]
        self._checked, self._drafted, masked = (held[:, at : at + size] for at in range(2, 2 + 3 * size, size))
        self.masked = masked.bool()

    def _segment(self, tokens: Tensor, starts: Tensor, fed: list[int], *, causal: bool) -> Segment:
        """One block of every row, of which so many slots are ``fed``; the others are padding."""
        whole = all(count == self._size for count in fed)
        return Segment(
            tokens=tokens, positions=starts + self._slots, visibility="causal" if causal else "bidirectional",
            logits=self._size, valid=None if whole else torch.arange(self._size) < torch.tensor(fed)[:, None],
        )  # fmt: skip
