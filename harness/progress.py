"""How a long run tells where it is. The runner knows this protocol; the command line draws it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives what is going on."""

    def note(self, message: str) -> None:
        """One line about a step that is not a sample."""

    def start(self, samples: int) -> None:
        """So many samples are still to be taken."""

    def advance(self, label: str) -> None:
        """One sample of the case called ``label`` is finished."""


class Silent:
    """Says nothing."""

    def note(self, message: str) -> None:
        """Nothing."""

    def start(self, samples: int) -> None:
        """Nothing."""

    def advance(self, label: str) -> None:
        """Nothing."""
