"""At temperature 1 decoding without loss writes what next-token prediction writes, in distribution: all draws are enumerated.

A table of random numbers stands in for the network and a script for the generator: the decoder runs once for every
sequence of draws that can change anything, and the chances of what it writes are added up.
"""

from __future__ import annotations

import itertools
from collections import defaultdict

import pytest

from harness.decoding import self_speculation, verified_blocks
from harness.decoding.acceptance import EverySlot, SolverAcceptance
from harness.decoding.in_turn import InTurn
from harness.decoding.solvers import entropy_bounded
from harness.decoding.verification import NextTokenCheck, VerifiedRow
from tests.helpers.adapters import random_bigram
from tests.helpers.word_table import PROMPT, Undecided, check_chances, next_word, torch, written_by_ntp

METHODS = ("verified γ=0", "verified γ=0.8", "verified γ=99", "short γ=99", "linear", "quadratic", "quadratic in turn")
SLIVER = 1e-15
"""Less of a number than rounding leaves over."""


class Script:
    """Stands in for the noise of the positions: one uniform number each, of which a script tells more and more.

    A word is drawn by inverting the cumulated chances, so every distribution that a position is asked with cuts what is known
    of its number, and a draft and its check share it. Told is only what can matter, unless ``every`` word drawn is to be.
    """

    def __init__(self, session, written, length, every):
        self.session, self.written, self.length, self.every, self.chance = session, list(written), length, every, 1.0
        self.known, self.start, self.chosen = defaultdict(lambda: (0.0, 1.0)), 0, None

    def choose(self, chosen):
        """The slots of which the next words drawn are drafts."""
        self.chosen = chosen[0].tolist()

    def draw(self, logits, first):
        """The words of one call, (1, n)."""
        assert logits.shape[0] == 1
        rows, drafts, words = logits[0].softmax(dim=-1).tolist(), self.session.checked[1:] if logits.shape[1] > 1 else [], []
        of_group, chosen, self.chosen = isinstance(first, torch.Tensor), self.chosen, None
        at = self.start + int(first if isinstance(first, int) else first[0])
        over = False
        for slot, row in enumerate(rows):
            wanted = chosen[slot] if chosen is not None else slot > 0 or len(rows) == 1 if of_group else not over
            told = self.every or (wanted and at + slot < self.length)
            words.append(self.word(at + slot, row) if told else 0)
            over = over or slot >= len(drafts) or words[-1] != drafts[slot]
        return torch.tensor([words])

    def word(self, position, p):
        """What the number of the position says under these chances."""
        low, high = self.known[position]
        edges = list(itertools.accumulate(p, initial=0.0))
        edges[-1] = 1.0
        parts = [(max(low, left), min(high, right)) for left, right in itertools.pairwise(edges)]
        likely = [word for word, (left, right) in enumerate(parts) if right - left > SLIVER]
        if len(likely) > 1 and not self.written:
            raise Undecided([(word, (parts[word][1] - parts[word][0]) / (high - low)) for word in likely])
        if len(likely) > 1:
            word, chance = self.written.pop(0)
            self.chance *= chance
        else:
            word = likely[0]
        self.known[position] = parts[word]
        return word

    def advance(self, counts):
        """Positions are final."""
        self.start += counts[0]


def watched(choose, script):
    """A choice of slots of which the script is told; a method of something, or a function."""

    def chosen(*args):
        found = choose(args[-1])
        script.choose(found)
        return found

    return chosen


def decoder(method, session, request, script, block_size):
    """The passes of one decode."""
    block = {"block_size": block_size, "mask_id": session.words}
    if method == "linear":
        return self_speculation.decode_linear(session, request, **block)
    if method.startswith("quadratic"):
        in_turn = InTurn(random_bigram(session.words + 1), copies=True) if method.endswith("in turn") else InTurn()
        return self_speculation.decode_quadratic(session, request, in_turn=in_turn, **block)
    acceptance = SolverAcceptance(entropy_bounded, gamma=float(method.rpartition("=")[2]))
    acceptance.choose = watched(acceptance.choose, script)
    check = NextTokenCheck(session.words, 0.4 if method.startswith("short") else 0.0)
    return verified_blocks.decode_verified_blocks(session, request, acceptance=acceptance, check=check, **block)


