"""Decodes of every arm on a tiny model."""

from __future__ import annotations

from functools import partial

from harness.decoding.acceptance import SolverAcceptance
from harness.decoding.apd import decode_adaptive_parallel
from harness.decoding.freedave import decode_nested_drafts
from harness.decoding.next_token import decode_next_token
from harness.decoding.set_block import decode_set_block
from tests.helpers import few_rivals, few_words
from tests.helpers.few_words import MASK_ID
from tests.helpers.solver_rules import SOLVERS

ARMS = ("ntp", "lockstep", "ragged", "nested", "apd", *few_words.METHODS, *(f"drafts: {name}" for name in few_rivals.DRAFTERS))


def some_decode(arm, target, seed, opened, request):
    """The generator of passes of one of ARMS; ``opened`` makes a session of a module."""
    block = {"block_size": 5, "mask_id": MASK_ID}
    sets = partial(decode_set_block, acceptance=SolverAcceptance(SOLVERS["entropy_bounded"], gamma=1.5), **block)
    ours = {
        "ntp": decode_next_token,
        "lockstep": sets,
        "ragged": partial(sets, batching="ragged"),
        "nested": partial(decode_nested_drafts, draft_steps=3, **block),
        "apd": partial(decode_adaptive_parallel, mixture=0.5, **block),
    }
    if arm.startswith("drafts: "):
        return few_rivals.decode(arm.removeprefix("drafts: "), target, "llama", seed, opened, request)[0]
    if arm in ours:
        return ours[arm](opened(target), request)
    return few_words.decoder(arm, opened(target), request, block_size=5)
