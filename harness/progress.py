"""How a long run tells where it is. The runner knows this protocol; the command line draws it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Progress(Protocol):
    """Receives what is going on."""

    def note(self, message: str) -> None:
        """One line about a step that is not a sample."""

    def start(self, case_ids: Sequence[str], later: Sequence[str] = ()) -> None:
        """These samples are still to be taken, one case id each, and ``later`` ones by processes that come after this one."""

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
