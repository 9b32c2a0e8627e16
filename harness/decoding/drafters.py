"""Drafters: they propose the tokens that another model checks.

A proposal decides how fast a row is and never what it writes, so a drafter may be wrong, short or silent. Token sequences are
plain integers, one per batch row.

DraftModel drafts greedily with a smaller model or the first layers of the target. It has a KV cache of its own, as in
transformers' ``generate(assistant_model=…)``. Before each proposal it goes back to where its row agrees with what was written,
and reads what it missed. Another drafter below it may propose tokens that it checks (HSD, arXiv 2510.19705). It asks
that one for at most one token fewer than it lacks: its own pass adds one. Axes: B rows, m answers of a pass, V vocabulary.
It stops after a draft that it doubts, because those after a wrong one are lost. That rule reads the row and the draft model,
and never a draw of the target that is still to come. So the law of what is written stays the target's at every temperature.

PromptLookup (github.com/apoorvumang/prompt-lookup-decoding) drafts what followed the last few tokens at an earlier place in the
row. It costs no pass. The newest place of the longest match counts, for a text changes its subject. A copy that comes to the
end of the row goes on with what it has copied, so a text that repeats itself is drafted in full.

TranslatedDrafts are of a model with another tokenizer (universal assisted decoding). The row's text is put into the draft
model's tokens, and the text that this model adds into the target's. The target checks token ids, so a wrong translation costs
speed and nothing else. Callers pass in the two directions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Generator, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from itertools import cycle, islice
from typing import Protocol

import torch
from torch import Tensor

from harness.decoding.request import causal_pass
from harness.decoding.sampling import FiguresOf, figures_of, usable
from harness.decoding.session import ModelSession, refuse_no_token
from harness.record.trace import ForwardPass, Role

Sequences = Sequence[Sequence[int]]
"""The tokens of every batch row: its prompt and what it has written."""
Proposal = Generator[ForwardPass, None, list[list[int]]]
"""Yields the drafter's own passes as they happen; returns the proposed tokens of every row."""


class Drafter:
    """Proposes up to ``tokens`` tokens after each row, in passes of its own or none. This one proposes nothing: the target goes
    on token by token.
    """

    tokens: int = 0
    """That it is asked for at a time, at most."""

    def begin(self, prompts: Sequences, max_new_tokens: int) -> None:
        """Forget everything and make room for a new batch, after whose prompts so many tokens may be written."""

    def propose(self, sequences: Sequences, wanted: Sequence[int]) -> Proposal:
        """What might follow: at most ``wanted`` tokens of each row, none where that is 0."""
        yield from ()
        return [[] for _ in sequences]


@dataclass
class OneDraft(Drafter):
    """Proposes the token 0 always, as often as is wanted: for passes of one width, whatever comes of them."""

    tokens: int = field()

    def propose(self, sequences: Sequences, wanted: Sequence[int]) -> Proposal:
        """Zeros."""
        yield from ()
        return [[0] * count for count in wanted]


SLACK = 8
"""Tokens that a row may have to read at once after proposals that did not ask for it."""


