"""Random solvers for nested drafts."""

from __future__ import annotations

import torch

from harness.decoding.acceptance import SolverAcceptance
from harness.decoding.set_block import decode_set_block
from tests.helpers.few_words import MASK_ID
from tests.helpers.solver_rules import SOLVERS
from tests.helpers.tiny_model import drain, reference_logits

SEEDS = (1, 4, 12)
BATCH = 5


def block_logits(model, text, block):
    """(k, V) of a block behind ``text``, the mask's left out."""
    known = [False] * len(text) + [True] * len(block)
    logits = reference_logits(model, text + block, known, len(block))
    logits[:, MASK_ID] = -torch.inf
    return logits


def solver_arm(session, request, block_size, solver, **knobs):
    """Plain SBD in lockstep."""
    acceptance = SolverAcceptance(SOLVERS[solver], **knobs)
    return drain(decode_set_block(session, request, block_size=block_size, mask_id=MASK_ID, acceptance=acceptance))
