"""The run directory: append-only and crash-safe. Finished samples stay, however the process ends.

    run.json        the RunHeader, written whole or not at all
    samples.jsonl   one Sample per line (samples.jsonl.gz in a published run; later samples come here again)
    events.jsonl    one CaseOutcome or environment snapshot per line

The meaning of the values is the schema's (harness.record.schema).
"""

from __future__ import annotations

import gc
import gzip
import io
import json
import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from harness.errors import InvariantError, RecordError, UserError
from harness.record.diff import differing
from harness.record.journal import Journal, damaged, packed, read_lines, whole_lines
from harness.record.machine import of_one_machine
from harness.record.regular_file import open_regular, read_regular, refused, write_whole
from harness.record.schema import RECORD_VERSION, CaseOutcome, Event, Run, RunHeader, Sample, SampleKey

HEADER, SAMPLES, EVENTS = "run.json", "samples.jsonl", "events.jsonl"
MARK = ".begun"
"""Names the case in progress, to be read if its process dies; not valid after a power cut."""
REPORTS = ("report.html", "report.json")
LONGEST_SHOWN = 200
"""Characters that a message quotes from a damaged record."""
InheritedLock = tuple[int, int]
"""The descriptors of a locked run directory's journals: of samples and of events."""


class RunStore:
    """The writer of a run directory; a context manager."""

    def __init__(self, directory: Path, lent: InheritedLock | None = None) -> None:
        """``lent``: the lock of another store of this directory, here or in the process that started this one."""
        self.directory = directory
        self._lent: InheritedLock | tuple[None, None] = lent or (None, None)
        self._samples: Journal | None = None
        self._events: Journal | None = None
        self._version = RECORD_VERSION

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
        write_whole(self.directory / HEADER, header.model_dump_json(indent=1).encode())

    def hold(self) -> InheritedLock:
        """Lock out other processes; returns what a child process needs to write here in place of this one.

        Raises:
            StorageError: the disk refuses, or another process is writing here.
        """
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise refused(self.directory, error) from error
        if self._samples is None or self._events is None:
            self._samples = Journal(self.directory / SAMPLES, self._lent[0])
            self._events = Journal(self.directory / EVENTS, self._lent[1])
        return self._samples.descriptor, self._events.descriptor

    def resume(self, scenario: dict[str, Any], digest: str) -> Run:
        """Continue the run that is here; a torn last line is removed. Returns what it holds so far.

        Raises:
            UserError: the run was made from another scenario; the message names the keys that differ.
            RecordError, StorageError: the run cannot be read, or not be written.
        """
        header = _read_header(self.directory / HEADER)
        if header.scenario_digest != digest:
            keys = ", ".join(one.key for one in differing(header.scenario, scenario)) or "its digest"
            raise UserError(
                f"{self.directory}: was made from another scenario ({keys}); its samples cannot be mixed with new ones. "
                "Give another --out, or restore the scenario"
            )
        self.hold()
        self._version = header.record_version  # an older program can still read the run it began
        return read_run(self.directory)

    def append(self, sample: Sample) -> None:
        """Keep one sample, in the run's version of the format; it is on the disk when this returns.

        Raises:
            StorageError: the disk refuses; earlier samples are untouched.
        """
        _opened(self._samples).append(sample.model_dump_json(context={"record_version": self._version}))

    def append_outcome(self, outcome: CaseOutcome) -> None:
        """Keep how a case ended that has no samples. Raises StorageError as ``append`` does."""
        _opened(self._events).append(json.dumps({"outcome": outcome.model_dump(mode="json")}))

    def append_session(self, snapshot: dict[str, Any]) -> None:
        """Keep an environment snapshot (plain JSON values). Raises StorageError as ``append`` does."""
        _opened(self._events).append(json.dumps({"session": snapshot}))

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
            return read_regular(self.directory / MARK).partition(b"\n")[0].decode()
        except (OSError, ValueError, UserError):
            return ""

    def close(self) -> None:
        """Release the directory to other processes."""
        for journal in filter(None, (self._samples, self._events)):
            journal.close()
        self._samples = self._events = None

    def __enter__(self) -> RunStore:
        return self

    def __exit__(self, *error: object) -> None:
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
    header = _read_header(directory / HEADER)
    try:
        events = [Event.model_validate(event) for event in read_lines(directory / EVENTS)]
        return Run(
            header=header,
            samples=_read_samples(directory / SAMPLES, {case.case_id for case in header.cases}),
            outcomes=[event.outcome for event in events if event.outcome is not None],
            sessions=[event.session for event in events if event.session is not None],
        )
    except ValidationError as error:
        raise RecordError(f"{directory}: a record does not fit format version {RECORD_VERSION}: {_first(error)}") from error


