"""How a long run reports its progress. The runner calls this protocol; the command line draws it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Progress(Protocol):
    """Receives the progress of a run."""

    def note(self, message: str) -> None:
        """One line about a step that is not a sample."""

    def start(self, case_ids: Sequence[str], later: Sequence[str] = ()) -> None:
        """These samples are still to be taken, one case id each; later processes take the ``later`` ones."""

    def advance(self, case_id: str) -> None:
        """One sample of that case is finished."""

    def skip(self, case_id: str) -> None:
        """One sample of that case need not be taken."""


class Silent:
    """Says nothing."""

    def note(self, message: str) -> None:
        """Nothing."""

    def start(self, case_ids: Sequence[str], later: Sequence[str] = ()) -> None:
        """Nothing."""

    def advance(self, case_id: str) -> None:
        """Nothing."""

    def skip(self, case_id: str) -> None:
        """Nothing."""
