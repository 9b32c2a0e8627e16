"""Files of a run: read and written as the regular files they are, never through a symbolic link, a device or a pipe.

A run's folder may come from somebody else. A link in it could make a command overwrite a file of the user's, or copy one into
a folder that is published.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from harness.errors import StorageError, UserError

KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


def open_regular(path: Path, flags: int) -> int:
    """A descriptor of the file; with O_CREAT it may be new. Opening a pipe does not wait for its other end.

    Raises:
        UserError: it is no regular file, or it is opened for writing and has other names. OSError: as os.open.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            refuse_irregular(path)
        raise
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode):
        os.close(descriptor)
        refuse_irregular(path)
    elif state.st_nlink > 1 and flags & os.O_ACCMODE != os.O_RDONLY:
        os.close(descriptor)
        raise UserError(
            f"{path}: is a file that has another name too (a hard link), and writing here would change both. Put a copy there, "
            "or give another place"
        )
    return descriptor


def refuse_irregular(path: Path) -> None:
    """Nothing where the file is absent or regular.

    Raises:
        UserError: it is a link, a folder, a device, a pipe or a socket.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        kind = KINDS.get(stat.S_IFMT(path.lstat().st_mode))
        if kind is not None:
            raise UserError(
                f"{path}: is {kind}; it must be a regular file, nothing is read or written through a link. Put the "
                "file itself there, or give another place"
            )


def read_regular(path: Path, most_bytes: int) -> bytes:
    """The contents; no byte beyond ``most_bytes`` is kept. Raises UserError where there are more; and as open_regular does."""
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise UserError(f"{path}: has more than {most_bytes:,} bytes, and no such file is as long; restore it, or leave it out")
    return data


def write_whole(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: beside it first, then renamed over it. A failed write leaves nothing beside it.

    Raises:
        UserError: something that is no regular file is there.
        StorageError: the disk refuses.
    """
    refuse_irregular(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.unlink(missing_ok=True)  # left by a kill, or a link that was laid there
        descriptor = open_regular(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise refused(path, error) from error


def remove(path: Path) -> None:
    """Remove a file or a link, if there is one. Raises StorageError: the disk refuses."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise refused(path, error) from error


def refused(path: Path, error: OSError) -> StorageError:
    """The disk's refusal in the user's words."""
    return StorageError(
        f"{path}: the disk refused to take the record ({error.strerror or error}); free space or give another --out, then "
        "start the same command again: finished samples are kept"
    )
