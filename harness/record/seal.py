"""The seal of a record: it shows that nothing was changed after the run had written it.

    run.json        its bytes are the origin: the first line of either journal carries their SHA-256
    *.jsonl         {"before": SHA-256 of the line before, in hexadecimal, ...} from version 7 of the format on
    seal.json       the ends: how many lines there were, and the SHA-256 of the last one, which carries those of all others; of
                    an older record, whose lines carry none, that of all their bytes, newlines included
    seal.json.sig   an SSH signature of seal.json (harness.record.signature)

Whoever changes a record can seal it anew, but not sign it anew without the key. A seal says nothing about the honesty of the
run itself. A run that was killed, or gone on with, has lines behind its last seal: it is unsealed, not broken.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.record.signature import Signature

SEAL = "seal.json"
SEALED_SINCE = 7
"""The first version of the format whose lines carry the hash of the line before."""
SealState = Literal["sealed", "unsealed", "broken"]
Digest = str
"""64 hexadecimal digits of a SHA-256."""
_LINK = re.compile(rb'\{"before":"([0-9a-f]{64})",')


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """What a record's seal shows. ``reason``: why it is unsealed, or where it is broken. ``signature``: of a sealed one."""

    state: SealState
    reason: str = ""
    signature: Signature | None = None

    @property
    def words(self) -> str:
        """One line for people: sealed and by whom, unsealed and why, broken and where."""
        if self.state != "sealed":
            return f"{self.state} ({self.reason})"
        return "sealed, " + (self.signature.words if self.signature else "not signed")


class _SealedFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    lines: int = Field(ge=0)
    sha256: Digest


class SealHead(BaseModel):
    """The contents of seal.json."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    run_id: str
    header_sha256: Digest
    journals: dict[str, _SealedFile]

    def written(self) -> bytes:
        """The file's bytes; equal records give equal bytes."""
        return self.model_dump_json(indent=1).encode() + b"\n"


def digest(data: bytes) -> Digest:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def linked(line: str, before: Digest) -> str:
    """A line of JSON (an object with a key) that carries the hash of the line before it."""
    return f'{{"before":"{before}",{line[1:]}'


def unlinked(line: bytes) -> bytes:
    """The line as it was before ``linked``; one that carries no hash stays as it is."""
    return b"{" + line[found.end() :] if (found := _LINK.match(line)) else line


def seal_head(run_id: str, version: int, header: bytes, journals: Mapping[str, Sequence[bytes]]) -> SealHead:
    """The seal of a header of this ``version`` of the format, and of all whole lines of each journal, by the journal's name."""
    ends = {name: _SealedFile(lines=len(lines), sha256=_end_of(lines, version)) for name, lines in journals.items()}
    return SealHead(run_id=run_id, header_sha256=digest(header), journals=ends)


def check_seal(
    version: int, header: bytes, journals: Mapping[str, Sequence[bytes]], head: bytes | None, signature: Signature | None
) -> Seal:
    """The state of a record's seal.

    Args:
        version: of the record's format. journals: the whole lines of each, without their newlines.
        head: the bytes of seal.json, None where there is none. signature: of these bytes.
    """
    for name, lines in journals.items():
        if (number := _first_loose(lines, digest(header) if version >= SEALED_SINCE else None)) is not None:
            return _broken(f"{name}:{number} does not follow from the line before it")
    if head is None:
        never = "its run has not ended" if version >= SEALED_SINCE else f"records of format {version} carried no seal"
        return Seal(state="unsealed", reason=never)
    try:
        sealed = SealHead.model_validate_json(head)
    except ValidationError:
        return _broken(f"{SEAL} is no seal")
    if sealed.header_sha256 != digest(header):
        return _broken("run.json was changed")
    if sealed.journals.keys() != journals.keys():
        return _broken(f"{SEAL} does not name the files of the record")
    for name, end in sealed.journals.items():
        lines = journals[name]
        if len(lines) < end.lines or end.sha256 != _end_of(lines[: end.lines], version):
            return _broken(f"{name}: the first {end.lines} lines, of {len(lines)} there, are not those that were sealed")
    if signature is not None and not signature.valid:
        return _broken(f"the signature does not fit {SEAL}: {signature.words}")
    later = sum(len(journals[name]) - end.lines for name, end in sealed.journals.items())
    if later:
        return Seal(state="unsealed", reason=f"{later} lines were written after it was sealed")
    return Seal(state="sealed", signature=signature)


def _broken(reason: str) -> Seal:
    return Seal(state="broken", reason=reason)


def _end_of(lines: Sequence[bytes], version: int) -> Digest:
    if version >= SEALED_SINCE:
        return digest(lines[-1] if lines else b"")
    found = hashlib.sha256()
    for line in lines:
        found.update(line)
        found.update(b"\n")
    return found.hexdigest()


def _first_loose(lines: Sequence[bytes], origin: Digest | None) -> int | None:
    """The number of the first line that does not carry the hash of the one before; ``origin`` None: none may carry any."""
    expected = origin
    for number, line in enumerate(lines, start=1):
        found = _LINK.match(line)
        if (found[1].decode() if found else None) != expected:
            return number
        expected = digest(line) if origin is not None else None
    return None
