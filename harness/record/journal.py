"""An append-only file of JSON lines that survives a kill at any byte and a full disk.

Every line is written, flushed and fsynced before ``append`` returns. A line cut off by a kill has no newline: readers leave it
out and the next writer removes it.
"""

from __future__ import annotations

import fcntl
import gzip
import io
import os
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO, cast

from pydantic_core import from_json

from harness.errors import RecordError, StorageError
from harness.record.regular_file import open_regular, refused
from harness.record.seal import digest, linked

ALWAYS_UNPACKED = 64 << 20
MOST_TIMES = 64
"""A packed file may hold so many bytes, or so many for each packed one: published samples have up to 15, a bomb 1000."""
MOST_BYTES = 1 << 30
LONGEST_LINE = 1 << 26
"""Bytes of a file, unpacked, and of a line in it: the longest published ones have 0.4 GB and 0.1 MB."""


class Journal:
    """The writer of one file, held by one process at a time, or by one and the child it lends the lock to."""

    def __init__(self, path: Path, lent: int | None = None) -> None:
        """Open ``path`` for appending and remove a torn last line.

        ``lent``: the ``descriptor`` of another journal of this file, here or inherited from the process that holds it. The
        lock is then shared until both are closed; the lender must not append meanwhile.

        Raises:
            StorageError: the disk refuses, or another process is writing here.
            RecordError: the packed file beside it cannot be read.
        """
        self.path = path
        self._last: tuple[int, str | None] | None = None
        try:
            with ExitStack() as on_failure:
                # A duplicate is the same open file, which owns the lock: locking it again changes nothing.
                opened = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_APPEND) if lent is None else os.dup(lent)
                self.descriptor = opened  # can be lent
                on_failure.callback(self.close)
                if lent is not None:
                    os.set_inheritable(lent, False)  # compilers and calibrations must not inherit the lock
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(opened).st_nlink == 0:
                    raise BlockingIOError(f"{path} was packed just now")  # between opening it and locking it
                kept = sum(taken for _, taken in _places(path))
                os.ftruncate(opened, kept)  # a torn line, and lines that a kill left here when they were packed
                on_failure.pop_all()
        except BlockingIOError as error:
            raise StorageError(f"{path}: another sbd run is writing here; wait for it, or give another --out") from error
        except OSError as error:
            raise refused(path, error) from error

    def append(self, line: str, origin: str | None = None, sync: bool = True) -> None:
        """Write one line (without its newline) through to the disk, whole or not at all.

        ``origin``: the hash that the first line carries; every other one then carries that of the line before it. None: none.
        ``sync``: wait for the disk; that of a later line is for all before it.

        Raises:
            StorageError: the disk refused; the lines before are untouched.
        """
        end = os.fstat(self.descriptor).st_size
        whole = (line if origin is None else linked(line, self._last_digest(end) or origin)).encode()
        data = memoryview(whole + b"\n")
        try:
            while data:
                data = data[os.write(self.descriptor, data) :]
            if sync:
                os.fsync(self.descriptor)
        except OSError as error:
            with suppress(OSError):  # readers leave out a half-written line anyway
                os.ftruncate(self.descriptor, end)
            raise refused(self.path, error) from error
        self._last = end + len(whole) + 1, digest(whole)

    def _last_digest(self, end: int) -> str | None:
        """The hash of the last line of a file of ``end`` bytes, which another process may have written; None: there is none."""
        if self._last is None or self._last[0] != end:
            last = deque(whole_lines(self.path), 1)
            self._last = end, digest(last[0]) if last else None
        return self._last[1]

    def close(self) -> None:
        """Close the file and release the lock."""
        os.close(self.descriptor)


def whole_lines(path: Path) -> Iterator[bytes]:
    """The whole lines of ``path`` + ``.gz`` and then of ``path``, one by one, not parsed; an absent file has none.

    Raises:
        RecordError: the file cannot be read, or holds more than a record does.
    """
    return (line for line, _ in _places(path))


def _places(path: Path) -> Iterator[tuple[bytes, int]]:
    """Each whole line, and the bytes that it takes in ``path`` itself."""
    # In this order: packing takes lines from the one to the other.
    with _opened(path) as plain, _opened(packed(path)) as archive:
        first, taken = next(_lines(path, plain), None), list[bytes]()
        for line in _lines(packed(path), archive):
            if line == first:
                taken.clear()
            if taken or line == first:
                taken.append(line)
            yield line, 0
        if not taken or taken != list(_lines(path, plain)):  # else packed already, when a kill came
            yield from ((line, len(line) + 1) for line in _lines(path, plain))


def packed(path: Path) -> Path:
    """The file of the published lines of ``path``; ``path`` has those written since."""
    return path.with_name(f"{path.name}.gz")


def _opened(path: Path) -> BinaryIO:
    """The file; an empty one where it is absent."""
    try:
        return os.fdopen(open_regular(path, os.O_RDONLY), "rb")
    except FileNotFoundError:
        return io.BytesIO()
    except OSError as error:
        raise unreadable(path, error) from error


def _lines(path: Path, file: BinaryIO) -> Iterator[bytes]:
    """The whole lines from the file's begin on, unpacked; a bounded number of bytes is read.

    A last line that ends in a newline but is not JSON is torn too: after a power cut a block may hold zeros.
    """
    left = most = min(MOST_BYTES, max(ALWAYS_UNPACKED, MOST_TIMES * file.seek(0, os.SEEK_END)))
    file.seek(0)
    if path.suffix == ".gz":
        file = cast(BinaryIO, gzip.GzipFile(fileobj=file))
    before = b""
    try:
        while line := file.readline(LONGEST_LINE + 1):
            left -= len(line)
            if left < 0 or len(line) > LONGEST_LINE:
                raise RecordError(
                    f"{path}: holds more than {most:,} bytes, or more than {LONGEST_LINE:,} in a line, so it is no record; "
                    "restore the file, or run again"
                )
            if before:
                yield before[:-1]
            before = line if line.endswith(b"\n") else b""
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(path, error) from error
    with suppress(ValueError):
        from_json(before)
        yield before[:-1]


def unreadable(path: Path, error: Exception) -> RecordError:
    """The record error of a file that cannot be read."""
    return RecordError(f"{path}: cannot be read ({error}); restore the file, or run again")


def damaged(path: Path, number: int, why: str) -> RecordError:
    """A line that is not JSON, in the user's words."""
    return RecordError(f"{path}:{number}: damaged line ({why}); remove the line to go on without that sample")
