"""Texts of the tokens that the first decodes of every arm wrote, so that a report can show them without a tokenizer."""

from __future__ import annotations

from harness.record.schema import Sample
from harness.workloads.loader import Tokenizer

SHOWN_GROUPS = 2
"""Of every case, the decodes of so many groups of prompts have their tokens spelt out in the record."""


class TokenTexts:
    """Spells token ids, each of them once. ``tokenizer`` None: there is nothing to spell them with."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer
        self._known: set[int] = set()

    def new_in(self, sample: Sample) -> dict[str, str]:
        """Text by id (as JSON has it, a string) of the tokens of ``sample`` that were not spelt yet; empty for later decodes.

        A special token has no text.
        """
        shown = sample.group < SHOWN_GROUPS and sample.repeat == 0 and sample.process == 0 and not sample.warmup
        if self._tokenizer is None or not shown:
            return {}
        new = sorted({token for row in sample.rows for token in row.output_ids} - self._known)
        self._known.update(new)
        return {str(token): self._tokenizer.decode([token]) for token in new}
