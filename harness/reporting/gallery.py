"""Writes the gallery: one page that lists the runs of a folder with question, machine, date and verdict, and links to each.

The same runs give the same bytes: the page does not say when or where it was written.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from harness.analysis.comparison import compare
from harness.analysis.judgement import State
from harness.errors import UserError
from harness.record.journal import write_whole
from harness.record.schema import Run
from harness.record.store import EVENTS, HEADER, REPORTS, SAMPLES, read_run
from harness.reporting import cells as wording
from harness.reporting import out_of_the_collectors_sight
from harness.reporting.answers import answers
from harness.reporting.assets import assets
from harness.reporting.cells import Pointers
from harness.reporting.claims_shown import GLYPHS, held_claims, whose_claims
from harness.reporting.exports.wording import tally, verdict_words

INDEX = "index.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One run. ``answers``: the cards of its page; ``files``: name and description of the files that exist."""

    folder: str
    question: str
    scenario: str
    when: str
    machine: str
    state: State
    glyph: str
    word: str
    tally: str
    whose: str
    answers: tuple[tuple[str, str], ...]
    page: str | None
    files: tuple[tuple[str, str], ...]


def write_gallery(folder: Path) -> Path:
    """Write ``index.html`` into ``folder``: every run in it, the newest first.

    Raises:
        UserError: it holds no run.
        RecordError: a run cannot be read.
        StorageError: the disk refuses.
    """
    index = folder / INDEX
    write_whole(index, render(folder).encode())
    return index


def render(folder: Path) -> str:
    """The page as one HTML document, without a script."""
    found = sorted(path.parent for path in folder.glob(f"*/{HEADER}"))
    if not found:
        raise UserError(f"{folder}: there is no run in it; publish one first: sbd publish RUN {folder}/NAME")
    listed = sorted(map(_listed, found), key=lambda one: one.when, reverse=True)
    environment = Environment(
        loader=PackageLoader("harness.reporting"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("gallery.html.j2").render(assets=assets(environment, scripts=()), runs=listed)


def _listed(path: Path) -> Listed:
    with out_of_the_collectors_sight(lambda: read_run(path)) as run:
        return _told(path, run)


def _told(path: Path, run: Run) -> Listed:
    header, comparison = run.header, compare(run)
    held, overall, _ = held_claims(comparison, header)
    cards = answers(comparison, header, held, Pointers(comparison))
    machines = dict.fromkeys(wording.machine(header, case.device) for case in header.cases)
    words = {HEADER: "header", f"{SAMPLES}.gz": "samples", SAMPLES: "samples", EVENTS: "events", REPORTS[1]: "comparison, JSON"}
    return Listed(
        folder=path.name, question=header.question, scenario=header.scenario_name, when=header.created_at,
        machine=" and ".join(machines) or "no machine", state=overall.state,
        glyph=GLYPHS[overall.state], word=verdict_words(overall), tally=tally(overall),
        whose=whose_claims(header),
        answers=tuple((card.title, card.unit if card.raw is None else f"{card.figure} {card.unit}") for card in cards),
        page=REPORTS[0] if (path / REPORTS[0]).is_file() else None,
        files=tuple((name, said) for name, said in words.items() if (path / name).is_file()),
    )  # fmt: skip
