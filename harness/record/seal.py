"""The seal of a record: it shows that nothing was changed after the run had written it.

    run.json        its bytes are the origin: the first line of either journal carries their SHA-256
    *.jsonl         {"before": SHA-256 of the line before, in hexadecimal, ...} from version 7 of the format on
    seal.json       the ends: how many lines there were, and the SHA-256 of the last one, which carries those of all others; of
                    an older record, whose lines carry none, that of all their bytes, newlines included
    seal.json.sig   an SSH signature of seal.json (harness.record.signature)

Whoever changes a record can seal it anew, but not sign it anew without the key. A seal says nothing about the honesty of the
run itself. A run that was killed, or continued, has lines after its last seal: it is unsealed, not broken.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.frozen import frozen
from harness.record.signature import Signature

SEAL = "seal.json"
SEALED_SINCE = 7
"""The first version of the format whose lines carry the hash of the line before."""
SealState = Literal["sealed", "unsealed", "broken"]
Digest = str
"""64 hexadecimal digits of a SHA-256."""
_LINK = re.compile(rb'\{"before":"([0-9a-f]{64})",')


@frozen
class Seal:
    """What a record's seal shows. ``reason``: why it is unsealed, or where it is broken. ``signature``: of a sealed one.

    ``record``: the digest of what the record holds now. ``pages``: the digests of its pages, by file, when it was signed.
    """

    state: SealState
    reason: str = ""
    signature: Signature | None = None
    record: Digest = ""
    pages: dict[str, Digest] = field(default_factory=dict)

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
    """The contents of seal.json. ``pages``: the digests of the pages that were signed with it; absent in others."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    run_id: str
    header_sha256: Digest
    journals: dict[str, _SealedFile] = {}
    pages: dict[str, Digest] = Field({}, exclude_if=lambda pages: not pages)

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


class SealCheck:
    """Holds a record against its seal while its lines are read, and keeps none of them. ``head``: the seal of what was read."""

    def __init__(self, head: SealHead, version: int, written: bytes | None = None, signature: Signature | None = None) -> None:
        """``head``: of the record's header. ``written``: seal.json, None where there is none. ``signature``: of it."""
        self.head, self._chained, self._signature = head, version >= SEALED_SINCE, signature
        self._never = "its run has not ended" if self._chained else f"records of format {version} carried no seal"
        self._sealed: SealHead | None = None
        self._wrong, self._later = [], 0
        try:
            self._sealed = SealHead.model_validate_json(written) if written is not None else None
        except ValidationError:
            self._wrong.append(f"{SEAL} is no seal")

    def through(self, name: str, lines: Iterable[bytes]) -> Iterator[bytes]:
        """The same lines of a journal, each looked at."""
        sealed = self._sealed.journals.get(name) if self._sealed else None
        before, hashed, number = self.head.header_sha256 if self._chained else None, hashlib.sha256(), 0
        loose, at_seal = None, hashed.hexdigest()
        for number, line in enumerate(lines, start=1):
            link = _LINK.match(line)
            if loose is None and (link[1].decode() if link else None) != before:
                loose = number
            if self._chained:
                hashed = hashlib.sha256(line)
                before = hashed.hexdigest()
            else:
                hashed.update(line + b"\n")
            if sealed and number == sealed.lines:
                at_seal = hashed.hexdigest()
            yield line
        self.head.journals[name] = _SealedFile(lines=number, sha256=hashed.hexdigest())
        if loose:
            self._wrong.insert(0, f"{name}:{loose} does not follow from the line before it")
        if sealed:
            self._later += number - sealed.lines
            if number < sealed.lines or at_seal != sealed.sha256:
                self._wrong.append(f"{name}: the first {sealed.lines} lines, of {number} there, are not those that were sealed")

    def seal(self) -> Seal:
        """The state of the seal, once every journal was read."""
        sealed, signature, wrong = self._sealed, self._signature, self._wrong
        if not sealed and signature:
            wrong.append(f"{SEAL} was removed, and its signature is there")
        if sealed and sealed.header_sha256 != self.head.header_sha256:
            wrong.append("run.json was changed")
        if sealed and sealed.journals.keys() != self.head.journals.keys():
            wrong.append(f"{SEAL} does not name the files of the record")
        if signature and signature.valid is False:
            wrong.append(f"the signature does not fit {SEAL}: {signature.words}")
        record = digest(self.head.written())
        if wrong:
            return Seal(state="broken", reason=wrong[0])
        if not sealed:
            return Seal(state="unsealed", reason=self._never, record=record)
        if self._later:
            return Seal(state="unsealed", reason=f"{self._later} lines were written after it was sealed", record=record)
        return Seal(state="sealed", signature=signature, record=record, pages=sealed.pages)
