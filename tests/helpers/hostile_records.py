"""Records that somebody changed after they were sealed, pages that are not of their record, and files of a record without end.

``BROKEN`` changes a sealed record so that its seal does not fit; ``HONEST`` is what a kill leaves. ``ENDLESS`` are files that
no run wrote, by the name of the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from harness.record.seal import SEAL
from harness.record.store import EVENTS, HEADER, SAMPLES, SIGNATURE
from tests.helpers.hostile_files import LARGE, WRONG, Write, packed_large, repeated, sparse

Change = Callable[[Path], object]
Lines = Callable[[list[bytes]], object]
TOOLS = (
    "ssh-keygen",
    "git",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "c++",
    "g++",
    "python",
    "python3",
    "sh",
    "nvidia-smi",
)
"""Programs that the commands call, planted in a folder."""
SEARCHED = ("", ":", ".", ".:{path}", ":{path}", "bin", "./bin:{path}", "{path}:", "../here:{path}", "{path}::bin")
"""Values of PATH that name the folder where a command is called, or one in it, by a relative path."""


def _lines(name: str, change: Lines) -> Change:
    def changed(folder: Path) -> None:
        lines = (folder / name).read_bytes().splitlines(keepends=True)
        change(lines)
        (folder / name).write_bytes(b"".join(lines))

    return changed


def _swap(lines: list[bytes]) -> None:
    lines[1], lines[2] = lines[2], lines[1]


def _edit(place: int, lines: list[bytes]) -> None:
    """One digit of the line, behind the hash that it carries, is another."""
    head, colon, rest = lines[place].partition(b",")
    lines[place] = head + colon + re.sub(rb"\d", lambda found: b"%d" % (9 - int(found[0])), rest, count=1)


def _half(lines: list[bytes]) -> None:
    del lines[len(lines) // 2 :]


CHANGES: dict[str, Lines] = {
    "the last line is cut off": lambda lines: lines.pop(),
    "a half is cut off": _half,
    "the first line is gone": lambda lines: lines.pop(0),
    "all lines are gone": list.clear,
    "two lines are swapped": _swap,
    "a line is there twice": lambda lines: lines.insert(1, lines[1]),
    "the last line is there twice": lambda lines: lines.append(lines[-1]),
    "the first line is edited": partial(_edit, 0),
    "a line is edited": partial(_edit, 1),
    "an empty line": lambda lines: lines.insert(1, b"\n"),
    "a space": lambda lines: lines.__setitem__(1, lines[1].replace(b",", b", ", 1)),
    "in reverse": list.reverse,
    "a line is torn": lambda lines: lines.__setitem__(-1, lines[-1][:-9]),
}


def _header(key: str, folder: Path) -> None:
    tree = json.loads((folder / HEADER).read_text())
    tree[key] = f"{tree[key]}x"
    (folder / HEADER).write_text(json.dumps(tree))


def _spaced(folder: Path) -> None:
    (folder / HEADER).write_bytes((folder / HEADER).read_bytes() + b"\n")


def _sealed(change: Callable[[dict[str, object]], object], folder: Path) -> None:
    tree = json.loads((folder / SEAL).read_text())
    change(tree)
    (folder / SEAL).write_text(json.dumps(tree))


def _end(name: str, value: object, tree: dict[str, object]) -> None:
    tree["journals"][SAMPLES][name] = value  # type: ignore[index]


def _without_seal(change: Change, folder: Path) -> None:
    change(folder)
    (folder / SEAL).unlink()


def _signed(folder: Path) -> None:
    (folder / SIGNATURE).write_text("-----BEGIN SSH SIGNATURE-----\nhstl7\n-----END SSH SIGNATURE-----\n")


def _broken() -> Iterator[tuple[str, Change]]:
    for name in (SAMPLES, EVENTS):
        for what, change in CHANGES.items():
            if (name, what) != (EVENTS, "a line is torn"):
                yield f"{name}: {what}", _lines(name, change)
    for key in ("created_at", "question", "command", "run_id"):
        yield f"{HEADER}: another {key}", partial(_header, key)
    yield f"{HEADER}: a newline more", _spaced
    seals: dict[str, Callable[[dict[str, object]], object]] = {
        "another digest": partial(_end, "sha256", "0" * 64),
        "a line fewer": partial(_end, "lines", 1),
        "lines beyond all": partial(_end, "lines", 10**9),
        "another header": lambda tree: tree.update(header_sha256="0" * 64),
        "no journals": lambda tree: tree.update(journals={}),
        "a key more": lambda tree: tree.update(hstl7=1),
        "another version": lambda tree: tree.update(version=2),
    }
    yield from ((f"{SEAL}: {what}", partial(_sealed, change)) for what, change in seals.items())
    for text in ("", "null", "[]", "{", "\x00"):
        yield f"{SEAL} is {text!r}", partial(_text, SEAL, text)
    for what in (
        "the first line is gone",
        "two lines are swapped",
        "the first line is edited",
        "a line is edited",
        "a line is there twice",
        "in reverse",
    ):
        yield f"no seal, {SAMPLES}: {what}", partial(_without_seal, _lines(SAMPLES, CHANGES[what]))
    yield f"no seal, {HEADER}: another question", partial(_without_seal, partial(_header, "question"))
    yield "a signature that is none", _signed


def _text(name: str, text: str, folder: Path) -> None:
    (folder / name).write_text(text)


def _killed(folder: Path) -> None:
    (folder / SEAL).unlink()
    _lines(SAMPLES, CHANGES["the last line is cut off"])(folder)


def _torn(folder: Path) -> None:
    (folder / SEAL).unlink()
    _lines(SAMPLES, CHANGES["a line is torn"])(folder)


BROKEN = dict(_broken())
HONEST: dict[str, Change] = {
    "nothing": lambda folder: None,
    "killed": _killed,
    "killed in a line": _torn,
    "no seal": lambda folder: (folder / SEAL).unlink(),
}
"""Of a run that this program wrote: it is gone on with."""
PIECES: dict[str, bytes] = {
    "empty objects": b"{}\n",
    "empty lines": b"\n",
    "zeros": b"\0",
    "open lists": b"[",
    "spaces": b" ",
    "empty lists": b"[],",
    "sessions": b'{"session":{}}\n',
}
ENDLESS: list[tuple[str, str, Write]] = [
    *(
        (name, f"{size >> 20} MiB of {what}", partial(repeated, head=b"", piece=piece, size=size))
        for name in (HEADER, SAMPLES, EVENTS)
        for what, piece in PIECES.items()
        for size in (3 << 20,)
    ),
    *(
        (f"{SAMPLES}.gz", f"{size >> 20} MiB of {what} unpacked", partial(packed_large, piece=piece, size=size))
        for what, piece in PIECES.items()
        for size in (64 << 20, 1 << 30)
    ),
    *(
        (name, what, write)
        for name in (EVENTS, SAMPLES, HEADER)
        for what, write in LARGE.items()
        if name != HEADER or "GB" in what
    ),
    *(
        (name, f"{size >> 20} MiB of zeros behind a line", partial(sparse, size=size, head=b"{}\n"))
        for name in (SAMPLES, EVENTS)
        for size in (1 << 30, 1 << 36)
    ),
    *((name, what, write) for name in (SEAL, SIGNATURE) for what, write in WRONG.items() if not what.startswith("text ")),
    *((name, what, write) for name in (SEAL, SIGNATURE) for what, write in LARGE.items() if "MB of z" in what or "GB" in what),
    *(
        (name, "1 GB of zeros", partial(sparse, size=10**9))
        for name in (SEAL, SIGNATURE, ".begun", "report.html", "report.json")
    ),
]
"""The file of a record, what it is, and how it is made."""


def planted(folder: Path, canary: str = "$CANARY") -> None:
    """Programs of the names that the commands call; each makes the canary."""
    folder.mkdir(exist_ok=True)
    for name in TOOLS:
        (folder / name).write_text(f'#!/bin/sh\necho "$0" > "{canary}"\nexit 0\n')
        (folder / name).chmod(0o755)


PAGES: dict[str, Change] = {
    "a text more": lambda file: file.write_bytes(file.read_bytes() + b"<p>10x faster</p>"),
    "one digit": lambda file: file.write_bytes(re.sub(rb"(\d)x faster|(\d\.\d)", b"9.9", file.read_bytes(), count=1)),
    "another page": lambda file: file.write_bytes(b"<!doctype html><title>hstl7</title><p>10x faster"),
    "an empty page": lambda file: file.write_bytes(b""),
    "a million bytes": lambda file: file.write_bytes(b"x" * 10**6),
}
