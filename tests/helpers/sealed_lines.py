"""Lines of a journal that carry the hash of the line before, written all at once; and a record sealed anew after a change."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.record.journal import packed, whole_lines
from harness.record.seal import SEAL, SEALED_SINCE, digest, linked, unlinked
from harness.record.store import HEADER, JOURNALS, SIGNATURE, RunStore, read_header


def chained(lines: Iterable[str], header: bytes) -> Iterator[bytes]:
    """Lines of JSON objects with their newlines, each with the hash of the one before where the version of the header has it.

    ``header``: the bytes of run.json.
    """
    linking = json.loads(header)["record_version"] >= SEALED_SINCE
    before = digest(header)
    for line in lines:
        whole = (linked(line, before) if linking else line).encode()
        before = digest(whole)
        yield whole + b"\n"


def reseal(directory: Path) -> None:
    """Seal a record anew, as whoever altered it would: the lines are chained again, the head is new, the signature is gone."""
    written = read_header(directory / HEADER)[1]
    for name in JOURNALS:
        lines = [unlinked(line).decode() for line in whole_lines(directory / name)]
        packed(directory / name).unlink(missing_ok=True)
        (directory / name).write_bytes(b"".join(chained(lines, written)))
    (directory / SEAL).unlink(missing_ok=True)
    (directory / SIGNATURE).unlink(missing_ok=True)
    RunStore(directory).seal()
