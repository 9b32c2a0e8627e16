"""Drafts that are told the token before them: as a sum over the whole vocabulary by hand, and never what is written."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from harness.decoding import bigram as bigram_module
from tests.helpers.adapters import random_bigram


def greedy(scores, slot):
    """The likeliest token."""
    return scores.argmax(dim=-1)


def by_hand(term, logits, first):
    """Slot by slot: E_c U D e_p added to the logit of every token c."""
    made = [first]
    for slot in range(1, logits.shape[0]):
        before = term.before[made[-1]]
        scores = [logits[slot, c] + term.head[c] @ term.up @ (term.down @ before) for c in range(logits.shape[1])]
        made.append(max(range(len(scores)), key=lambda c: scores[c]))
    return made


def test_each_slot_is_told_the_one_before_it():
    """Ten rows of five slots; without the term they would be drafted otherwise."""
    words = 20
    term, logits = random_bigram(words), torch.randn(10, 5, words, dtype=torch.float64, generator=torch.manual_seed(1))
    first = torch.arange(10)
    made = term.drafts(logits, first, greedy)
    assert made.tolist() == [by_hand(term, logits[row], row) for row in range(10)]
    assert (made[:, 1:] != logits[:, 1:].argmax(dim=-1)).any()


def test_it_chooses_among_the_likeliest_candidates(monkeypatch):
    """With one candidate nothing is left to choose; no impossible token is drafted."""
    words = 20
    term, logits = random_bigram(words), torch.randn(10, 5, words, dtype=torch.float64, generator=torch.manual_seed(2))
    logits[..., 3:] = -torch.inf
    assert term.drafts(logits, torch.arange(10), greedy)[:, 1:].max() < 3
    monkeypatch.setattr(bigram_module, "CANDIDATES", 1)
    assert torch.equal(term.drafts(logits, torch.arange(10), greedy)[:, 1:], logits[:, 1:].argmax(dim=-1))


def test_slots_and_tokens_are_told_to_the_draw():
    """The noise of a position belongs to its slot; a token that names none counts as the first."""
    slots = []

    def draw(scores, slot):
        slots.append(slot)
        return torch.full((scores.shape[0], 1), -2)

    made = random_bigram(6).drafts(torch.zeros(2, 4, 6, dtype=torch.float64), torch.tensor([-2, 1]), draw)
    assert slots == [1, 2, 3] and made.tolist() == [[-2, -2, -2, -2], [1, -2, -2, -2]]
