"""Writes the gallery: one page that lists the runs of a folder with question, machine, date and verdict, and links to each.

The same runs give the same bytes: the page does not say when or where it was written. A large record may be kept elsewhere: its
folder then holds its page, and a file that says where the record is and what its row was.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, ValidationError

from harness.analysis.answer import Derived
from harness.errors import RecordError, SbdError, UserError
from harness.record.publication import OWN, REPORTS, begun_in, pages_of, repeated
from harness.record.regular_file import write_whole
from harness.record.seal import Digest, Seal
from harness.record.store import EVENTS, HEADER, SAMPLES, kept, read_run
from harness.reporting import out_of_the_collectors_sight
from harness.reporting.assets import fill_template
from harness.reporting.cells import machines
from harness.reporting.claims_shown import Headline, headlines, held_claims, whose_claims
from harness.reporting.exports.wording import verdict_words

ELSEWHERE = "elsewhere.json"


class GalleryRow(BaseModel):
    """What the list says of a run. ``claims``: whose they are."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    question: str
    machine: str
    created_at: str
    scenario_name: str
    headlines: tuple[Headline, ...]
    claims: str


class Elsewhere(BaseModel):
    """A record that is kept elsewhere, as the file ELSEWHERE says it beside the record's page."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    restored_by: str
    """The command that brings it back."""
    commit: str
    """The commit that holds it."""
    files: dict[str, Digest]
    """SHA-256 of each of its files."""
    record: Digest
    """The digest that its pages name (harness.record.seal)."""
    row: GalleryRow


def write_gallery(folder: Path, tell: Callable[[str], object] = str) -> Path:
    """Write ``index.html`` into ``folder``: every run in it, the newest first. ``tell``: is handed a line for each left out.

    Raises:
        UserError: it holds no run that can be listed.
        StorageError: the disk refuses.
    """
    index = folder / "index.html"
    write_whole(index, render(folder, tell).encode(errors="replace"))
    return index


def render(folder: Path, tell: Callable[[str], object] = str) -> str:
    """The page as one HTML document, without a script."""
    listed, left_out, beside = [], [], begun_in(folder)
    for path in sorted(folder.glob("*")):
        try:
            if path.is_symlink() and not path.is_file():
                raise UserError(f"{path}: is a symbolic link, and no run is read through one")
            if path.is_dir() and (os.path.lexists(path / HEADER) or not os.access(path, os.X_OK)):
                listed.append(_listed(path, *row_of(path)) | {"repeated": repeated(path, beside)})
            elif path.is_dir() and os.path.lexists(path / ELSEWHERE):
                card = read_elsewhere(path)
                listed.append(_listed(path, card.row, Seal(state="unsealed", record=card.record), card.restored_by))
        except SbdError as error:
            left_out.append(str(error).replace(f"{folder}/", ""))
            tell(f"left out: {error}")
    if not listed:
        raise UserError(f"{folder}: there is no run in it to list; publish one first: sbd publish RUN {folder}/NAME")
    listed.sort(key=lambda one: str(one["row"].created_at), reverse=True)
    return fill_template("gallery.html.j2", runs=listed, left_out=left_out)


def read_elsewhere(path: Path) -> Elsewhere:
    """Where the record of this folder is.

    Raises:
        RecordError: the file ELSEWHERE is absent, or says something else.
    """
    try:
        return Elsewhere.model_validate_json(kept(path / ELSEWHERE) or b"")
    except ValidationError as error:
        raise RecordError(f"{path / ELSEWHERE}: does not say where a record is; restore it, or remove it") from error


def row_of(path: Path) -> tuple[GalleryRow, Seal | None]:
    """The row of a run, and its seal. Raises RecordError where it cannot be read."""
    with out_of_the_collectors_sight(lambda: read_run(path)) as run:
        header, comparison = run.header, Derived(run).comparison
        judged = comparison.judgements
        asked = headlines(held_claims(judged), comparison)
    row = GalleryRow(
        question=header.question,
        machine=machines(header),
        created_at=header.created_at,
        scenario_name=header.scenario_name,
        headlines=tuple(asked or [Headline(asked="", state=judged.state, word=verdict_words(judged), found="")]),
        claims=whose_claims(header, judged),
    )
    return row, run.seal


def _listed(path: Path, row: GalleryRow, seal: Seal | None, restored_by: str = "") -> dict[str, Any]:
    """One run, with what its folder holds. ``files``: name and description; ``not_linked``: pages of others, and why."""
    pages = {name: state for name, _, state in pages_of(path, seal) if not state.startswith(OWN)}
    words = {
        HEADER: "header",
        f"{SAMPLES}.gz": "samples",
        SAMPLES: "samples",
        f"{EVENTS}.gz": "events",
        EVENTS: "events",
        REPORTS[1]: "comparison, JSON",
    }
    return {
        "folder": quote(os.fsencode(path.name)),
        "row": row,
        "page": REPORTS[0] if (path / REPORTS[0]).is_file() else None,
        "not_linked": pages,
        "files": [(name, said) for name, said in words.items() if (path / name).is_file()],
        "restored_by": restored_by,
        "repeated": None,
    }
