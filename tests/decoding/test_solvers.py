"""Equation 8 against an independent brute-force search, and the rest of the pure decoding functions."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.prefixes import largest_prefix

torch = pytest.importorskip("torch")

from harness.decoding.acceptance import DRAWN_AHEAD, ReplayedAcceptance, assumed_passes, spread
from harness.decoding.sampling import draw, entropy, likeliest, usable
from harness.decoding.solvers import BlockView, entropy_bounded, lowest
from tests.helpers.tiny_model import request

# Sixteenths are exact in binary, so that both sides agree on ties at the bound.
SIXTEENTHS = st.integers(0, 80).map(lambda n: n / 16)


def view(entropies, masked):
    """A pass that says no more than entropies."""
    return SimpleNamespace(entropy=entropies, masked=masked)


@given(st.lists(st.tuples(SIXTEENTHS, st.booleans()), min_size=1, max_size=8), SIXTEENTHS)
@settings(max_examples=300, deadline=None)
def test_entropy_bounded_is_equation_8(slots, gamma):
    """The brute force agrees (fails with an inclusive sum, with the first charged twice, or with unmasked slots chosen)."""
    entropies, masked = [e for e, _ in slots], [m for _, m in slots]
    chosen = entropy_bounded(view(torch.tensor([entropies]), torch.tensor([masked])), gamma=gamma)[0]
    assert {i for i, c in enumerate(chosen.tolist()) if c} == largest_prefix(entropies, masked, gamma)


def test_the_last_token_is_not_charged():
    """Hand-worked: H = .1 .2 .3 at γ = .31 gives all three (.1 + .2), the inclusive rule (.6) would give two."""
    everything = torch.ones(1, 3, dtype=torch.bool)
    said = view(torch.tensor([[0.3, 0.1, 0.2]]).double(), everything)
    assert entropy_bounded(said, gamma=0.31).tolist() == [[True, True, True]]
    assert entropy_bounded(said, gamma=0.15).sum() == 2
    assert entropy_bounded(said, gamma=0.0).sum() == 1


@given(st.lists(st.floats(-8, 8), min_size=2, max_size=12), st.sampled_from([0.0, 0.5, 1.0, 2.0]))
@settings(deadline=None)
def test_entropy_is_minus_sum_p_log_p(logits, temperature):
    """Against the definition in plain Python floats; at temperature 0 the distribution at temperature 1 counts."""
    scaled = [x / (temperature or 1.0) for x in logits]
    total = sum(math.exp(x) for x in scaled)
    expected = -sum(math.exp(x) / total * math.log(math.exp(x) / total) for x in scaled)
    found = entropy(torch.tensor([[logits]], dtype=torch.float64), temperature).item()
    assert found == pytest.approx(expected, abs=1e-9)


@given(st.lists(st.floats(-8, 8), min_size=2, max_size=12), st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.booleans())
def test_confidence_and_margin_are_the_largest_probabilities(logits, temperature, narrow):
    """Against the definition in plain Python floats, from float64 and float32 logits."""
    dtype = torch.float32 if narrow else torch.float64
    powers = [math.exp(x / (temperature or 1.0)) for x in torch.tensor(logits, dtype=dtype).tolist()]
    first, second, *_ = sorted((power / sum(powers) for power in powers), reverse=True)
    tensor, tolerance = torch.tensor([[logits]], dtype=dtype), 1e-5 if narrow else 1e-12
    said = BlockView(tensor, torch.ones(1, 1, dtype=torch.bool), temperature)
    assert likeliest(tensor, temperature, 2)[0, 0].tolist() == pytest.approx([first, second], abs=tolerance)
    assert said.confidence.dtype == said.margin.dtype == torch.float64
    assert (said.confidence.item(), said.margin.item()) == pytest.approx((first, first - second), abs=tolerance)
    assert said.entropy.item() == entropy(tensor, temperature).item() and said.vocabulary == len(logits)


def test_suppressed_tokens_are_never_drawn_and_leave_the_entropy_finite():
    """The mask token has probability zero, whatever its logit."""
    logits = usable(torch.tensor([[[0.0, 50.0, 1.0]]]), torch.tensor([1]))
    assert draw(logits, request(((1,),))).item() == 2
    warm = request(((1,),), temperature=3.0)
    drawn = {draw(logits, warm).item() for _ in range(200)}
    assert drawn == {0, 2}
    assert torch.isfinite(entropy(logits, 0.0)).all()


def test_sampling_follows_the_tempered_distribution():
    """Frequencies of 20,000 draws within 4 standard errors of softmax(logits / T)."""
    logits, temperature, count = torch.tensor([0.0, 1.0, 2.0]), 0.7, 20_000
    expected = torch.softmax(logits / temperature, dim=0)
    drawn = draw(logits.expand(1, count, 3).clone(), request(((1,),), temperature=temperature))
    found = torch.bincount(drawn[0], minlength=3) / count
    error = (expected * (1 - expected) / count).sqrt()
    assert ((found - expected).abs() < 4 * error).all()


@given(st.integers(1, 32), st.data())
def test_spread_covers_every_slot_in_so_many_passes(slots, data):
    """Quotas add up and no pass is empty."""
    passes = data.draw(st.integers(1, slots))
    quotas = spread(slots, passes)
    assert sum(quotas) == slots
    assert len(quotas) == passes
    assert min(quotas) >= 1


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
