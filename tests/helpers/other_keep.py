"""A session that keeps other KV than it is told."""

from __future__ import annotations


class OtherKeep:
    """A session that keeps ``by`` more slots of every pass behind the prompt than it is told to, but no more than 4."""

    def __init__(self, inner, by):
        self._inner, self._by = inner, by

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def reset(self, rows, capacity):
        """The next keep is the prompt's."""
        self._prompt = True
        self._inner.reset(rows, capacity)

    def keep(self, tokens):
        """Off by some."""
        self._inner.keep(tokens if self._prompt else [min(max(0, count + self._by), 4) if count else 0 for count in tokens])
        self._prompt = False
