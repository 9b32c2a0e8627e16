"""Adaptive parallel decoding (APD, arXiv 2506.00413) with the model's own next-token head as the auxiliary model.

The masked head drafts the whole block in one step; a causal pass over the draft asks the next-token head. A token is then drawn
again, with the same noise, from the mixture R x masked + (1 - R) x next-token logits. Drafts count up to the first that differs
from this draw; the first draft always counts. APD is lossy: the masked head's token counts where the mixture agrees. A larger R
refuses fewer drafts, R = 1 none. APD keeps an approximate cache; here the checking pass writes exact KV. It also feeds the next
block's masks, as in harness.decoding.verified_blocks. Axes: B rows, k slots of a block, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from harness.decoding.acceptance import EverySlot
from harness.decoding.request import Checked, Decoder, DecodeRequest
from harness.decoding.sampling import widened
from harness.decoding.session import ModelSession, refuse_no_token
from harness.decoding.verification import NextTokenCheck, VerifiedRow
from harness.decoding.verified_blocks import decode_verified_blocks


def decode_adaptive_parallel(
    session: ModelSession, request: DecodeRequest, *, block_size: int, mask_id: int, mixture: float
) -> Decoder:
    """Two passes an iteration, or one where a whole block counts. ``mixture``: R, the weight of the masked head.

    Yield every pass as it happens; the generator's return value is the whole Generation.
    """
    return decode_verified_blocks(
        session,
        request,
        block_size=block_size,
        mask_id=mask_id,
        acceptance=EverySlot(),
        check=MixtureCheck(mixture),
        row_type=AdaptiveRow,
    )


class MixtureCheck(NextTokenCheck):
    """Mixes masked and next-token logits position by position; the first slot of a block is always right."""

    def __init__(self, mixture: float) -> None:
        super().__init__()
        self._mixture = mixture
        self._of_drafts: Tensor | None = None

    def drafted(self, logits: Tensor) -> None:
        """Keep a copy (the session may write over its own): a row checks next what it drafted last."""
        self._of_drafts = logits.clone()

    def verdicts(self, of_head: Tensor) -> Tensor:
        """The mixture of the two predictions for slot i + 1; after the last slot the next-token head's alone."""
        assert self._of_drafts is not None, "a block is drafted before it is checked"
        of_head = widened(of_head)
        mixed = self._mixture * widened(self._of_drafts[:, 1:]) + (1 - self._mixture) * of_head[:, :-1]
        # A token that is never written has no logit to mix: 0 times minus infinity is NaN.
        return torch.cat([torch.where(of_head[:, :-1].isneginf(), of_head[:, :-1], mixed), of_head[:, -1:]], dim=1)


class AdaptiveRow(VerifiedRow):
    """A row that writes its own drafts: no slot of a block is final before it is checked."""

    KNOWN = 0

    def check(self, verdicts: Sequence[int]) -> Checked:
        """Take the drafts as far as the verdict after each is the next one; the first is taken in any case."""
        final = 0
        for draft, said in zip(self.slots, (self.slots[0], *verdicts), strict=False):
            if self.ended:
                break
            refuse_no_token(said)
            if draft != said:
                break
            self.write(draft)
            final += 1
        self._open()
        return Checked(final=final, agreed=final)
