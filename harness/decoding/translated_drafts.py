"""Drafts of a model that cuts text into other tokens (universal assisted decoding): what the row says so far is put into the
draft model's tokens, and what that model adds is put into the target's.

The target checks token ids as ever, so a translation that goes wrong costs speed and nothing else. Knows no tokenizer: the
two directions are handed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from harness.decoding.drafter import Drafter, Proposal, Sequences

ROOM = 4
"""Draft tokens that one target token may take on average; a row that takes more is drafted no further."""


class Translation(Protocol):
    """Between the target's token ids and the draft model's."""

    def to_draft(self, sequence: Sequence[int]) -> list[int]:
        """The draft model's tokens of the same text."""

    def to_target(self, output: Sequence[int], before: Sequence[int], drafted: Sequence[int]) -> list[int]:
        """The target's tokens of the text that ``drafted`` adds to ``before``, both the draft model's, where the row's
        ``output`` so far is the target's.
        """


class TranslatedDrafts:
    """``drafter``: proposes in its own tokens; ``tokens`` is counted in those."""

    def __init__(self, drafter: Drafter, translation: Translation) -> None:
        self.tokens = drafter.tokens
        self._drafter, self._translation = drafter, translation
        self._prompt_tokens: list[int] = []
        self._room: list[int] = []

    def begin(self, prompts: Sequences, max_new_tokens: int) -> None:
        """Make room for the prompts' text in the draft model's tokens."""
        translated = [self._translation.to_draft(prompt) for prompt in prompts]
        self._prompt_tokens = list(map(len, prompts))
        room = ROOM * max_new_tokens + self.tokens
        self._room = [len(prompt) + room for prompt in translated]
        self._drafter.begin(translated, room)

    def propose(self, sequences: Sequences, wanted: Sequence[int]) -> Proposal:
        """In the target's tokens, at most ``wanted``; ``tokens`` of its own where more than none are."""
        rows = [
            self._translation.to_draft(row) if count else list(row) for row, count in zip(sequences, wanted, strict=True)
        ]
        counts = [
            min(self.tokens, max(0, room - len(row))) if count else 0
            for row, room, count in zip(rows, self._room, wanted, strict=True)
        ]
        drafted = yield from self._drafter.propose(rows, counts)
        return [
            self._translation.to_target(row[prompt:], before, tokens)[:count] if tokens else []
            for row, prompt, before, tokens, count in zip(sequences, self._prompt_tokens, rows, drafted, wanted, strict=True)
        ]
