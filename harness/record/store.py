"""The run directory: append-only and crash-safe. Finished samples stay, however the process ends.

    run.json        the RunHeader, written whole or not at all
    samples.jsonl   one Sample per line
    events.jsonl    one CaseOutcome or environment snapshot per line
    *.jsonl.gz      the lines of either in a published run; later lines come to the plain file again
    seal.json       what the record held when it was sealed last (harness.record.seal), and seal.json.sig, who signed that

The meaning of the values is the schema's (harness.record.schema).
"""

from __future__ import annotations

import gc
import json
import os
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import from_json

from harness.errors import InvariantError, RecordError, StorageError, UserError
from harness.record.by_machine import calibrations, of_one_machine
from harness.record.journal import Journal, damaged, unreadable, whole_lines
from harness.record.regular_file import open_regular, read_regular, refused, remove, write_whole
from harness.record.same import differing
from harness.record.schema import OLDEST_READ, RECORD_VERSION, CaseOutcome, Event, Run, RunHeader, Sample, SampleKey
from harness.record.seal import SEAL, SEALED_SINCE, Digest, SealCheck, SealHead, unlinked
from harness.record.seal import digest as sha256
from harness.record.signature import check

HEADER, SAMPLES, EVENTS, SIGNATURE = "run.json", "samples.jsonl", "events.jsonl", f"{SEAL}.sig"
JOURNALS = (SAMPLES, EVENTS)
MOST_TOLD = 10_000
"""Errors of a line; each that is told takes a kilobyte."""
MARK = ".begun"
"""Names the case in progress, to be read if its process dies; not valid after a power cut."""
LONGEST_SHOWN = 200
"""Characters that a message quotes from a damaged record."""
MOST_HEADER_BYTES = 1 << 23
"""Of run.json: that of a thousand cases has 1 MB."""
MOST_SEAL_BYTES = 1 << 20
"""Of a seal, a signature or a mark."""
_Line = TypeVar("_Line", Sample, Event)
InheritedLock = tuple[int, int]
"""The descriptors of a locked run directory's journals: of samples and of events."""