@dataclass
class DraftModel(Drafter):
    """Drafts up to ``tokens`` tokens, or up to and with the first of ``stops``, never one of ``never`` (s,).

    ``name``: what its passes are called in the trace. ``session``: a cache of its own. ``least_confidence``: a row's drafts end
    with a pass that makes one of this probability or less, by the draft model itself. 0: none does.
    ``figures``: reads its logits, None for their device's own.
    """

    session: ModelSession
    _: KW_ONLY
    name: str
    tokens: int = field()
    never: Tensor
    stops: Collection[int]
    below: Drafter | None = None
    least_confidence: float = 0.0
    figures: FiguresOf | None = None
    _held: list[list[int]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._below = self.below or Drafter()

    def begin(self, prompts: Sequences, max_new_tokens: int) -> None:
        """Make room. The prompts are read with the first token to draft after, in a pass that NTP does not need."""
        room = max_new_tokens + 2 * (self.tokens + self._below.tokens) + SLACK
        self._capacity = max(map(len, prompts)) + room
        self.session.reset(len(prompts), self._capacity)
        self._held = [[] for _ in prompts]
        self._below.begin(prompts, max_new_tokens)

    def propose(self, sequences: Sequences, wanted: Sequence[int]) -> Proposal:
        """One token a pass, or as many as a pass finds right of what the one below proposes."""
        self._go_back(sequences, wanted)
        made: list[list[int]] = [[] for _ in sequences]
        lacks = list(wanted)
        while any(lacks):
            # 1) Let the drafter below propose for each row, one token fewer than the row lacks.
            rows = [[*row, *tokens] for row, tokens in zip(sequences, made, strict=True)]
            asked = [min(self._below.tokens, max(0, lack - 1)) for lack in lacks]
            drafts = yield from self._below.propose(rows, asked)
            # 2) Feed what each row has not read yet, and those proposals.
            fed = [
                [*row[len(held) :], *below] if lack else []
                for row, held, below, lack in zip(rows, self._held, drafts, lacks, strict=True)
            ]
            if max(map(len, self._held)) + max(map(len, fed)) > self._capacity:
                break  # so much was read anew that it does not fit: what is not drafted the target writes by itself
            # 3) Take the tokens that the pass found right, and its own.
            gained, last, made_pass = self._pass(fed, drafts)
            for tokens, more in zip(made, gained, strict=True):
                tokens += more
            lacks = [0 if ends else lack - len(more) for lack, more, ends in zip(lacks, gained, last, strict=True)]
            yield made_pass
        return made

    def _go_back(self, sequences: Sequences, wanted: Sequence[int]) -> None:
        """Forget drafts that were not written; the newest token is always read anew, because its answer is wanted."""
        dropped = []
        for held, row, count in zip(self._held, sequences, wanted, strict=True):
            common = min(common_prefix(held, row), len(row) - 1) if count else len(held)
            dropped.append(len(held) - common)
            del held[common:]
        if any(dropped):
            self.session.drop(dropped)

    def _pass(self, fed: Sequences, drafts: Sequences) -> tuple[list[list[int]], list[bool], ForwardPass]:
        """Feed what each row has not read yet and the drafts below; the tokens that each row gained, none where it waits, and
        whether these are its last: one of them stops the row or is doubted.

        Raises:
            NoTokenError: the model's logits name no token.
        """
        checked = [tokens if row else [] for row, tokens in zip(fed, drafts, strict=True)]
        answers = 1 + max(map(len, checked))
        logits, made = causal_pass(self.session, fed, answers, self.never.device)
        figures = figures_of(usable(logits, self.never), 0.0, self.figures)
        least = self.least_confidence
        doubted = figures.confidence <= least if least else torch.zeros_like(figures.tokens)
        said = self.session.read(torch.cat([figures.tokens, doubted], dim=1))
        gained, last, kept = [], [], []
        for held, row, tokens, verdicts in zip(self._held, fed, checked, said, strict=True):
            first = answers - 1 - len(tokens)
            own, doubts = verdicts[first:answers], verdicts[answers + first :]
            for token in own if row else ():
                refuse_no_token(token)
            agreed = common_prefix(tokens, own)
            read = row[: len(row) - len(tokens) + agreed]
            more = before_any(own[: agreed + 1], self.stops, and_it=True) if row else []
            gained.append(more)
            last.append(any(doubts[: len(more)]) or not set(more).isdisjoint(self.stops))
            kept.append(len(read))
            held += read
        made.keep(self.session, kept)
        role: Role = "verify" if answers > 1 else "draft"
        return gained, last, made.described(role, kept, [len(tokens) for tokens in gained], model=self.name)


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common prefix of two lists. Compares whole stretches: a row may be thousands of tokens long."""
    shorter = min(len(one), len(other))
    return bisect_left(range(shorter), True, key=lambda i: one[: i + 1] != other[: i + 1])


@dataclass
class PromptLookup(Drafter):
    """Looks up to ``max_ngram`` last tokens up in the row's prompt and output. ``never``: ids that cannot be written;
    ``stops``: ids that end a row.
    """

    tokens: int = field()
    max_ngram: int
    never: Collection[int]
    stops: Collection[int]

    def propose(self, sequences: Sequences, wanted: Sequence[int]) -> Proposal:
        """What followed, row by row."""
        yield from ()
        return [
            looked_up(sequence, count, self.max_ngram, self.never, self.stops) if count > 0 else []
            for sequence, count in zip(sequences, wanted, strict=True)
        ]


def looked_up(
    sequence: Sequence[int], tokens: int, max_ngram: int, never: Collection[int], stops: Collection[int]
) -> list[int]:
    """What followed the newest earlier place of the longest n-gram at the end that has one: ``tokens`` tokens, those after the
    end copied from the copy.

    A place before a token that may never be written does not count. The copy is cut before the first such token, and before the
    first token that stops a row.
    """
    newest = list(reversed(sequence))
    size = place = copied_from = 0
    with suppress(ValueError):  # no further place
        while size < max_ngram:
            place = newest.index(newest[0], place + 1)
            if newest[place - 1] in never:
                continue
            while size < max_ngram and newest[place : place + size + 1] == newest[: size + 1]:
                size, copied_from = size + 1, place
    copied = list(islice(cycle(reversed(newest[:copied_from])), tokens))
    return before_any(before_any(copied, never), stops)


def before_any(tokens: list[int], ids: Collection[int], and_it: bool = False) -> list[int]:
    """The tokens before the first of ``ids``, with that one if asked for."""
    return tokens[: next((i + and_it for i, token in enumerate(tokens) if token in ids), len(tokens))]


ROOM = 4
"""Draft tokens that one target token may take on average; a row that takes more is drafted no further."""


class Translation(Protocol):
    """Between the target's token ids and the draft model's."""

    def to_draft(self, sequence: Sequence[int]) -> list[int]:
        """The draft model's tokens of the same text."""

    def to_target(self, output: Sequence[int], before: Sequence[int], drafted: Sequence[int]) -> list[int]:
        """The target's tokens of the text that ``drafted`` adds to ``before``, both in the draft model's tokens. ``output``:
        the row so far in the target's.
        """


@dataclass
class TranslatedDrafts(Drafter):
    """``drafter``: proposes in its own tokens; ``tokens`` is counted in those."""

    drafter: Drafter
    translation: Translation

    def __post_init__(self) -> None:
        self.tokens = self.drafter.tokens

    def begin(self, prompts: Sequences, max_new_tokens: int) -> None:
        """Make room for the prompts' text in the draft model's tokens."""
        translated = [self.translation.to_draft(prompt) for prompt in prompts]
        self._prompt_tokens = list(map(len, prompts))
        room = ROOM * max_new_tokens + self.tokens
        self._room = [len(prompt) + room for prompt in translated]
        self.drafter.begin(translated, room)

    def propose(self, sequences: Sequences, wanted: Sequence[int]) -> Proposal:
        """In the target's tokens, at most ``wanted``; asks for ``tokens`` of the drafter's own where ``wanted`` is above 0."""
        rows = [self.translation.to_draft(row) if count else list(row) for row, count in zip(sequences, wanted, strict=True)]
        counts = [
            min(self.tokens, max(0, room - len(row))) if count else 0
            for row, room, count in zip(rows, self._room, wanted, strict=True)
        ]
        drafted = yield from self.drafter.propose(rows, counts)
        return [
            self.translation.to_target(row[prompt:], before, tokens)[:count] if tokens else []
            for row, prompt, before, tokens, count in zip(sequences, self._prompt_tokens, rows, drafted, wanted, strict=True)
        ]