def check_distribution(method, words, length, block_size, monkeypatch, stop, every=False):
    """One method, over all draws; returns how many outputs there are."""

    def start(session, request, written):
        script = Script(session, written, length, every)
        for module in (verified_blocks, self_speculation):
            monkeypatch.setattr(module, "PositionNoise", lambda request, width: script)
        monkeypatch.setattr(EverySlot, "choose", watched(lambda view: view.masked, script))
        return script, decoder(method, session, request, script, block_size)

    return check_chances(start, words, length, stop)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("words", "block_size"), [(3, 2), (3, 3), *(pytest.param(4, size, marks=pytest.mark.full) for size in (2, 3, 4))]
)
def test_the_distribution_is_that_of_next_token_prediction(method, words, block_size, monkeypatch):
    """As many words as tokens, the last of which stops: all outputs, exactly."""
    assert check_distribution(method, words, words, block_size, monkeypatch, stop=words - 1) > {3: 10, 4: 80}[words]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("block_size", [2, pytest.param(3, marks=pytest.mark.full)])
def test_draws_behind_a_refused_draft_change_nothing(method, block_size, monkeypatch):
    """Two words, three tokens: really every combination of draws, those that should not matter too."""
    check_distribution(method, 2, 3, block_size, monkeypatch, stop=None, every=True)


def second_chance(drafts, verdicts, at):
    """A refused draft is let through where the next draw would have agreed with it."""
    return drafts[at + 1] if verdicts[at + 1] == drafts[at + 1] else verdicts[at]


def draw_of_the_slot_behind(drafts, verdicts, at):
    """A refused draft is replaced by what was drawn one slot too late."""
    return verdicts[at + 1]


@pytest.mark.parametrize("bias", [second_chance, draw_of_the_slot_behind])
@pytest.mark.parametrize("method", ["verified γ=99", "linear", "quadratic"])
def test_a_planted_bias_shows(method, bias, monkeypatch):
    """The comparison can fail, and by far more than rounding."""
    check = VerifiedRow.check

    def biased(self, verdicts):
        refused = next((at for at in range(len(verdicts) - 1) if self.slots[at + 1] != verdicts[at]), None)
        if refused is not None:
            verdicts = [*verdicts[:refused], bias(self.slots, verdicts, refused), *verdicts[refused + 1 :]]
        return check(self, verdicts)

    monkeypatch.setattr(VerifiedRow, "check", biased)
    with pytest.raises(AssertionError, match=r"off by 0\.\d*[1-9]"):
        # The first of quadratic's passes has nothing to check, so that a refused draft comes one token later.
        check_distribution(method, 2, 3 + (method == "quadratic"), 2, monkeypatch, stop=None, every=True)


@pytest.mark.parametrize("method", METHODS)
def test_a_number_that_is_used_twice_shows(method, monkeypatch):
    """A position that is drawn with the number of the one before it: the words are no longer independent."""
    monkeypatch.setattr(Script, "advance", lambda self, counts: setattr(self, "start", self.start + max(0, counts[0] - 1)))
    with pytest.raises(AssertionError, match=r"off by 0\.\d*[1-9]"):
        check_distribution(method, 3, 3, 2, monkeypatch, stop=None)


def test_the_likeliest_outputs_of_next_token_prediction_by_hand():
    """The reference itself: the chance of a text is the product of its words' chances, and a stop ends it."""
    first, second = next_word(4, PROMPT), next_word(4, (*PROMPT, 0))
    found = written_by_ntp(4, 2, stop=3)
    assert found[0, 1] == pytest.approx(first[0] * second[1]) and found[3,] == pytest.approx(first[3])
