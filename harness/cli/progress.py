"""Draws a run's progress on a terminal, or prints a line at intervals without one; estimates only time left."""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from typing import TextIO

from harness.formatting import one_line
from harness.progress import Progress

LINE_EVERY_S = 15.0
RECENT = 32  # last samples of a case that give its pace
CLEAR_TO_END = "\x1b[K"


class TerminalProgress(Progress):
    """Progress on ``stream``.

    Time left: a missing sample lasts as long as the median of its own case's last samples. A case that has not begun uses the
    average. It is the median because model loading and compilation come before the first, so one sample says nothing.
    ``what``: the plural of what is counted.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic, what: str = "samples") -> None:
        self._stream = stream
        self._clock = clock
        self._what = what
        self._live = stream.isatty()
        self._samples = self._finished = 0
        self._missing: Counter[str] = Counter()
        self._spent_s: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=RECENT))
        self._last_s = self._printed_s = 0.0
        self._line_open = False

    def note(self, message: str) -> None:
        """Print a line of its own."""
        self.end_line()
        print(one_line(message), file=self._stream, flush=True)

    def start(self, case_ids: Sequence[str], later: Sequence[str] = ()) -> None:
        """Begin to count; the time left includes the ``later`` ones."""
        self._samples, self._finished = len(case_ids), 0
        self._missing = Counter([*case_ids, *later])
        self._last_s = self._printed_s = self._clock()
        after = f", {len(later)} more in later processes" if later else ""
        self.note(f"{self._samples} {self._what} to take{after}" if case_ids else f"all {self._what} are there already")

    def advance(self, case_id: str) -> None:
        """Count one sample; redraw the line, or print one every 15 s where the stream is not a terminal."""
        now_s = self._clock()
        self._finished += 1
        self._missing[case_id] -= 1
        self._spent_s[case_id].append(now_s - self._last_s)
        self._last_s = now_s
        if self._live:
            print(f"\r{self._text(case_id)}{CLEAR_TO_END}", end="", file=self._stream, flush=True)
            self._line_open = True
        elif now_s - self._printed_s >= LINE_EVERY_S:
            self._printed_s = now_s
            print(self._text(case_id), file=self._stream, flush=True)

    def skip(self, case_id: str) -> None:
        """Count one sample less."""
        self._samples -= 1
        self._missing[case_id] -= 1

    def end_line(self) -> None:
        """Keep the live line and begin the next one."""
        if self._line_open:
            print(file=self._stream, flush=True)
            self._line_open = False

    def _text(self, case_id: str) -> str:
        alone = self._finished == 1 and self._missing.total() > 0
        left = "time left not known yet" if alone else f"about {format_duration(self._left_s())} left"
        return one_line(f"{self._finished}/{self._samples} {self._what}, {left} ({case_id})")

    def _left_s(self) -> float:
        each_s = {case_id: statistics.median(spent) for case_id, spent in self._spent_s.items()}
        average_s = statistics.fmean(each_s.values(), [len(spent) for spent in self._spent_s.values()])
        return sum(count * each_s.get(case_id, average_s) for case_id, count in self._missing.items())


def format_duration(seconds: float) -> str:
    """``0.4 s``, ``45 s``, ``3 min 20 s``, ``2 h 05 min``."""
    whole = round(seconds)
    if seconds < 9.5:
        return f"{seconds:.1f} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