def read_on_one_machine(path: Path) -> Run:
    """As read_run, with a header that describes the machine of the samples, wherever the run was begun.

    Raises:
        UserError: they were taken on several kinds of machine.
        RecordError: as read_run.
    """
    return of_one_machine(read_run(path))


def _read_samples(file: Path, known: Collection[str]) -> list[Sample]:
    """Read samples of the ``known`` cases straight from JSON, with the garbage collector off.

    Plain data has no reference cycles, and repeated collection would take three quarters of the time of a large run.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        samples = [_read_sample(file, number, line) for number, line in enumerate(whole_lines(file), start=1)]
    finally:
        if collecting:
            gc.enable()
    for number, sample in enumerate(samples, start=1):
        if sample.case_id not in known:
            raise RecordError(f"{file}:{number}: a sample of case {sample.case_id!r}, which {HEADER} does not list")
    return samples


def _read_sample(file: Path, number: int, line: bytes) -> Sample:
    try:
        return Sample.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            raise damaged(file, number, first["msg"]) from error
        raise RecordError(f"{file}:{number}: does not fit format version {RECORD_VERSION}: {_first(error)}") from error


def publish(run_directory: Path, target: Path) -> Path:
    """Copy a run for keeping: samples gzipped, byte for byte the same each time. Returns ``target``.

    Where that is the run itself, its samples are packed in place.

    Raises:
        RecordError: there is no readable run, or the one in ``target`` cannot be read.
        UserError: ``target`` holds another run, samples that this one lacks, or others under the same keys.
        StorageError: the disk refuses, or somebody is writing to ``target``.
    """
    run = read_run(run_directory)
    with RunStore(target) as store:
        if store.exists and _read_header(target / HEADER).run_id != run.header.run_id:
            raise UserError(f"{target}: holds another run; give another target, or remove that one first")
        store.hold()
        held = read_run(target) if store.exists else run
        if target.resolve() == run_directory.resolve():
            run = held
        elif lost := len(set(whole_lines(target / SAMPLES)) - set(whole_lines(run_directory / SAMPLES))):
            raise UserError(
                f"{target}: holds {lost} samples that {run_directory} lacks or took with other values; nothing was written. "
                "Give another target"
            )
        return _published(run, run_directory, target)


def _published(run: Run, run_directory: Path, target: Path) -> Path:
    """Pack the lines unchanged, so that after a kill the unpacked copies are recognised and no line counts twice."""
    try:
        target.mkdir(parents=True, exist_ok=True)
        reports = {name: read_regular(run_directory / name) for name in REPORTS if os.path.lexists(run_directory / name)}
    except OSError as error:
        raise refused(target, error) from error
    write_whole(target / HEADER, run.header.model_dump_json(indent=1).encode())
    write_whole(packed(target / SAMPLES), _gzipped(whole_lines(run_directory / SAMPLES)))
    events = [{"outcome": outcome.model_dump(mode="json")} for outcome in run.outcomes]
    events += [{"session": session} for session in run.sessions]
    write_whole(target / EVENTS, "".join(f"{json.dumps(event)}\n" for event in events).encode())
    for name, content in reports.items():
        write_whole(target / name, content)
    try:
        (target / SAMPLES).unlink(missing_ok=True)
    except OSError as error:
        raise refused(target / SAMPLES, error) from error
    return target


def _read_header(file: Path) -> RunHeader:
    try:
        data = from_json(read_regular(file), allow_inf_nan=False)
        version = data["record_version"]
        if type(version) is not int or not 1 <= version <= RECORD_VERSION:
            found = repr(version)[:LONGEST_SHOWN]
            raise RecordError(f"{file}: format version {found} is none of 1 to {RECORD_VERSION}: if it is newer, upgrade sbd")
        return RunHeader.model_validate(data)
    except FileNotFoundError as error:
        raise RecordError(f"{file.parent}: there is no run here ({HEADER} is missing); give the directory of a run") from error
    except OSError as error:
        raise RecordError(f"{file}: cannot be read ({error.strerror}); check its permissions") from error
    except ValidationError as error:
        raise RecordError(f"{file}: not the header of a run: {_first(error)}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{file}: not the header of a run ({error!r}); give the directory of a run") from error


def _first(error: ValidationError) -> str:
    details = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, details['loc']))[:LONGEST_SHOWN]}: {details['msg'][:LONGEST_SHOWN]}"


def _gzipped(lines: Iterable[bytes]) -> bytes:
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0) as packer:
        packer.writelines(line + b"\n" for line in lines)
    return buffer.getvalue()


def _opened(journal: Journal | None) -> Journal:
    if journal is None:
        raise InvariantError("the run directory is not open: call create or resume first")
    return journal
