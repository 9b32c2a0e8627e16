"""A run copied for keeping: its samples packed, sealed, and signed if a key is given."""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Iterable
from pathlib import Path

from harness.errors import UserError
from harness.record.journal import packed, whole_lines
from harness.record.regular_file import read_regular, refused, write_whole
from harness.record.seal import SEAL
from harness.record.signature import sign
from harness.record.store import EVENTS, HEADER, JOURNALS, SAMPLES, SIGNATURE, RunStore, kept, read_header, read_run

REPORTS = ("report.html", "report.json")


def publish(run_directory: Path, target: Path, key: Path | None = None) -> Path:
    """Copy a run for keeping, sealed: samples gzipped, byte for byte the same each time. Returns ``target``.

    Where that is the run itself, its samples are packed in place. ``key``: an SSH key that signs the seal.

    Raises:
        RecordError: there is no readable run, or the one in ``target`` cannot be read.
        UserError: the run's seal is broken; ``target`` holds another run, or lines that this one lacks; the key signs nothing.
        StorageError: the disk refuses, or somebody is writing to ``target``.
    """
    run = read_run(run_directory)
    if run.seal is not None and run.seal.state == "broken":
        raise UserError(f"{run_directory}: its seal is broken ({run.seal.reason}); publish the record as the run wrote it")
    with RunStore(target) as store:
        if store.exists and read_header(target / HEADER)[0].run_id != run.header.run_id:
            raise UserError(f"{target}: holds another run; give another target, or remove that one first")
        store.hold()
        for name in JOURNALS if target.resolve() != run_directory.resolve() else ():
            if lost := len(set(whole_lines(target / name)) - set(whole_lines(run_directory / name))):
                raise UserError(
                    f"{target}: holds {lost} {Path(name).stem} that {run_directory} lacks or took with other values; nothing "
                    "was written. Give another target"
                )
        _copy(run_directory, target)
        head, signature = store.seal(), kept(run_directory / SIGNATURE)
        if key is not None:
            write_whole(target / SIGNATURE, sign(head, key))
        elif signature is not None and kept(run_directory / SEAL) == head:
            write_whole(target / SIGNATURE, signature)
    return target


def _copy(run_directory: Path, target: Path) -> None:
    """Pack the lines unchanged, so that after a kill the unpacked copies are recognised and no line counts twice."""
    contents = {name: read_regular(run_directory / name) for name in REPORTS if os.path.lexists(run_directory / name)}
    contents[HEADER] = read_header(run_directory / HEADER)[1]
    contents[packed(target / SAMPLES).name] = _gzipped(whole_lines(run_directory / SAMPLES))
    contents[EVENTS] = b"".join(line + b"\n" for line in whole_lines(run_directory / EVENTS))
    for name, content in contents.items():
        write_whole(target / name, content)
    try:
        (target / SAMPLES).unlink(missing_ok=True)
    except OSError as error:
        raise refused(target / SAMPLES, error) from error


def _gzipped(lines: Iterable[bytes]) -> bytes:
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0) as packer:
        packer.writelines(line + b"\n" for line in lines)
    return buffer.getvalue()