class RunStore:
    """The writer of a run directory; a context manager."""

    def __init__(self, directory: Path, lent: InheritedLock | None = None) -> None:
        """``lent``: the lock of another store of this directory, here or in the process that started this one."""
        self.directory = directory
        self._lent: InheritedLock | tuple[None, None] = lent or (None, None)
        self._journals: dict[str, Journal] = {}
        self._origin: str | None = None

    @property
    def exists(self) -> bool:
        """Whether a run was begun here."""
        return (self.directory / HEADER).is_file()

    def create(self, header: RunHeader) -> None:
        """Begin a run here.

        Raises:
            UserError: a run is here already.
            StorageError: the disk refuses.
        """
        if self.exists:
            raise UserError(f"{self.directory}: holds a run already; continue it with the same scenario, or give another --out")
        self.hold()
        if any(next(whole_lines(self.directory / name), None) for name in JOURNALS):
            raise UserError(f"{self.directory}: holds lines of a run whose {HEADER} is gone; restore it, or give another --out")
        written = header.model_dump_json(indent=1).encode()
        write_whole(self.directory / HEADER, written)
        self._begin(header, written)

    def hold(self) -> InheritedLock:
        """Lock out other processes; returns what a child process needs to write here in place of this one.

        Raises:
            StorageError: the disk refuses, or another process is writing here.
        """
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise refused(self.directory, error) from error
        for name, lent in zip(JOURNALS, self._lent, strict=True):
            if name not in self._journals:
                self._journals[name] = Journal(self.directory / name, lent)
        return self._journals[SAMPLES].descriptor, self._journals[EVENTS].descriptor

    def resume(self, scenario: Mapping[str, object], digest: str) -> Run:
        """Continue the run that is here; a torn last line is removed. Returns what it holds so far.

        Raises:
            UserError: the run was made from another scenario; the message names the keys that differ. Or its seal is broken;
                nothing is written then.
            RecordError, StorageError: the run cannot be read, or not be written.
        """
        header, written = read_header(self.directory / HEADER)
        if header.scenario_digest != digest:
            keys = ", ".join(one.key for one in differing(header.scenario, scenario)) or "its digest"
            raise UserError(
                f"{self.directory}: was made from another scenario ({keys}); its samples cannot be mixed with new ones. "
                "Give another --out, or restore the scenario"
            )
        read_seal(self.directory)  # before the lock, which mends a torn line
        self.hold()
        self._begin(header, written)
        return read_run(self.directory)

    def _begin(self, header: RunHeader, written: bytes) -> None:
        """Lines are chained as the header's version has them, so that an older program can still read the run it began."""
        self._origin = sha256(written) if header.record_version >= SEALED_SINCE else None

    def append(self, sample: Sample, sync: bool = True) -> None:
        """Keep one sample; it is on the disk when this returns, or with a later one that is ``sync``.

        Raises:
            StorageError: the disk refuses; earlier samples are untouched.
        """
        self._append(SAMPLES, sample.model_dump_json(), sync)

    def append_outcome(self, outcome: CaseOutcome) -> None:
        """Keep how a case ended that has no samples. Raises StorageError as ``append`` does."""
        self._append(EVENTS, json.dumps({"outcome": outcome.model_dump(mode="json")}))

    def append_session(self, snapshot: Mapping[str, object]) -> None:
        """Keep an environment snapshot (plain JSON values). Raises StorageError as ``append`` does."""
        self._append(EVENTS, json.dumps({"session": snapshot}))

    def end(self, reason: str | None = None) -> None:
        """Mark that nothing is missing, where the marks of processes do not show it: one was lost after its last sample, or
        they ran on several nodes, or there is a ``reason`` for not taking the others.

        Raises StorageError as ``append`` does, RecordError as read_run.
        """
        header, check = _opened_seal(self.directory)
        if _happened(self.directory, header, check).unended is not None:
            self.append_session({"event": "end"} | ({"reason": reason} if reason else {}))

    def _append(self, name: str, line: str, sync: bool = True) -> None:
        if name not in self._journals:
            raise InvariantError("the run directory is not open: call create or resume first")
        self._journals[name].append(line, self._origin, sync)

    def mark(self, case_id: str) -> None:
        """Mark which case is next, for other processes on this machine; "" for none. Raises StorageError as ``append`` does.

        One write replaces the mark: a process killed meanwhile leaves the old or the new one.
        """
        try:
            with os.fdopen(open_regular(self.directory / MARK, os.O_WRONLY | os.O_CREAT), "wb", buffering=0) as file:
                file.write(f"{case_id}\n".encode())  # its line ends here, whatever is left of a longer one
        except OSError as error:
            raise refused(self.directory / MARK, error) from error

    def marked(self) -> str:
        """What was marked last; "" where nothing was, or it cannot be read."""
        try:
            return read_regular(self.directory / MARK, MOST_SEAL_BYTES).partition(b"\n")[0].decode()
        except (OSError, ValueError, UserError):
            return ""

    def seal(self, pages: dict[str, Digest] | None = None) -> bytes:
        """Seal all that is here, unless it is; returns the seal's bytes. A signature of another seal is removed first.

        ``pages``: the digests of the pages that are to be signed with it.

        Raises:
            UserError: its seal is broken.
            RecordError, StorageError: the run cannot be read, or not be written.
        """
        now, head = read_seal(self.directory), kept(self.directory / SEAL)
        if head and not pages and now.seal().state == "sealed":
            return head
        written = now.head.model_copy(update={"pages": pages or {}}).written()
        if head != written:
            remove(self.directory / SIGNATURE)
            write_whole(self.directory / SEAL, written)
        return written

    def close(self) -> None:
        """Release the directory to other processes."""
        while self._journals:
            self._journals.popitem()[1].close()

    def __enter__(self) -> RunStore:
        return self

    def __exit__(self, *error: object) -> None:
        """Seal what this store wrote, if nobody lent it the directory; a refusal leaves it unsealed, with nothing lost."""
        if self._origin is not None and self._lent == (None, None):
            with suppress(StorageError, RecordError, UserError):
                self.seal()
        self.close()


def finished_keys(run: Run) -> frozenset[SampleKey]:
    """The keys of all samples a run holds: what need not be taken again."""
    return frozenset(sample.key for sample in run.samples)


def read_run(path: Path) -> Run:
    """Read a run directory (or its run.json); a torn last line is left out, samples may be gzipped.

    Raises:
        RecordError: there is no run here, it is damaged, or it was made by a newer version.
    """
    directory = path.parent if path.name == HEADER else path
    header, check = _opened_seal(directory)
    samples = _read_samples(directory / SAMPLES, check, header)
    run = _happened(directory, header, check)
    if measured := calibrations(run.sessions):
        header = header.model_copy(update={"calibration": (header.calibration or {}) | measured})
    return run.model_copy(update={"header": header, "samples": samples, "seal": check.seal()})


