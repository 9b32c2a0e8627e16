"""Verified Set Block Decoding: what SBD without loss costs per token, from how often the next-token head agrees with a draft.

Agreement is taken as independent from slot to slot, as in speculative decoding (arXiv 2211.17192, section 3.1).
"""

from __future__ import annotations

from harness.errors import UserError
from harness.roofline.methods.calls import MethodTrace, Setting, at_least, probability, target_call
from harness.roofline.methods.speculative import expected_tokens


def verified_set_block(at: Setting, *, block_size: int, draft_passes: float, acceptance: float) -> MethodTrace:
    """Equation 16 of arXiv 2509.04185 for blocks that are checked: per block one pass of 2k query tokens, that checks it and
    opens the next, and so many passes of k that a full draft takes, less the one that came with the check.

    Slot 0 is the next-token head's own, so k - 1 drafts are checked and E = (1 - a^k) / (1 - a) tokens gained a check, one of
    them the head's. The masks that ride along are the next block's first draft pass only where the whole block was right,
    a^(k-1) of the time; else they stand in the wrong place and the block is opened by a pass of its own. At a = 1 this is
    equation 16 with l = ``draft_passes``, token for token.

    Args:
        draft_passes: mean passes until all slots of a block are drafted, the first included.
        acceptance: probability that the head agrees with a draft behind drafts that it agreed with.

    Raises:
        UserError: a block below 1, passes outside 1 to the block size, or no probability.
    """
    at_least("block size", block_size, 1)
    if not 1 <= draft_passes <= block_size:
        raise UserError(f"draft passes: given was {draft_passes:g}, allowed are 1 to the block size, {block_size}")
    drafts = block_size - 1
    gained = expected_tokens(probability("acceptance", acceptance), drafts)
    before = max(0, at.context_tokens - 1)  # slot 0 is known, its KV is written by the check
    check = target_call(
        at, "verify+draft", 1 / gained, query=2 * block_size, logits=2 * block_size, kept=block_size, context=before
    )
    passes = draft_passes - acceptance**drafts
    draft = target_call(at, "draft", passes / gained, query=block_size, logits=block_size, context=before)
    return MethodTrace(family="verified set block", calls=(check, draft), notes="agreement independent from slot to slot")
