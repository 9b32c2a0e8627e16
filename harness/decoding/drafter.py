"""Who proposes the tokens that another model checks, as a protocol.

A proposal decides how fast a row is and never what it writes, so a drafter may be wrong, short or silent. Token sequences are
plain integers, one per batch row.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol

from harness.record.trace import ForwardPass

Sequences = Sequence[Sequence[int]]
"""The tokens of every batch row: its prompt and what it has written."""
Proposal = Generator[ForwardPass, None, list[list[int]]]
"""Yields the drafter's own passes as they happen; the value it returns are the proposed tokens of every row."""


class Drafter(Protocol):
    """Proposes up to ``tokens`` tokens behind each row, in passes of its own or none."""

    @property
    def tokens(self) -> int:
        """Tokens that it is asked for at a time, at most."""

    def begin(self, prompts: Sequences, max_new_tokens: int) -> None:
        """Forget everything and make room for a new batch, behind whose prompts so many tokens may be written."""

    def propose(self, sequences: Sequences, wanted: Sequence[int]) -> Proposal:
        """What might follow: at most ``wanted`` tokens of each row, none where that is 0."""


class NoDrafts:
    """Proposes nothing: whoever asks goes on by itself, token by token."""

    tokens = 0

    def begin(self, prompts: Sequences, max_new_tokens: int) -> None:
        """Nothing to make room for."""

    def propose(self, sequences: Sequences, wanted: Sequence[int]) -> Proposal:
        """Nothing."""
        yield from ()
        return [[] for _ in sequences]
