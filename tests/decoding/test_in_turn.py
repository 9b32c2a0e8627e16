"""Drafts that are told what stands before them: sums over the whole vocabulary by hand."""

from __future__ import annotations

import random
from dataclasses import fields, replace

import pytest
import torch

from harness.decoding import in_turn as in_turn_module
from harness.decoding.in_turn import InTurn, copied, row_texts
from harness.kernels.library import why_not_built
from tests.helpers.adapters import copies, random_bigram

WORDS = 20


def greedy(scores, slot):
    """The likeliest token."""
    return scores.argmax(dim=-1)


def rows(count, seed=1):
    """Texts of few words and unlike lengths, and logits of five slots for each."""
    rng = random.Random(seed)
    texts = [[rng.randrange(4) for _ in range(rng.randint(1, 30))] for _ in range(count)]
    return texts, torch.randn(count, 5, WORDS, dtype=torch.float64, generator=torch.manual_seed(seed))


def by_hand(asked, logits, text):
    """Slot by slot: what each term gives every word."""
    text, made = list(text), [text[-1]]
    for slot in range(1, logits.shape[0]):
        scores = logits[slot].clone()
        if asked.bigram is not None:
            scores += asked.bigram.head @ asked.bigram.up @ (asked.bigram.down @ asked.bigram.before[text[-1]])
        if asked.copies:
            scores += copies(text, WORDS)
        made.append(int(scores.argmax()))
        text.append(made[-1])
    return made


@pytest.mark.parametrize("asked", [InTurn(random_bigram(WORDS)), InTurn(copies=True), InTurn(random_bigram(WORDS), True)])
def test_each_slot_is_told_what_stands_before_it(asked):
    """Forty rows; without the terms they would be drafted otherwise."""
    texts, logits = rows(40)
    newest = torch.tensor([len(text) - 1 for text in texts])
    made = asked.drafts(logits, row_texts(texts, 4, torch.device("cpu")), newest, greedy)
    assert made.tolist() == [by_hand(asked, one, text) for one, text in zip(logits, texts, strict=True)]
    assert (made[:, 1:] != logits[:, 1:].argmax(dim=-1)).any()
    assert asked and not InTurn()


kernels = pytest.mark.skipif(why_not_built() is not None, reason="no C++ compiler")
TERMS = [InTurn(random_bigram(50, 37, 3)), InTurn(copies=True), InTurn(random_bigram(50, 37, 3), True)]


@kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("asked", TERMS)
def test_the_kernel_drafts_as_torch_does(asked, dtype, monkeypatch):
    """A vocabulary that is no multiple of a vector's width; whole numbers, so that no rounding parts the two, and ties."""
    monkeypatch.setattr(in_turn_module, "CANDIDATES", 50)  # among fewer, torch takes any of equals
    texts, generator = rows(40)[0], torch.Generator().manual_seed(3)
    logits = torch.randint(-4, 5, (40, 5, 50), generator=generator).to(dtype)
    logits[:, :, 44:] = -torch.inf
    term = asked.bigram and replace(asked.bigram, **{name: one.round().to(dtype) for name, one in vars_of(asked.bigram)})
    asked, newest = InTurn(term, asked.copies), torch.tensor([len(text) - 1 for text in texts])

    def drafted(draw):
        return asked.drafts(logits, row_texts(texts, 4, torch.device("cpu")), newest, draw).tolist()

    def lowest(scores, slot):
        return (scores == scores.amax(dim=-1, keepdim=True)).long().argmax(dim=-1)

    assert drafted(None) == drafted(lowest) != drafted(lambda scores, slot: torch.zeros(40, 1, dtype=torch.long))


@kernels
def test_the_kernel_takes_the_likeliest_candidates_alone(monkeypatch):
    """Six of a thousand, wherever they stand; a copy outside them is not drafted."""
    monkeypatch.setattr(in_turn_module, "CANDIDATES", 6)
    logits, asked = torch.randn(30, 3, 1000, generator=torch.Generator().manual_seed(9)), InTurn(copies=True)
    spoken = logits[:, 1].topk(9, dim=-1).indices
    outside = asked.drafts(
        logits, row_texts([[1, int(row[7]), 1] for row in spoken], 2, spoken.device), torch.full((30,), 2), None
    )
    inside = asked.drafts(
        logits, row_texts([[1, int(row[4]), 1] for row in spoken], 2, spoken.device), torch.full((30,), 2), None
    )
    assert torch.equal(outside[:, 1], spoken[:, 0])
    near = logits[:, 1].gather(1, spoken[:, :1]) - logits[:, 1].gather(1, spoken[:, 4:5])
    assert torch.equal(inside[:, 1], torch.where(near[:, 0] < 1.0, spoken[:, 4], spoken[:, 0])) and (near < 1.0).any()


def vars_of(bigram):
    """Its matrices by their names."""
    return [(one.name, getattr(bigram, one.name)) for one in fields(bigram)]


@kernels
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_slot_without_numbers_drafts_no_token_by_the_kernel(value):
    """The slot behind it is told of none, and names one."""
    logits = torch.zeros(1, 4, 100)
    logits[0, 1, 97], logits[0, 2, 3], logits[0, 3] = value, 1, -torch.inf
    text = row_texts([[7]], 3, torch.device("cpu"))
    assert InTurn(copies=True).drafts(logits, text, torch.tensor([0]), None).tolist() == [[7, -2, 3, -2]]


def test_copies_by_hand():
    """b follows a twice, c once; behind 'x a' stands b alone; what stands behind the end is not there."""
    text = torch.tensor([list(b"xabyac-xa" + b"d")])
    assert copied(text, torch.tensor([8]), torch.tensor([list(b"bcyd")])).tolist() == [[3.0, 1.0, 0.0, 0.0]]


def test_it_chooses_among_the_likeliest_candidates(monkeypatch):
    """With one candidate nothing is left to choose; no impossible token is drafted."""
    texts, logits = rows(10, 2)
    logits[..., 3:] = -torch.inf
    newest, asked = torch.tensor([len(text) - 1 for text in texts]), InTurn(random_bigram(WORDS))

    def drafts():
        return asked.drafts(logits, row_texts(texts, 4, torch.device("cpu")), newest, greedy)[:, 1:]

    assert drafts().max() < 3
    monkeypatch.setattr(in_turn_module, "CANDIDATES", 1)
    assert torch.equal(drafts(), logits[:, 1:].argmax(dim=-1))


def test_slots_and_tokens_are_told_to_the_draw():
    """The noise of a position belongs to its slot; a slot whose logits name no token is not hidden."""
    slots = []

    def draw(scores, slot):
        slots.append(slot)
        return torch.full((scores.shape[0], 1), -2)

    asked, logits = InTurn(random_bigram(6), copies=True), torch.zeros(2, 4, 6, dtype=torch.float64)
    made = asked.drafts(logits, row_texts([[3], [1, 2]], 3, torch.device("cpu")), torch.tensor([0, 1]), draw)
    assert slots == [1, 2, 3] and made.tolist() == [[3, -2, -2, -2], [2, -2, -2, -2]]