def _happened(directory: Path, header: RunHeader, check: SealCheck) -> Run:
    """The run without its samples, which are most of a record."""
    events = _read_lines(directory / EVENTS, check, Event)
    outcomes = [event.outcome for event in events if event.outcome is not None]
    sessions = [event.session for event in events if event.session is not None]
    return Run(header=header, samples=[], outcomes=outcomes, sessions=sessions)


def read_seal(directory: Path) -> SealCheck:
    """What a record holds now, held against its seal; the lines are not parsed.

    Raises:
        UserError: the seal is broken; then the record is not continued, not sealed anew and not published.
        RecordError: as read_run.
    """
    check = _opened_seal(directory)[1]
    for name in JOURNALS:
        deque(check.through(name, whole_lines(directory / name)), 0)
    if (seal := check.seal()).state == "broken":
        raise UserError(
            f"{directory}: its seal is broken ({seal.reason}), so it is neither continued nor published, and nothing was "
            "written; restore the record as the run wrote it, or give another folder"
        )
    return check


def _opened_seal(directory: Path) -> tuple[RunHeader, SealCheck]:
    header, written = read_header(directory / HEADER)
    head, signature = kept(directory / SEAL), kept(directory / SIGNATURE)
    signed = check(head or b"", signature) if signature is not None else None
    begun = SealHead(run_id=header.run_id, header_sha256=sha256(written))
    return header, SealCheck(begun, header.record_version, head, signed)


def kept(file: Path, most_bytes: int = MOST_SEAL_BYTES) -> bytes | None:
    """What a file of a run holds; None where it is absent.

    Raises:
        RecordError: it cannot be read. UserError: it is no regular file, or has more than ``most_bytes``.
    """
    try:
        return read_regular(file, most_bytes)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(file, error) from error


def read_on_one_machine(path: Path) -> Run:
    """As read_run, with a header that describes the machine of the samples, wherever the run was begun.

    Raises:
        UserError: they were taken on several kinds of machine.
        RecordError: as read_run.
    """
    return of_one_machine(read_run(path))


def _read_samples(file: Path, check: SealCheck, header: RunHeader) -> list[Sample]:
    """Read samples of the header's cases straight from JSON, with the garbage collector off.

    Plain data has no reference cycles, and repeated collection would take three quarters of the time of a large run.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        samples = _read_lines(file, check, Sample)
    finally:
        if collecting:
            gc.enable()
    known, explained = {case.case_id for case in header.cases}, header.imported.lacks if header.imported else {}
    for number, sample in enumerate(samples, start=1):
        if sample.case_id not in known:
            raise RecordError(f"{file}:{number}: a sample of case {sample.case_id!r}, which {HEADER} does not list")
        if unexplained := [name for name in sample.lacks if name not in explained]:
            raise RecordError(f"{file}:{number}: lacks {', '.join(unexplained)}, and {HEADER} does not say why")
    return samples


def _read_lines(file: Path, check: SealCheck, kind: type[_Line]) -> list[_Line]:
    """Line by line, so that of a long file that is no journal little is read."""
    read = []
    for number, line in enumerate(check.through(file.name, whole_lines(file)), start=1):
        try:
            read.append(kind.model_validate_json(unlinked(line)))
        except ValidationError as error:
            if (words := _first(error)).startswith("the whole: Invalid JSON"):
                raise damaged(file, number, words) from error
            raise RecordError(f"{file}:{number}: does not fit format version {RECORD_VERSION}: {words}") from error
    return read


def read_header(file: Path) -> tuple[RunHeader, bytes]:
    """The header, and its bytes. Raises RecordError where there is none that can be read."""
    written = kept(file, MOST_HEADER_BYTES)
    if written is None:
        raise RecordError(f"{file.parent}: there is no run here ({HEADER} is missing); give the directory of a run")
    try:
        data = from_json(written, allow_inf_nan=False)
        version = data["record_version"]
        if type(version) is not int or not OLDEST_READ <= version <= RECORD_VERSION:
            raise RecordError(
                f"{file}: format version {repr(version)[:LONGEST_SHOWN]} is none of {OLDEST_READ} to {RECORD_VERSION}: if it "
                "is newer, upgrade sbd; an older one is converted by benchmarks/convert_record.py of sbd's repository"
            )
        return RunHeader.model_validate(data), written
    except ValidationError as error:
        raise RecordError(f"{file}: not the header of a run: {_first(error)}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{file}: not the header of a run ({error!r}); give the directory of a run") from error


def _first(error: ValidationError) -> str:
    if (count := error.error_count()) > MOST_TOLD:
        return f"{count:,} values do not fit"
    details = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, details['loc']))[:LONGEST_SHOWN] or 'the whole'}: {details['msg'][:LONGEST_SHOWN]}"
