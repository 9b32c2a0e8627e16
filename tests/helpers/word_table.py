"""Next-word tables in place of a model, whose distribution is known."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from functools import cache

import pytest
import torch

from tests.helpers.tiny_model import drain, request

PROMPT = (2, 0, 1)
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
    """A session of one row: a word says what the next-token table ``kind`` says behind all it sees, a mask asks another."""

    def __init__(self, words, kind="ntp"):
        self.words, self.kind = words, kind

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
            real = [True] * len(tokens) if segment.valid is None else segment.valid[0].tolist()
            for i, token in enumerate(tokens):
                if not real[i]:
                    logits.append(torch.zeros(self.words + 1, dtype=torch.float64))
                    continue
                rule = {"causal": range(i + 1), "bidirectional": range(len(tokens))}
                sees = rule.get(segment.visibility) or [j for j in range(len(tokens)) if segment.seen[i, j]]
                text = (*self.held, *self.fed, *(tokens[j] for j in sees))
                head = "block" if token == self.words or segment.visibility == "bidirectional" else self.kind
                logits.append(table(self.words, head, text if head == self.kind else (*text, places[i])))
            self.fed += [token for token, ok in zip(tokens, real, strict=True) if ok]
        self.checked = [token for token in self.fed[: segments[0].tokens.shape[1]] if token != self.words]
        return torch.stack(logits)[None, -sum(segment.logits for segment in segments) :].clone()

    def keep(self, counts):
        """The first so many."""
        self.held += self.fed[: counts[0]]

    def drop(self, counts):
        """The newest so many."""
        del self.held[len(self.held) - counts[0] :]

    def read(self, tokens):
        """Nothing to fetch."""
        return tokens.tolist()


class Undecided(Exception):
    """The script has no word for a position; here are all that may stand there, as (low, high) ends of what is known."""


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


def chances(start, words, length, stop):
    """The chance of every output, over all draws that its scripts ask for; ``start`` of a session, a request and what is
    written so far gives a script and a decoder.
    """
    session, found, scripts = Table(words), defaultdict(float), [()]
    asked = request((PROMPT,), (stop,), temperature=1.0, max_new_tokens=length, mask_ids=(words,))
    while scripts:
        written = scripts.pop()
        script, decoder = start(session, asked, written)
        try:
            output = drain(decoder).output_ids[0]
        except Undecided as undecided:
            scripts += [(*written, option) for option in undecided.args[0]]
            continue
        found[output] += script.chance
    return found


def check_chances(start, words, length, stop):
    """No output is more than TOLERANCE more or less likely than under next-token prediction; returns how many there are."""
    expected, found = written_by_ntp(words, length, stop), chances(start, words, length, stop)
    assert sum(expected.values()) == pytest.approx(1, abs=TOLERANCE)
    error = max(abs(found.get(text, 0.0) - expected.get(text, 0.0)) for text in {*found, *expected})
    assert error < TOLERANCE, f"off by {error}"
    return len(expected)
