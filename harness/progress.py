"""How a long run reports its progress. The runner calls this class; the command line draws it."""

from __future__ import annotations

from collections.abc import Sequence


class Progress:
    """Receives the progress of a run, and does nothing with it."""

    def note(self, message: str) -> None:
        """One line about a step that is not a sample."""

    def start(self, case_ids: Sequence[str], later: Sequence[str] = ()) -> None:
        """These samples are still to be taken, one case id each; later processes take the ``later`` ones."""

    def advance(self, case_id: str) -> None:
        """One sample of that case is finished."""

    def skip(self, case_id: str) -> None:
        """One sample of that case need not be taken."""
