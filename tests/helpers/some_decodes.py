"""Decodes of every arm on a tiny model."""

from __future__ import annotations

from functools import partial

from harness.decoding.acceptance import SolverAcceptance
from harness.decoding.apd import decode_adaptive_parallel
from harness.decoding.freedave import decode_nested_drafts
from harness.decoding.next_token import decode_next_token
from harness.decoding.set_block import decode_set_block
from tests.helpers import few_rivals, few_words
from tests.helpers.few_words import BY_SOLVER, MASK_ID, SETTINGS
from tests.helpers.solver_rules import SOLVERS

ARMS = ("ntp", "lockstep", "ragged", "nested", "apd", *few_words.METHODS, *(f"drafts: {name}" for name in few_rivals.DRAFTERS))
OF_SOLVERS = [arm for name in SETTINGS for arm in (f"lockstep {name}", f"ragged {name}", BY_SOLVER[name][1])]
"""Plain and verified blocks by every solver at its middle setting."""


def some_decode(arm, target, seed, opened, request, architecture="llama", block_size=5):
    """The generator of passes of one of ARMS or OF_SOLVERS; ``opened`` makes a session of a module."""
    block = {"block_size": block_size, "mask_id": MASK_ID}
    ours = {
        "ntp": decode_next_token,
        "nested": partial(decode_nested_drafts, draft_steps=3, **block),
        "one a pass": partial(decode_set_block, acceptance=SolverAcceptance(SOLVERS["top_k"], tokens=1), **block),
        "apd": partial(decode_adaptive_parallel, mixture=0.5, **block),
    }
    if arm.startswith("drafts: "):
        return few_rivals.decode(arm.removeprefix("drafts: "), target, architecture, seed, opened, request)[0]
    if arm in ours:
        return ours[arm](opened(target), request)
    batching, _, solver = arm.partition(" ")
    if batching in ("lockstep", "ragged"):
        knobs = SETTINGS[solver][1] if solver else {"gamma": 1.5}
        acceptance = SolverAcceptance(SOLVERS[solver or "entropy_bounded"], **knobs)
        return decode_set_block(opened(target), request, acceptance=acceptance, batching=batching, **block)
    return few_words.decoder(arm, opened(target), request, block_size=block_size)
