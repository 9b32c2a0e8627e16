"""Writes the gallery: one page that lists the runs of a folder with question, machine, date and verdict, and links to each.

The same runs give the same bytes: the page does not say when or where it was written.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from harness.analysis.comparison import compare
from harness.errors import SbdError, UserError
from harness.record.publication import OWN, REPORTS, pages_of
from harness.record.regular_file import write_whole
from harness.record.store import EVENTS, HEADER, SAMPLES, read_run
from harness.reporting import out_of_the_collectors_sight
from harness.reporting.assets import fill_template
from harness.reporting.claims_shown import headlines, held_claims, whose_claims


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
    listed, left_out = [], []
    for path in sorted(folder.glob("*")):
        try:
            if path.is_symlink() and not path.is_file():
                raise UserError(f"{path}: is a symbolic link, and no run is read through one")
            if path.is_dir() and (os.path.lexists(path / HEADER) or not os.access(path, os.X_OK)):
                listed.append(_listed(path))
        except SbdError as error:
            left_out.append(str(error).replace(f"{folder}/", ""))
            tell(f"left out: {error}")
    if not listed:
        raise UserError(f"{folder}: there is no run in it to list; publish one first: sbd publish RUN {folder}/NAME")
    listed.sort(key=lambda one: str(one["header"].created_at), reverse=True)
    return fill_template("gallery.html.j2", runs=listed, left_out=left_out)


def _listed(path: Path) -> dict[str, Any]:
    """One run. ``headlines``: the first lines of its page; ``files``: name and description of the files there;

    ``not_linked``: pages that are not its own, and why.
    """
    with out_of_the_collectors_sight(lambda: read_run(path)) as run:
        header, comparison = run.header, compare(run)
        held, judged, _ = held_claims(comparison, header)
        asked = headlines(held, comparison)
        pages = {name: state for name, _, state in pages_of(path, run) if not state.startswith(OWN)}
    words = {HEADER: "header", f"{SAMPLES}.gz": "samples", SAMPLES: "samples", EVENTS: "events", REPORTS[1]: "comparison, JSON"}
    return {
        "folder": quote(os.fsencode(path.name)),
        "header": header,
        "judged": judged,
        "whose": whose_claims(header, judged),
        "headlines": asked,
        "page": REPORTS[0] if (path / REPORTS[0]).is_file() else None,
        "not_linked": pages,
        "files": [(name, said) for name, said in words.items() if (path / name).is_file()],
    }
