"""The standard streams of a command, whatever it was started with: closed, full, not read, or in another encoding.

Output that cannot be written must not look like a verdict. A reader of the progress who leaves must not end a measurement.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import select
import sys
from collections.abc import Callable
from typing import Any, TextIO

from harness.errors import EXIT_CLOSED_PIPE, StorageError

ESCAPED = "sbd.escaped"
"""Handler of letters that the encoding lacks: as JSON escapes them, so that JSON stays JSON."""
Refused = Callable[[OSError], None]
"""Is told that the system refused."""


class Output(io.FileIO):
    """A descriptor that is written to until it refuses; from then on everything is dropped."""

    def __init__(self, descriptor: int, refused: Refused) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._refused: Refused | None = refused

    def write(self, data: Any) -> int:
        """As FileIO's, but a descriptor that does not block is waited for."""
        if (refused := self._refused) is None:
            return len(data)
        try:
            while (written := super().write(data)) is None:
                select.select([], [self], [])
            return written
        except OSError as error:
            self._refused = None  # the interpreter flushes once more as it ends
            refused(error)
            return len(data)


def prepare() -> None:
    """Put an Output in place of the interpreter's stdout and stderr; streams that somebody else put there stay.

    Writing or flushing stdout then ends the program with 141 where its reader left (`| head`), and raises StorageError where
    the disk refuses. What stderr refuses is lost.
    """
    codecs.register_error(ESCAPED, escaped)
    descriptor = 0
    while descriptor <= 2:  # else a record's file would get the number of a closed stream, and be printed into
        descriptor = os.open(os.devnull, os.O_RDWR)
    os.close(descriptor)
    if sys.stdout is sys.__stdout__:
        sys.stdout = _text(1, sys.stdout, _stdout_refused)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(2, sys.stderr, lambda error: None)


def _text(descriptor: int, before: Any, refused: Refused) -> TextIO:
    """``before``: the stream that is replaced; None where the program was started without it."""
    encoding, at_once = getattr(before, "encoding", "utf-8"), descriptor == 2 or getattr(before, "write_through", False)
    out = io.BufferedWriter(Output(descriptor, refused))
    return io.TextIOWrapper(out, encoding, ESCAPED, line_buffering=at_once or os.isatty(descriptor))


def _stdout_refused(error: OSError) -> None:
    if isinstance(error, BrokenPipeError):
        sys.exit(EXIT_CLOSED_PIPE)
    raise StorageError(
        f"standard output cannot be written ({error.strerror}); free space, or send it to another place"
    ) from error


def escaped(error: UnicodeError) -> tuple[str, int]:
    """The handler of ESCAPED: what takes the place of the letters, and where to go on."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end
