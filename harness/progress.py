"""How a long run reports its progress. The runner calls this class; the command line draws it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

_told: ContextVar[Callable[[float], None] | None] = ContextVar("told", default=None)


def tell_share(share: float) -> None:
    """Tell the open step (``Progress.step``) how much of it is done, 0 to 1; without one nothing happens."""
    if (told := _told.get()) is not None:
        told(share)


@contextmanager
def hearing(told: Callable[[float], None]) -> Iterator[None]:
    """Within it, ``told`` hears what ``tell_share`` is given."""
    before = _told.set(told)
    try:
        yield
    finally:
        _told.reset(before)


class Progress:
    """Receives the progress of a run, and does nothing with it."""

    def note(self, message: str) -> None:
        """One line about a step that is not a sample."""

    @contextmanager
    def step(self, what: str, expected_s: float | None = None) -> Iterator[None]:
        """Within it, something takes long that is no sample; ``expected_s``: how long, as far as that is known. Noted here."""
        self.note(what)
        yield

    def start(
        self,
        case_ids: Sequence[str],
        later: Sequence[str] = (),
        planned: int | None = None,
        starts: int = 0,
        names: Mapping[str, str] | None = None,
        known_s: Mapping[str, float] | None = None,
    ) -> None:
        """These samples are still to be taken, one case id each; later processes take the ``later`` ones.

        ``planned``: all samples of the run, with those that are there; default: those that are given here. ``starts``: models
        that are still to be opened for them. ``names``: what a person calls a case; default: its id. ``known_s``: seconds of a
        sample of a case, as earlier processes took them.
        """

    def advance(self, case_id: str) -> None:
        """One sample of that case is finished."""

    def skip(self, case_id: str) -> None:
        """One sample of that case need not be taken."""
