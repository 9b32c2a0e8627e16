"""At temperature 1 a target that checks drafts writes what next-token prediction writes, in distribution: all draws enumerated.

The tables and the script are those of test_verified_distribution.py. Drafts come from another table, up to the first that is
doubted or as many as are asked for, or they are looked up.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from harness.decoding import speculative
from harness.decoding.drafters import Drafter, DraftModel, PromptLookup
from harness.decoding.speculative import DraftedRow
from tests.helpers.word_table import Table, Undecided, check_chances, next_word, table

WORDS, STOP = 4, 3


class OtherTable(Drafter):
    """Drafts the likeliest words of a table, the target's own (by_ntp) or another, greedily."""

    def __init__(self, tokens, by_ntp):
        self.tokens, self._by_ntp = tokens, by_ntp

    def propose(self, sequences, wanted):
        """Word by word."""
        yield from ()
        [row], [count] = sequences, wanted
        text = list(row)
        for _ in range(count):
            said = next_word(WORDS, text) if self._by_ntp else table(WORDS, "draft", tuple(text))[:WORDS].tolist()
            text.append(max(range(WORDS), key=said.__getitem__))
        return [text[len(row) :]]


class Script:
    """Stands in for the sampler: draws what is written, and asks where nothing is written yet."""

    def __init__(self, session, written, every):
        self.session, self.written, self.every, self.chance = session, list(written), every, 1.0

    def __call__(self, logits, request):
        """The words of one call, (1, n)."""
        assert request.temperature == 1 and logits.shape[0] == 1
        p = logits[0].softmax(dim=-1).tolist()
        if not self.written:
            raise Undecided(list(self.all_draws(p) if self.every else self.draws_that_matter(p)))
        words, chance = self.written.pop(0)
        self.chance *= chance
        return torch.tensor([words])

    @staticmethod
    def all_draws(p):
        """Every combination of words."""
        for words in itertools.product(*(range(len(row)) for row in p)):
            chance = math.prod(row[word] for row, word in zip(p, words, strict=True))
            if chance:
                yield words, chance

    def draws_that_matter(self, p):
        """Up to the first draw that differs from the draft it is held against; behind it stands any word at all."""
        drafts = self.session.checked[1:] if len(p) > 1 else []
        chance = 1.0
        for at, row in enumerate(p):
            for word, of_word in enumerate(row):
                agrees = at + 1 < len(p) and at < len(drafts) and word == drafts[at]
                if of_word and not agrees:
                    yield (*drafts[:at], word, *[0] * (len(p) - at - 1)), chance * of_word
            if at >= len(drafts) or at + 1 == len(p):
                return
            chance *= row[drafts[at]]


def doubting(kind, least):
    """A draft model whose distributions are those of a table, and which stops by them."""
    return DraftModel(
        Table(WORDS, kind), name=kind, tokens=3, never=torch.tensor([WORDS]), stops={STOP}, least_confidence=least
    )


DRAFTERS = {
    "none": Drafter(),
    "looked up": PromptLookup(3, 2, (), ()),
    "likeliest": OtherTable(3, True),
    "other": OtherTable(3, False),
    "one": OtherTable(1, True),
    "doubting": doubting("draft", 0.5),
    "doubting itself": doubting("ntp", 0.5),
    "never doubting": doubting("draft", 0.0),
}


def check(name, length, monkeypatch, every=False):
    """One of DRAFTERS, over all draws."""

    def start(session, request, written):
        script = Script(session, written, every)
        monkeypatch.setattr(speculative, "draw", script)
        return script, speculative.decode_draft_and_check(session, request, DRAFTERS[name])

    assert check_chances(start, WORDS, length, STOP) > 20


@pytest.mark.parametrize("name", DRAFTERS)
def test_the_distribution_is_that_of_next_token_prediction(name, monkeypatch):
    """Four words, one of which stops, and four tokens: all outputs, exactly."""
    check(name, 4, monkeypatch)


@pytest.mark.parametrize("name", ["likeliest", "other", "doubting"])
def test_draws_behind_a_refused_draft_change_nothing(name, monkeypatch):
    """Three tokens, really every combination of draws, those that should not matter too."""
    check(name, 3, monkeypatch, every=True)


@pytest.mark.parametrize("name", ["likeliest", "other", "doubting itself"])
def test_a_planted_bias_shows(name, monkeypatch):
    """A refused draft is let through where the next draw is the same word: far more than rounding."""
    accept = DraftedRow.accept

    def biased(self, drafts, verdicts):
        refused = next((at for at, draft in enumerate(drafts) if draft != verdicts[at]), None)
        if refused is not None and verdicts[refused + 1] == drafts[refused]:
            verdicts = [*verdicts[:refused], drafts[refused], *verdicts[refused + 1 :]]
        return accept(self, drafts, verdicts)

    monkeypatch.setattr(DraftedRow, "accept", biased)
    with pytest.raises(AssertionError, match=r"off by 0\.\d*[1-9]"):
        check(name, 3, monkeypatch, every=True)
