"""Draws a run's progress on a terminal, or as a line now and then where there is none. Estimates nothing but time left."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

LINE_EVERY_S = 15.0
CLEAR_TO_END = "\x1b[K"


class TerminalProgress:
    """A harness.progress.Progress on ``stream``; time left follows the pace so far."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._live = stream.isatty()
        self._samples = self._finished = 0
        self._started_s = self._printed_s = 0.0
        self._line_open = False

    def note(self, message: str) -> None:
        """Print a line of its own."""
        self.end_line()
        print(message, file=self._stream, flush=True)

    def start(self, samples: int) -> None:
        """Begin to count; loading of models counts as time, so the first estimates are too long rather than too short."""
        self._samples, self._finished = samples, 0
        self._started_s = self._printed_s = self._clock()
        self.note(f"{samples} samples to take" if samples else "all samples are there already")

    def advance(self, label: str) -> None:
        """Count one sample; redraw the line, or print one every 15 s where the stream is no terminal."""
        self._finished += 1
        now_s = self._clock()
        text = f"{self._finished}/{self._samples} samples, about {format_duration(self._left_s(now_s))} left ({label})"
        if self._live:
            print(f"\r{text}{CLEAR_TO_END}", end="", file=self._stream, flush=True)
            self._line_open = True
        elif now_s - self._printed_s >= LINE_EVERY_S:
            self._printed_s = now_s
            print(text, file=self._stream, flush=True)

    def end_line(self) -> None:
        """Leave the live line standing and go to the next one."""
        if self._line_open:
            print(file=self._stream, flush=True)
            self._line_open = False

    def _left_s(self, now_s: float) -> float:
        return (now_s - self._started_s) / self._finished * max(self._samples - self._finished, 0)


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
