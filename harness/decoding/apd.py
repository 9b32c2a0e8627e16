"""Adaptive parallel decoding (APD, arXiv 2506.00413) with the model's own next-token head as the auxiliary model.

The masked head drafts the whole block in one step; a causal pass over the draft asks the next-token head. With the same noise
both are asked again together, R x masked + (1 - R) x next-token logits, and the drafts count as far as that gives them anew;
the first always does. Lossy: what counts is the masked head's token, and it counts where the mixture does not object. The
larger R, the fewer objections: at 1 a draft is never refused. APD keeps an approximate cache; here the checking pass writes
exact KV, and the next block's masks are fed in it too, as in harness.decoding.verified_blocks.
Axes: B rows, k slots of a block, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import torch
from torch import Tensor

from harness.decoding.acceptance import EverySlot
from harness.decoding.request import DecodeRequest
from harness.decoding.sampling import refuse_no_token, widened
from harness.decoding.session import ModelSession
from harness.decoding.solvers import BlockView
from harness.decoding.verification import Checked, VerifiedRow
from harness.decoding.verified_blocks import decode_verified_blocks
from harness.record.trace import ForwardPass, Generation


def decode_adaptive_parallel(
    session: ModelSession, request: DecodeRequest, *, block_size: int, mask_id: int, mixture: float
) -> Generator[ForwardPass, None, Generation]:
    """Two passes an iteration, or one where a whole block counts. ``mixture``: R, the weight of the masked head.

    Yield every pass as it happens; the generator's return value is the whole Generation.
    """
    return decode_verified_blocks(
        session, request, block_size=block_size, mask_id=mask_id, acceptance=EverySlot(), check=MixtureCheck(mixture),
        row_type=AdaptiveRow,
    )  # fmt: skip


class MixtureCheck:
    """Masked and next-token head together, position by position; nothing is held against the first slot of a block."""

    def __init__(self, mixture: float) -> None:
        self._mixture = mixture
        self._of_drafts: Tensor | None = None

    def drafted(self, logits: Tensor) -> None:
        """Remember them (the session may write over its own): a row checks next what it drafted last."""
        self._of_drafts = logits.clone()

    def worth(self, view: BlockView, tokens: Tensor) -> Tensor:
        """All of them."""
        return tokens

    def verdicts(self, behind: Tensor) -> Tensor:
        """For slot i + 1 the mixture of its two predictions; behind the last slot there is but one."""
        assert self._of_drafts is not None, "a block is drafted before it is checked"
        behind = widened(behind)
        mixed = self._mixture * widened(self._of_drafts[:, 1:]) + (1 - self._mixture) * behind[:, :-1]
        # A token that is never written has no logit to mix: 0 times minus infinity is no number.
        return torch.cat([torch.where(behind[:, :-1].isneginf(), behind[:, :-1], mixed), behind[:, -1:]], dim=1)

    def heard(self, row: int, slots: Sequence[int], verdicts: Sequence[int]) -> Sequence[int]:
        """What was drawn."""
        return verdicts


class AdaptiveRow(VerifiedRow):
    """A row that writes its own drafts: no slot of a block is final before it is checked."""

    KNOWN = 0

    def check(self, verdicts: Sequence[int]) -> Checked:
        """Take the drafts as far as the verdict behind each is the next one; the first is taken in any case."""
        final = 0
        for slot, token in enumerate(self.slots):
            if slot:
                refuse_no_token(verdicts[slot - 1])
                if token != verdicts[slot - 1]:
                    break
            self._finish(token)
            final += 1
            if self.ended:
                break
        self._open()
        return Checked(final=final, agreed=final)
