"""Files that no tool writes: texts, sizes, nesting, bytes and things that are no regular files, for any place of a file.

``WRONG`` holds those that no reader accepts, ``LARGE`` those of them that are large. Large files are sparse or written in
pieces, so that making one costs little. A ``Hostile`` is one planted thing of any kind, with what fits it.
"""

from __future__ import annotations

import gzip
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from tests.helpers.fuzzed_files import JSON_TEXTS

Plant = Callable[[Path, Random], object]
"""Changes a folder with sound files."""
Write = Callable[[Path], object]
"""Makes one file."""
REFUSED, READ = frozenset({2}), frozenset({0, 2, 5})
NAMES = (
    "hstl7\x1b[31m",
    "hstl7\n::error::hstl7",
    "hstl7\u202egnp",
    "<hstl7>",
    '"><hstl7 x="',
    "-hstl7",
    "--help",
    "a b",
    "%2e%2e",
    "hstl7'&amp;",
    "\x85hstl7\u2028",
    "hstl7?#x",
    "é",
    "hstl7" * 40,
    "{{hstl7}}",
    "javascript:hstl7()",
    "\x7fhstl7",
    " ",
    "hstl7\udcff",
    "\udce9hstl7",
)
"""Names of files and folders; the last two are no UTF-8."""


@dataclass(frozen=True)
class Hostile:
    """``plant`` makes it; ``exits`` are the codes that fit, ``names`` is what a refusal says."""

    what: str
    plant: Plant
    exits: frozenset[int] = READ
    names: str = ""


def repeated(file: Path, head: bytes, piece: bytes, size: int, tail: bytes = b"") -> None:
    """A file of about ``size`` bytes: a head, one piece again and again, and a tail."""
    block = piece * max(1, (1 << 20) // len(piece))
    with file.open("wb") as out:
        out.write(head)
        for _ in range(size // len(block)):
            out.write(block)
        out.write(piece * (size % len(block) // len(piece)) + tail)


def sparse(file: Path, size: int, head: bytes = b"") -> None:
    """A file of ``size`` bytes, zeros behind its head, that takes no room."""
    with file.open("wb") as out:
        out.write(head)
        out.truncate(size)


def packed_large(file: Path, piece: bytes, size: int) -> None:
    """A gzip of ``size`` bytes unpacked, in members of 64 MiB."""
    member = gzip.compress(piece * ((64 << 20) // len(piece)), 9)
    with file.open("wb") as out:
        for _ in range(max(1, size >> 26)):
            out.write(member)


def in_place_of(write: Write, name: str) -> Plant:
    """The same where a file of the folder was."""

    def plant(folder: Path, chance: Random) -> None:
        (folder / name).unlink(missing_ok=True)
        write(folder / name)

    return plant


def _bytes(data: bytes, file: Path) -> None:
    file.write_bytes(data)


def _socket(file: Path) -> None:
    before = Path.cwd()
    os.chdir(file.parent)  # a socket's name is short
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(file.name)
    finally:
        os.chdir(before)


def _linked(target: str, file: Path) -> None:
    file.symlink_to(target)


def _to_itself(file: Path) -> None:
    file.symlink_to(file)


def _noise(file: Path) -> None:
    file.write_bytes(Random(1).randbytes(60_000))


WRONG: dict[str, Write] = {
    **{f"text {text[:16]!r}": partial(_bytes, text.encode()) for text in JSON_TEXTS if text not in ("[]", "{}")},
    "a pipe": os.mkfifo,
    "a folder": os.mkdir,
    "a socket": _socket,
    "a link to itself": _to_itself,
    "a link to /dev/zero": partial(_linked, "/dev/zero"),
    "a link to /dev/stdin": partial(_linked, "/dev/stdin"),
    "a link to nothing": partial(_linked, "absent"),
    "noise": _noise,
    "0xff": partial(_bytes, b"\xff" * 5000),
    "UTF-16": partial(_bytes, '{"a": 1}'.encode("utf-16")),
    "latin-1": partial(_bytes, b'{"a": "\xe9"}'),
    "a half of a surrogate pair": partial(_bytes, b'{"a": "\xed\xa0\x80"}'),
    "gzip": partial(_bytes, gzip.compress(b"{}", mtime=0)),
    "a cut gzip": partial(_bytes, gzip.compress(b"{}" * 99, mtime=0)[:9]),
    "2 MB of spaces": partial(repeated, head=b"", piece=b" ", size=2_000_000),
    "a million open lists": partial(repeated, head=b"", piece=b"[", size=1_000_000),
    "a number of a million digits": partial(repeated, head=b'{"a": ', piece=b"7", size=1_000_000, tail=b"}"),
    "a million empty lists": partial(repeated, head=b"[", piece=b"[],", size=3_000_000, tail=b"[]]"),
    "100,000 keys": partial(repeated, head=b'{"a": [', piece=b'{"b": 0}, ', size=1_000_000, tail=b"0]}"),
}
LARGE: dict[str, Write] = {
    "80 million empty lists": partial(repeated, head=b"[", piece=b"[],", size=240_000_000, tail=b"[]]"),
    "a text of 240 MB": partial(repeated, head=b'{"a": "', piece=b"x", size=240_000_000, tail=b'"}'),
    "240 MB of zeros": partial(sparse, size=240_000_000),
    "10 GB of zeros": partial(sparse, size=10**10),
    "200 MB of spaces": partial(repeated, head=b"", piece=b" ", size=200_000_000, tail=b"{}"),
}
FILLINGS: dict[str, tuple[bytes, bytes, int, bytes]] = {
    "a million empty lists": (b"[", b"[],", 3_000_000, b"[]]"),
    "100,000 open lists": (b"[" * 100_000, b" ", 1, b"]" * 100_000),
    "10,000 digits": (b"1", b"7", 10_000, b""),
    "NaN": (b"NaN", b" ", 1, b""),
}
"""Values of a key, as ``repeated`` takes them."""


def in_places_of(name: str, *things: str) -> Iterator[tuple[str, Plant]]:
    """Things of WRONG and LARGE where a file of the folder was, each with its words."""
    for what in things:
        yield f"{name}: {what}", in_place_of({**WRONG, **LARGE}[what], name)
