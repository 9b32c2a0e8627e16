"""From the token ids of one tokenizer to those of another, by way of the text, for drafts of a model with another tokenizer.

Special tokens have no text, so they are not translated, but for one: where the draft model would stop, so would the target.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from harness.engine.loading import TextTokenizer


class TextTranslation:
    """A harness.decoding.translated_drafts.Translation. ``draft_stops``: ids at which the draft model stops; ``stop``: what
    they mean to the target, None where it stops at several or at none.
    """

    def __init__(
        self, target: TextTokenizer, draft: TextTokenizer, draft_stops: Collection[int], stop: int | None
    ) -> None:
        self._target, self._draft = target, draft
        self._draft_stops, self._stop = frozenset(draft_stops), stop

    def to_draft(self, sequence: Sequence[int]) -> list[int]:
        """The text in the draft model's tokens, with what its tokenizer puts before a text."""
        return self._draft.encode(self._target.decode(sequence))

    def to_target(self, output: Sequence[int], before: Sequence[int], drafted: Sequence[int]) -> list[int]:
        """The new text in the target's tokens. Where the target's tokenizer cuts the row's output as the target wrote it, the
        new text is cut as it would be behind it; else by itself. Nothing where the drafts end within a letter.
        """
        stops = drafted[-1] in self._draft_stops
        old, new = self._draft.decode(before), self._draft.decode([*before, *drafted])
        if not new.startswith(old):
            return []
        written, added = self._target.decode(output), new[len(old) :]
        whole = self._target.encode_more(written + added)
        behind = whole[: len(output)] == list(output)
        tokens = whole[len(output) :] if behind else self._target.encode_more(added)
        return tokens + ([self._stop] if stops and self._stop is not None else [])
