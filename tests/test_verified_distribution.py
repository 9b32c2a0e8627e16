"""At temperature 1 decoding without loss writes what next-token prediction writes, in distribution: all draws are enumerated.

A table of random numbers stands in for the network and a script for the generator: the decoder runs once for every
sequence of draws that can change anything, and the chances of what it writes are added up.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import defaultdict
from functools import cache

import pytest

torch = pytest.importorskip("torch")

from harness.decoding import self_speculation, verified_blocks  # noqa: E402 - after the import guard
from harness.decoding.acceptance import SolverAcceptance  # noqa: E402
from harness.decoding.request import DecodeRequest  # noqa: E402
from harness.decoding.solvers import entropy_bounded  # noqa: E402
from harness.decoding.stopping import StopRule  # noqa: E402
from harness.decoding.verified_row import VerifiedRow  # noqa: E402

PROMPT = (2, 0, 1)
METHODS = ("verified γ=0", "verified γ=0.8", "verified γ=99", "linear", "quadratic")
TOLERANCE = 1e-12


@cache
def table(words, kind, seen):
    """The model's logits over ``words`` words and the mask for what a token sees; now and then a word is impossible."""
    rng = random.Random(f"{kind}/{seen}")
    logits = [rng.gauss(0, 1.2) for _ in range(words)]
    if rng.random() < 0.2:
        logits[rng.randrange(words)] = -math.inf
    return torch.tensor([*logits, 0.0], dtype=torch.float64)


def next_word(words, text):
    """The next-token head's distribution behind ``text``."""
    return table(words, "ntp", tuple(text))[:words].softmax(dim=0).tolist()


class Table:
    """A session of one row: a word says what the next-token table says behind all it sees, a mask asks the other table."""

    def __init__(self, words):
        self.words = words

    context_tokens = property(lambda self: (len(self.held),))
    context_width = property(lambda self: len(self.held))

    def reset(self, rows, capacity):
        """Start a batch of one."""
        self.held = []

    def forward(self, segments):
        """(1, m, V) logits of every token: who sees whom is read off the segments as their definition says."""
        self.fed, logits = [], []
        for segment in segments:
            tokens, places = segment.tokens[0].tolist(), segment.positions[0].tolist()
            assert places[0] == len(self.held) + len(self.fed)
            for i, token in enumerate(tokens):
                rule = {"causal": range(i + 1), "bidirectional": range(len(tokens))}
                sees = rule.get(segment.visibility) or [j for j in range(len(tokens)) if segment.seen[i, j]]
                text = (*self.held, *self.fed, *(tokens[j] for j in sees))
                head = "block" if token == self.words or segment.visibility == "bidirectional" else "ntp"
                logits.append(table(self.words, head, text if head == "ntp" else (*text, places[i])))
            self.fed += tokens
        self.checked = [token for token in self.fed[: segments[0].tokens.shape[1]] if token != self.words]
        return torch.stack(logits)[None, -sum(segment.logits for segment in segments) :].clone()

    def keep(self, counts):
        """The first so many."""
        self.held += self.fed[: counts[0]]

    def read(self, tokens):
        """Nothing to fetch."""
        return tokens.tolist()


class Undecided(Exception):
    """The script has no draw for this call; here are all that matter, as (words, chance)."""


class Script:
    """Stands in for the sampler: draws what is written, and asks where nothing is written yet."""

    def __init__(self, session, written, every):
        self.session, self.written, self.every, self.chance = session, list(written), every, 1.0

    def __call__(self, logits, temperature, generator):
        """The words of one call, (1, n)."""
        assert temperature == 1 and logits.shape[0] == 1
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


def written_by_ntp(words, length, stop):
    """The chance of every output, straight from the next-token head."""
    found, open_ = {}, {(): 1.0}
    while open_:
        text, chance = open_.popitem()
        for word, p in enumerate(next_word(words, PROMPT + text)):
            if p:
                more = (*text, word)
                where = found if word == stop or len(more) == length else open_
                where[more] = chance * p
    return found


def written_by(method, words, length, block_size, stop, monkeypatch, every=False):
    """The chance of every output of one method, over all draws."""
    session, found, scripts = Table(words), defaultdict(float), [()]
    request = DecodeRequest(
        prompts=(PROMPT,), max_new_tokens=length, stop=StopRule(token_ids=frozenset({stop})), suppressed_ids=(words,),
        temperature=1.0, generator=torch.Generator(), device=torch.device("cpu"),
    )  # fmt: skip
    while scripts:
        written = scripts.pop()
        script = Script(session, written, every)
        monkeypatch.setattr(verified_blocks, "draw", script)
        monkeypatch.setattr(self_speculation, "draw", script)
        try:
            output = run(method, session, request, block_size, words)
        except Undecided as undecided:
            scripts += [(*written, option) for option in undecided.args[0]]
            continue
        found[output] += script.chance
    return found


def run(method, session, request, block_size, mask_id):
    """The output of one decode."""
    if method == "linear":
        decoder = self_speculation.decode_linear(session, request, block_size=block_size, mask_id=mask_id)
    elif method == "quadratic":
        decoder = self_speculation.decode_quadratic(session, request, block_size=block_size, mask_id=mask_id)
    else:
        acceptance = SolverAcceptance(entropy_bounded, gamma=float(method.rpartition("=")[2]))
        decoder = verified_blocks.decode_verified_blocks(
            session, request, block_size=block_size, mask_id=mask_id, acceptance=acceptance
        )
    while True:
        try:
            next(decoder)
        except StopIteration as stop:
            return stop.value.output_ids[0]


def check_distribution(method, words, length, block_size, monkeypatch, stop=3, every=False):
    """No output is more than TOLERANCE more or less likely than under next-token prediction."""
    expected = written_by_ntp(words, length, stop)
    found = written_by(method, words, length, block_size, stop, monkeypatch, every)
    assert sum(expected.values()) == pytest.approx(1, abs=TOLERANCE)
    error = max(abs(found.get(text, 0.0) - expected.get(text, 0.0)) for text in {*found, *expected})
    assert error < TOLERANCE, f"off by {error}"
    return len(expected)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("block_size", [2, 3, 4])
def test_the_distribution_is_that_of_next_token_prediction(method, block_size, monkeypatch):
    """Four words, one of which stops, and four tokens: all outputs, exactly."""
    assert check_distribution(method, 4, 4, block_size, monkeypatch) > 80


@pytest.mark.parametrize("method", METHODS)
def test_draws_behind_a_refused_draft_change_nothing(method, monkeypatch):
    """Three words, three tokens, blocks of two: really every combination of draws, those that should not matter too."""
    check_distribution(method, 3, 3, 2, monkeypatch, stop=None, every=True)


@pytest.mark.full
@pytest.mark.parametrize("method", METHODS)
def test_draws_behind_a_refused_draft_change_nothing_in_longer_blocks(method, monkeypatch):
    """The same with blocks of three."""
    check_distribution(method, 3, 3, 3, monkeypatch, stop=None, every=True)


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
        check_distribution(method, 3, 4, 2, monkeypatch, stop=None, every=True)


def test_the_likeliest_outputs_of_next_token_prediction_by_hand():
    """The reference itself: the chance of a text is the product of its words' chances, and a stop ends it."""
    first, second = next_word(4, PROMPT), next_word(4, (*PROMPT, 0))
    found = written_by_ntp(4, 2, stop=3)
    assert found[0, 1] == pytest.approx(first[0] * second[1]) and found[3,] == pytest.approx(first[3])
