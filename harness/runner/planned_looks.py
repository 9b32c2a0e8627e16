"""When a run ends before its last process: its claims are decided at a planned look, or its time is up.

What a look sees is judged by whoever starts the run (``Look``): this package measures, and knows no verdict.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from harness.progress import Progress
from harness.record.schema import Looks, Run

Look = Callable[[Run, int], tuple[bool, Sequence[str]]]
"""Of the record and the number of its whole processes: whether all is decided, and lines for people."""
DECIDED, TIME_IS_UP = "decided", "the time was up"


class PlannedLooks:
    """Follows one `sbd run`, process by process."""

    def __init__(
        self, looks: Looks | None, look: Look | None, progress: Progress, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._looks, self._look, self._progress, self._clock = looks, look, progress, clock
        self._begun_s = self._last_s = clock()
        self._longest_s, self._seen = 0.0, -1

    def ended(self, held: Run, whole: int) -> str | None:
        """Why no further process begins after so many ``whole`` ones; None: it goes on. Each number is looked at once."""
        if self._looks is None or whole == self._seen:
            return None
        now_s = self._clock()
        if self._seen >= 0:
            self._longest_s = max(self._longest_s, now_s - self._last_s)
        self._seen, self._last_s = whole, now_s
        if self._look is not None and whole >= self._looks.first - 1:
            decided, lines = self._look(held, whole)
            for line in lines:
                self._progress.note(line)
            if decided and whole >= self._looks.first:
                return DECIDED
        limit_s = self._looks.at_most_s
        if limit_s is not None and now_s - self._begun_s + self._longest_s > limit_s:
            self._progress.note(f"{TIME_IS_UP}: another process would end after {limit_s:g} s")
            return TIME_IS_UP
        return None
