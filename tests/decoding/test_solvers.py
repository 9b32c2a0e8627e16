"""Figures of a pass, draws, and replayed passes: the pure decoding functions beside the solvers."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.decoding.acceptance import DRAWN_AHEAD, ReplayedAcceptance, assumed_passes
from harness.decoding.sampling import draw, entropy, likeliest
from harness.decoding.solvers import BlockView, lowest
from tests.helpers.tiny_model import request


def view(entropies, masked):
    """A pass that says no more than entropies."""
    return SimpleNamespace(entropy=entropies, masked=masked)


@given(st.lists(st.floats(-8, 8), min_size=2, max_size=12), st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.booleans())
def test_figures_are_those_of_their_definitions(logits, temperature, narrow):
    """Entropy, confidence and margin in plain Python floats, from float64 and float32 logits; at temperature 0 the distribution
    at temperature 1 counts.
    """
    dtype = torch.float32 if narrow else torch.float64
    powers = [math.exp(x / (temperature or 1.0)) for x in torch.tensor(logits, dtype=dtype).tolist()]
    p = sorted((power / sum(powers) for power in powers), reverse=True)
    tensor, tolerance = torch.tensor([[logits]], dtype=dtype), 1e-5 if narrow else 1e-9
    said = BlockView(tensor, torch.ones(1, 1, dtype=torch.bool), temperature)
    assert likeliest(tensor, temperature, 2)[0, 0].tolist() == pytest.approx(p[:2], abs=tolerance)
    assert said.confidence.dtype == said.margin.dtype == torch.float64 and said.vocabulary == len(logits)
    assert (said.confidence.item(), said.margin.item()) == pytest.approx((p[0], p[0] - p[1]), abs=tolerance)
    assert said.entropy.item() == entropy(tensor, temperature).item()
    assert said.entropy.item() == pytest.approx(-sum(x * math.log(x) for x in p), abs=tolerance)


def test_sampling_follows_the_tempered_distribution():
    """Frequencies of 20,000 draws within 4 standard errors of softmax(logits / T)."""
    logits, temperature, count = torch.tensor([0.0, 1.0, 2.0]), 0.7, 20_000
    expected = torch.softmax(logits / temperature, dim=0)
    drawn = draw(logits.expand(1, count, 3).clone(), request(((1,),), temperature=temperature))
    found = torch.bincount(drawn[0], minlength=3) / count
    error = (expected * (1 - expected) / count).sqrt()
    assert ((found - expected).abs() < 4 * error).all()


def test_assumed_passes_have_the_stated_mean():
    """Mean of 40,000 draws within 4 standard errors; support 1..k; the mean outside it is refused."""
    rng, draw_passes = random.Random(3), assumed_passes(16, 5.3)
    drawn = [draw_passes(rng) for _ in range(40_000)]
    chance = 4.3 / 15
    assert abs(sum(drawn) / len(drawn) - 5.3) < 4 * math.sqrt(15 * chance * (1 - chance) / len(drawn))
    assert min(drawn) >= 1
    assert max(drawn) <= 16
    with pytest.raises(ValueError, match="between 1 and the block size"):
        assumed_passes(4, 5.0)


def test_replay_takes_the_drawn_number_of_passes_lowest_entropy_first():
    """4 slots in 2 passes: two by two, by entropy, for each row its own draw."""
    numbers = iter([2] * DRAWN_AHEAD + [4] * DRAWN_AHEAD)  # as a row's stream is read
    acceptance = ReplayedAcceptance(lambda rng: next(numbers), seed=0)
    acceptance.begin_block(0, 4)
    acceptance.begin_block(1, 4)
    entropies = torch.tensor([[0.4, 0.1, 0.3, 0.2]] * 2)
    first = acceptance.choose(view(entropies, torch.ones(2, 4, dtype=torch.bool)))
    assert first.tolist() == [[False, True, False, True], [False, True, False, False]]
    second = acceptance.choose(view(entropies, ~first))
    assert second.tolist() == [[True, False, True, False], [False, False, False, True]]
    assert lowest(entropies[:1], torch.zeros(1, 4, dtype=torch.bool), torch.tensor([[2]])).sum() == 0


def test_a_replayed_row_draws_the_same_passes_whatever_the_others_do():
    """So lockstep and ragged runs of one seed replay the same passes row by row."""

    def drawn(order):
        acceptance, quotas = ReplayedAcceptance(assumed_passes(16, 5.3), seed=5), {0: [], 1: []}
        for row in order:
            acceptance.begin_block(row, 16)
            quotas[row].append(acceptance._quotas[row])
        return quotas

    assert drawn([0, 1, 0, 1, 0, 1]) == drawn([0, 0, 0, 1, 1, 1])
    assert drawn([0] * 6)[0] != drawn([1] * 6)[1], "rows do not share a stream"
