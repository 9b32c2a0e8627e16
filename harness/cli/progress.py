"""Draws a run's progress as one line of a terminal, or prints a line at intervals without one; estimates only time left."""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TextIO

from harness.cli.output import columns, fitted
from harness.formatting import one_line
from harness.progress import Progress, hearing

LINE_EVERY_S = 15.0
RECENT = 32  # last samples of a case that give its pace
SETTLED = 3
"""Samples of a case from which its pace is known."""
CLEAR_LINE = "\r\x1b[K"
BAR = 16
REDRAWN_EVERY_S = 0.5
"""While a model loads, or another process calibrates: no sample is being timed here."""


class TerminalProgress(Progress):
    """Progress on ``stream``.

    Time left: a missing sample lasts as long as the median of its own case's last samples. Loading and compiling come before
    the first ones, so a case with fewer than SETTLED takes what earlier processes took, else the average of the others. What
    was spent beside the samples (loading, compiling, measured passes) is expected again for every model still to be opened.
    The total is that of the run and never changes: samples that are not needed are counted as such. ``what``: the plural of
    what is counted.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic, what: str = "samples") -> None:
        self._stream, self._clock, self._what = stream, clock, what
        self._live = stream.isatty()
        self._planned = self._before = self._finished = self._spared = self._starts = 0
        self._missing: Counter[str] = Counter()
        self._taken: Counter[str] = Counter()
        self._spent_s: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=RECENT))
        self._names: Mapping[str, str] = {}
        self._known_s: Mapping[str, float] = {}
        self._opened: set[str] = set()
        self._last_s = self._printed_s = self._begun_s = 0.0
        self._line_open = False

    def note(self, message: str) -> None:
        """Print a line of its own in the place of the live one."""
        if self._line_open:
            print(CLEAR_LINE, end="", file=self._stream)
            self._line_open = False
        line = one_line(message)
        print(fitted(line, columns(self._stream)) if self._live else line, file=self._stream, flush=True)

    @contextmanager
    def step(self, what: str, expected_s: float | None = None) -> Iterator[None]:
        """A bar while it lasts, as far as its share is told or its length expected; then a line with its time."""
        if not self._live:
            expected = "" if expected_s is None else f" (about {format_duration(expected_s)})"
            self.note(f"{what}{expected}")
            yield
            return
        begun_s, share, ended = self._clock(), [0.0], threading.Event()

        def draw() -> None:
            while not ended.wait(REDRAWN_EVERY_S):
                self._draw(_step_text(what, self._clock() - begun_s, share[0], expected_s))

        self._draw(_step_text(what, 0.0, 0.0, expected_s))
        drawing = threading.Thread(target=draw, daemon=True)
        drawing.start()
        try:
            with hearing(lambda told: share.__setitem__(0, told)):
                yield
        finally:
            ended.set()
            drawing.join()
            self.note(f"{what}: {format_duration(self._clock() - begun_s)}")

    def start(
        self,
        case_ids: Sequence[str],
        later: Sequence[str] = (),
        planned: int | None = None,
        starts: int = 0,
        names: Mapping[str, str] | None = None,
        known_s: Mapping[str, float] | None = None,
    ) -> None:
        """Begin to count; the time left includes the ``later`` ones, and opening ``starts`` models."""
        missing = len(case_ids) + len(later)
        self._planned = max(planned or 0, missing)
        self._before, self._finished, self._spared = self._planned - missing, 0, 0
        self._missing, self._names, self._starts = Counter([*case_ids, *later]), names or {}, starts
        self._taken, self._opened, self._known_s = Counter(), set(), known_s or {}
        self._begun_s = self._last_s = self._printed_s = self._clock()
        of_all = f" of {self._planned}" if self._before else ""
        after = f", {len(later)} of them in later processes" if later else ""
        self.note(f"{missing}{of_all} {self._what} to take{after}" if case_ids else f"all {self._what} are there already")

    def advance(self, case_id: str) -> None:
        """Count one sample; redraw the line, or print one every 15 s where the stream is not a terminal."""
        now_s = self._clock()
        self._finished += 1
        self._missing[case_id] -= 1
        self._taken[case_id] += 1
        self._spent_s[case_id].append(now_s - self._last_s)
        self._opened.add(case_id.partition("/")[0])
        self._last_s = now_s
        if self._live:
            self._draw(self._text(case_id))
        elif now_s - self._printed_s >= LINE_EVERY_S:
            self._printed_s = now_s
            print(self._text(case_id), file=self._stream, flush=True)

    def skip(self, case_id: str) -> None:
        """Count one sample that is not needed."""
        self._spared += 1
        self._missing[case_id] -= 1

    def end_line(self) -> None:
        """Keep the live line and begin the next one."""
        if self._line_open:
            print(file=self._stream, flush=True)
            self._line_open = False

    def _draw(self, text: str) -> None:
        """Put ``text`` in the place of the live line, cut where the terminal ends; its last column stays free, as some wrap."""
        width = (columns(self._stream) or 80) - 1
        print(f"{CLEAR_LINE}{one_line(text, width)}", end="", file=self._stream, flush=True)
        self._line_open = True

    def _text(self, case_id: str) -> str:
        done = self._before + self._finished + self._spared
        alone = self._finished == 1 and self._missing.total() > 0
        left = "time left not known yet" if alone else f"about {format_duration(self._left_s())} left"
        spared = f" ({self._spared} not needed)" if self._spared else ""
        bar = f"{_bar(done / self._planned)} " if self._live else ""
        return one_line(f"{bar}{done}/{self._planned} {self._what}{spared}, {left} ({self._names.get(case_id, case_id)})")

    def _left_s(self) -> float:
        pace_s = {case_id: statistics.median(spent) for case_id, spent in self._spent_s.items()}
        settled = {case_id: pace_s[case_id] for case_id, count in self._taken.items() if count >= SETTLED}
        average_s = statistics.fmean((settled or self._known_s or pace_s).values())
        each_s = dict.fromkeys((*self._missing, *pace_s), average_s) | dict(self._known_s) | settled
        sampled_s, missing_s = (
            sum(each_s[case_id] * count for case_id, count in cases.items()) for cases in (self._taken, self._missing)
        )
        # Opening the models still to come takes as long for each as it took for those opened so far.
        beside_s = max(0.0, self._last_s - self._begun_s - sampled_s)
        return missing_s + beside_s / len(self._opened) * max(0, self._starts - len(self._opened))


def _bar(share: float) -> str:
    filled = round(BAR * min(max(share, 0.0), 1.0))
    return f"[{'#' * filled}{'-' * (BAR - filled)}]"


def _step_text(what: str, spent_s: float, share: float, expected_s: float | None) -> str:
    """``[####------------] loading the model, 12 s, about 30 s left``."""
    if share > 0:
        left_s: float | None = spent_s / share - spent_s
    else:
        left_s = None if expected_s is None else max(expected_s - spent_s, 0.0)
        share = 0.0 if expected_s is None else min(spent_s / expected_s, 0.95)
    left = "" if left_s is None else f", about {format_duration(left_s)} left"
    return f"{_bar(share)} {what}, {format_duration(spent_s)}{left}"


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
