"""Prompt lookup decoding (github.com/apoorvumang/prompt-lookup-decoding): what followed the last few tokens when they stood
in the row before is the draft. No model drafts, so it costs no pass.

The rule is that of transformers' ``generate(prompt_lookup_num_tokens=…)``. Plain integers only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from harness.decoding.drafter import Proposal, Sequences


class PromptLookup:
    """Looks up to ``max_ngram`` last tokens up in the row's prompt and output. ``never``: ids that cannot be written;
    ``stops``: ids that end a row.
    """

    def __init__(self, tokens: int, max_ngram: int, never: Collection[int], stops: Collection[int]) -> None:
        self.tokens = tokens
        self._max_ngram = max_ngram
        self._never, self._stops = frozenset(never), frozenset(stops)

    def begin(self, prompts: Sequences, max_new_tokens: int) -> None:
        """Nothing to read: the prompts come with every question."""

    def propose(self, sequences: Sequences, wanted: Sequence[int]) -> Proposal:
        """What followed, row by row."""
        yield from ()
        return [
            looked_up(sequence, count, self._max_ngram, self._never, self._stops) if count > 0 else []
            for sequence, count in zip(sequences, wanted, strict=True)
        ]


def looked_up(
    sequence: Sequence[int], tokens: int, max_ngram: int, never: Collection[int], stops: Collection[int]
) -> list[int]:
    """What followed the leftmost earlier place of the longest n-gram at the end that has one, up to ``tokens`` tokens.

    Cut before the first token that may never be written, and where that leaves nothing the next place is tried; then cut
    before the first that stops a row.
    """
    held = list(sequence)
    for size in range(min(max_ngram, len(held) - 1), 0, -1):
        for start in _places(held, size):
            found = _before(held[start + size : start + size + tokens], never)
            if found:
                return _before(found, stops)
    return []


def _places(held: list[int], size: int) -> Iterator[int]:
    """Where the last ``size`` tokens stood before, from left to right."""
    gram = held[-size:]
    place = -1
    while True:
        try:
            place = held.index(gram[0], place + 1, len(held) - size)
        except ValueError:
            return
        if held[place : place + size] == gram:
            yield place


def _before(tokens: list[int], ids: Collection[int]) -> list[int]:
    """The tokens up to, and without, the first of ``ids``."""
    return tokens[: next((i for i, token in enumerate(tokens) if token in ids), len(tokens))]
