"""Writes the gallery: one page that lists the runs of a folder with question, machine, date and verdict, and links to each.

The same runs give the same bytes: the page does not say when or where it was written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.analysis.comparison import compare
from harness.errors import UserError
from harness.record.publication import REPORTS
from harness.record.regular_file import write_whole
from harness.record.store import EVENTS, HEADER, SAMPLES, read_run
from harness.reporting import out_of_the_collectors_sight
from harness.reporting.assets import fill_template
from harness.reporting.claims_shown import held_claims, whose_claims
from harness.reporting.headline import headlines


def write_gallery(folder: Path) -> Path:
    """Write ``index.html`` into ``folder``: every run in it, the newest first.

    Raises:
        UserError: it holds no run.
        RecordError: a run cannot be read.
        StorageError: the disk refuses.
    """
    index = folder / "index.html"
    write_whole(index, render(folder).encode())
    return index


def render(folder: Path) -> str:
    """The page as one HTML document, without a script."""
    found = sorted(path.parent for path in folder.glob(f"*/{HEADER}"))
    if not found:
        raise UserError(f"{folder}: there is no run in it; publish one first: sbd publish RUN {folder}/NAME")
    listed = sorted(map(_listed, found), key=lambda one: str(one["header"].created_at), reverse=True)
    return fill_template("gallery.html.j2", runs=listed)


def _listed(path: Path) -> dict[str, Any]:
    """One run. ``headlines``: the first lines of its page; ``files``: name and description of the files that exist."""
    with out_of_the_collectors_sight(lambda: read_run(path)) as run:
        header, comparison = run.header, compare(run)
        held, judged, _ = held_claims(comparison, header)
        asked = headlines(held, comparison)
    words = {HEADER: "header", f"{SAMPLES}.gz": "samples", SAMPLES: "samples", EVENTS: "events", REPORTS[1]: "comparison, JSON"}
    return {
        "folder": path.name, "header": header, "judged": judged, "whose": whose_claims(header, judged), "headlines": asked,
        "page": REPORTS[0] if (path / REPORTS[0]).is_file() else None,
        "files": [(name, said) for name, said in words.items() if (path / name).is_file()],
    }  # fmt: skip
