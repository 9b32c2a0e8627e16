"""Solvers where they are used: what a pass costs the sampler, and what a decode with each of them must look like."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from harness.decoding.acceptance import ReplayedAcceptance, SolverAcceptance
from harness.decoding.open_blocks import OpenBlocks
from harness.decoding.sampling import draw, entropy, usable
from harness.decoding.set_block import _sample, decode_set_block
from harness.decoding.solvers import BlockView
from harness.engine.static_session import StaticSession
from harness.scenario.solvers import SOLVERS as SPECS
from tests.helpers.solver_rules import SOLVERS
from tests.helpers.tiny_model import MASK_ID, PROMPTS, VOCAB, drain, request, tiny_model

BLOCK, NEW_TOKENS = 4, 21
FIGURES = {"entropy", "confidence", "margin"}


class Walks(TorchDispatchMode):
    """Names of the operations that read or write anything as wide as the vocabulary."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run it, and remember it if it is wide."""
        out = func(*args, **(kwargs or {}))
        if any(isinstance(leaf, torch.Tensor) and leaf.shape[-1:] == (VOCAB,) for leaf in tree_leaves((args, kwargs, out))):
            self.names.append(str(func))
        return out


class Sharper(StaticSession):
    """A model that is surer of itself than random weights are."""

    def forward(self, segments):
        """The same tokens are likeliest, by far more."""
        return super().forward(segments) * 4


# Under these some passes decide one slot and some decide several.
MIDDLE = {"gamma": 0.6, "tau": 0.6, "factor": 1.0, "delta": 0.1, "tokens": 3, "steps": 3}


def knobs_of(name):
    """A middling value for every knob."""
    return {knob: MIDDLE[knob] for knob in SPECS[name].knobs}


def decode(acceptance, prompts, batching="lockstep", stop_ids=()):
    """SBD on the tiny model."""
    req = request(prompts, stop_ids, max_new_tokens=NEW_TOKENS)
    session = Sharper(tiny_model("llama"))
    return drain(decode_set_block(session, req, block_size=BLOCK, mask_id=MASK_ID, acceptance=acceptance, batching=batching))


@pytest.mark.parametrize("acceptance", ["entropy_bounded", "replayed"])
def test_the_default_solver_walks_over_the_vocabulary_for_entropy_and_token_alone(acceptance):
    """The very operations of suppressing, entropy and drawing, in this order: the sampler's time is measured."""
    chooses = SolverAcceptance(SOLVERS["entropy_bounded"], gamma=0.1)
    if acceptance == "replayed":
        chooses = ReplayedAcceptance(lambda rng: 2, seed=0)
        chooses.begin_block(0, BLOCK)
    req, logits = request(((1, 2),)), torch.randn(1, BLOCK, VOCAB)
    suppressed, blocks = torch.tensor([MASK_ID]), OpenBlocks([2], BLOCK, MASK_ID, torch.device("cpu"))
    with Walks() as plain:
        wide = usable(logits.clone(), suppressed)
        entropy(wide, 0.0)
        draw(wide, req)
    with Walks() as sampled:
        _sample(logits.clone(), blocks, req, suppressed, chooses)
    assert sampled.names == plain.names != []


@pytest.mark.parametrize("name", SPECS)
def test_a_solver_reads_what_the_registry_says(name):
    """No figure is computed that is not read, and none is read that is not declared."""
    view = BlockView(torch.randn(2, BLOCK, VOCAB), torch.ones(2, BLOCK, dtype=torch.bool), 0.0)
    SOLVERS[name](view, **knobs_of(name))
    assert FIGURES & set(vars(view)) == set(SPECS[name].reads)


def test_a_fixed_count_decides_it_in_every_pass():
    """5 blocks of 4 and one slot of a sixth: 2 a pass are 2 passes a block; 3 steps are 3; and a whole block at once is 1."""
    for name, knobs, decided in (
        ("top_k", {"tokens": 2}, [2, 2] * 5 + [1]),
        ("top_k", {"tokens": 3}, [3, 1] * 5 + [1]),
        ("uniform", {"steps": 3}, [2, 1, 1] * 5 + [1]),
        ("uniform", {"steps": 1}, [4] * 5 + [1]),
    ):
        generation = decode(SolverAcceptance(SOLVERS[name], **knobs), PROMPTS["one"])
        assert [one.decided_tokens[0] for one in generation.decode_passes] == decided, (name, knobs)
