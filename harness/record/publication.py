"""A run copied for keeping: its journals packed, sealed, and signed if a key is given."""

from __future__ import annotations

import gzip
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from harness.errors import SbdError, UserError
from harness.record.journal import packed, whole_lines
from harness.record.regular_file import remove, write_whole
from harness.record.seal import SEAL, Seal, digest
from harness.record.signature import sign
from harness.record.store import HEADER, JOURNALS, SIGNATURE, RunStore, kept, read_header, read_run, read_seal

REPORTS = ("report.html", "report.json")
MOST_PAGE_BYTES = 1 << 28
OWN = OF_RECORD, UNCHECKED = "of this record", "not checked"
"""States of pages that may be shown beside a record begin so."""
CHANGED = "changed since it was signed"
_NAMED = re.compile(rb'(?:"sbd-record" content=|"record_sha256": ?)"([0-9a-f]{64})"')
"""What a page of a record says of its content; the first one, as texts of the record come after it or with quotes escaped."""


def pages_of(path: Path, seal: Seal | None) -> Iterator[tuple[str, bytes, str]]:
    """The file, the contents and the state of each page beside a run, given by its folder or its run.json: CHANGED, or words;
    one of OWN begins those of its own. ``seal``: of the run.
    """
    directory = path if path.is_dir() else path.parent
    seal = seal or Seal(state="broken")
    for name in REPORTS:
        try:
            page = kept(directory / name, MOST_PAGE_BYTES)
        except SbdError as error:
            yield name, b"", f"not read ({error})"
            continue
        if page is None:
            continue
        named, covered = _NAMED.search(page), seal.pages.get(name)
        state = f"{OF_RECORD} (no signature covers it)" if named else f"{UNCHECKED} (it names no record, as older ones do)"
        if named and named[1].decode() != seal.record:
            state = f"not {OF_RECORD} (stale)"
        elif covered and seal.signature and seal.signature.valid:
            state = OF_RECORD if covered == digest(page) else CHANGED
        yield name, page, state


Begun = Mapping[str, Mapping[str, str]]
"""When runs began, by the digest of their scenario and their id: a copy is no other run."""


def begun_in(folder: Path) -> Begun:
    """Of the runs in a folder; what cannot be read there is left out."""
    found: dict[str, dict[str, str]] = {}
    for file in folder.glob(f"*/{HEADER}"):
        with suppress(SbdError):
            header = read_header(file)[0]
            found.setdefault(header.scenario_digest, {})[header.run_id] = header.created_at
    return found


def repeated(run: Path, beside: Begun | None = None) -> str | None:
    """``run 3 of 3 of this scenario here``: by when they began, in its folder; None where it is the only one.

    ``run``: its directory or its run.json. ``beside``: the runs in its folder, where the caller has read them.
    """
    file = (run / HEADER if run.is_dir() else run).absolute()
    own, known = read_header(file)[0], begun_in(file.parent.parent) if beside is None else beside
    begun = known.get(own.scenario_digest, {})
    place, runs = sum(at <= own.created_at for at in begun.values()), len(begun)
    return f"run {place} of {runs} of this scenario here" if runs > 1 else None


def publish(run_directory: Path, target: Path, key: Path | None = None) -> Path:
    """Copy a run for keeping, sealed: samples and events gzipped, byte for byte the same each time. Returns ``target``.

    Where that is the run itself, they are packed in place. ``key``: an SSH key that signs the seal, and the pages.

    Raises:
        RecordError: there is no readable run, or the one in ``target`` cannot be read.
        UserError: a seal is broken; a page is not of the record; ``target`` holds another run, or lines that this one lacks;
            the key signs nothing.
        StorageError: the disk refuses, or somebody is writing to ``target``.
    """
    run, pages = read_run(run_directory), dict[str, bytes]()
    if run.seal is None or run.seal.state == "broken":
        read_seal(run_directory)
    for name, page, state in pages_of(run_directory, run.seal):
        if not state.startswith(OWN) and not (key and state == CHANGED):
            raise UserError(
                f"{run_directory / name}: {state}; render it again (sbd report {run_directory}), and sign it again with --sign "
                "KEY if it was signed, or remove it"
            )
        pages[name] = page
    with RunStore(target) as store:
        if store.exists and read_header(target / HEADER)[0].run_id != run.header.run_id:
            raise UserError(f"{target}: holds another run; give another target, or remove that one first")
        elsewhere = os.path.realpath(target) != os.path.realpath(run_directory)
        if store.exists and elsewhere:
            read_seal(target)
        store.hold()
        for name in JOURNALS if elsewhere else ():
            if lost := len(set(whole_lines(target / name)).difference(whole_lines(run_directory / name))):
                raise UserError(
                    f"{target}: holds {lost} {Path(name).stem} that {run_directory} lacks or took with other values; nothing "
                    "was written. Give another target"
                )
        _copy(run_directory, target, pages)
        signed = {name: digest(page) for name, page in pages.items()}
        head, signature = store.seal(signed if key or run.seal is None else run.seal.pages), kept(run_directory / SIGNATURE)
        if key is not None:
            write_whole(target / SIGNATURE, sign(head, key))
        elif signature is not None and kept(run_directory / SEAL) == head:
            write_whole(target / SIGNATURE, signature)
    return target


def _copy(run_directory: Path, target: Path, pages: Mapping[str, bytes]) -> None:
    """Pack the lines unchanged, so that after a kill the unpacked copies are recognised and no line counts twice."""
    contents = {HEADER: read_header(run_directory / HEADER)[1]}
    contents |= {packed(target / name).name: _gzipped(whole_lines(run_directory / name)) for name in JOURNALS}
    for name, content in (*pages.items(), *contents.items()):
        write_whole(target / name, content)
    for name in JOURNALS:
        remove(target / name)


def _gzipped(lines: Iterable[bytes]) -> bytes:
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0) as packer:
        packer.writelines(line + b"\n" for line in lines)
    return buffer.getvalue()
