"""`sbd report`, `sbd gallery` and `sbd publish`: pages for people, the same as JSON, and a summary for a pull request."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from harness.analysis.answer import Derived
from harness.analysis.judge.judgement import to_json as judgements_json
from harness.analysis.results import Comparison, to_json
from harness.cli.output import json_text, show
from harness.errors import RecordError, StorageError, UserError
from harness.formatting import one_line
from harness.record.by_machine import by_machine
from harness.record.publication import CHANGED, pages_of, publish
from harness.record.regular_file import write_whole
from harness.record.schema import Run
from harness.record.store import read_run
from harness.regression import side_by_side

REPORT_JSON_VERSION = 1
SIDE_BY_SIDE = "side_by_side.html"
STDOUT = "-"


def report_command(
    runs: list[Path],
    out: Annotated[
        Path | None, Option(help=f"page to write; default: report.html in the run, of several {SIDE_BY_SIDE} in the last")
    ] = None,
    each: bool = False,
    as_json: Annotated[bool, Option("--json")] = False,
    markdown: Path | None = None,
    history: str | None = None,
    opens: Annotated[bool, Option("--open")] = False,
    pdf: bool = False,
) -> None:
    """Write the report of a finished or unfinished run, or put several runs beside each other on one page.

    \b
    sbd report RUN               the page of one run
    sbd report A B [C...]        what changed from A to the others: by how much, how sure, and how unlike the runs are
    sbd report --each A B        the page of each
    sbd report RUN --markdown -  the verdict in Markdown, with the words that stand on top of the page

    With --json: of one run its comparison and the judgements of its claims, of several all of them and what changed.

    Args:
        runs (RUN...): run directories; the first of several is the base
        each: a page of its own for every run, not one for all
        as_json: print JSON instead of writing a page
        markdown (FILE): also write the verdict for a pull request (one run); - is stdout
        history (FILE|URL): of several runs: show the trend that this history holds of them
        opens: open the page in the browser
        pdf: print the page to PDF too; needs Chromium or Chrome
    """
    _check(runs, out, each, markdown, history)
    if len(runs) > 1 and not each:
        pages = _side_by_side(runs, out, as_json, history)
    else:
        pages = [_page(run, out, as_json, markdown) for run in runs]
    for page in pages:
        if page is not None and pdf:
            show(one_line(f"pdf     {print_pdf(page)}"))
        if page is not None and opens:
            webbrowser.open(page.resolve().as_uri())


def gallery_command(folder: Annotated[Path, Argument()] = Path("reports")) -> None:
    """Write FOLDER/index.html: every run in it with its question, machine, date and verdict, and links to page and record.

    Args:
        folder (FOLDER): where published runs lie
    """
    from harness.reporting.gallery import write_gallery

    show(one_line(f"gallery {write_gallery(folder, show)}"))


def publish_command(run: Path, target: Path, sign: Path | None = None) -> None:
    """Copy a run for keeping, samples and events gzipped, and seal it; the same run gives the same bytes.

    The seal shows whether anything was changed afterwards; a signature, that nobody without the key sealed it anew.

    A published run can be gone on with: sbd run SCENARIO --out TARGET. What it takes is packed in place by sbd publish TARGET
    TARGET.

    Args:
        run (RUN): a run directory
        target (TARGET): folder to write, for example reports/name
        sign (KEY): sign the seal with this SSH key (needs ssh-keygen)
    """
    show(one_line(str(publish(run, target, sign))))


def write_page(run: Path, out: Path | None) -> tuple[Path, Comparison | None]:
    """Write the page of one run; print the answer and the page's place. No comparison of a run on several machines."""
    from harness.reporting import write_report
    from harness.reporting.answers import answer_lines

    compared: list[Comparison] = []

    def tell(comparison: Comparison, held: Run) -> None:
        compared.append(comparison)
        show(answer_lines(run, comparison, held.header))
        if any(state == CHANGED for *_, state in pages_of(run, held.seal)):
            show(one_line(f"signed  the signature covers this page no more; sign again: sbd publish {run} {run} --sign KEY"))

    page = write_report(run, out, tell)
    show(one_line(f"report  {page}"))
    return page, next(iter(compared), None)


def _check(runs: Sequence[Path], out: Path | None, each: bool, markdown: Path | None, history: str | None) -> None:
    together = len(runs) > 1 and not each
    if out is not None and each and len(runs) > 1:
        raise UserError(f"--out {out} names one file, --each writes {len(runs)}; leave one of them out")
    if markdown is not None and len(runs) > 1:
        raise UserError(
            f"--markdown is about one run's claims, {len(runs)} runs were given; of two runs `sbd gate A B --to markdown=FILE` "
            "says whether the second is a regression"
        )
    if out is not None and out.is_dir():
        raise UserError(f"--out {out}: is a folder; name the page to write")
    if history is not None and not together:
        raise UserError("--history belongs to several runs on one page; of a single series see `sbd history trend`")


def _page(run: Path, out: Path | None, as_json: bool, markdown: Path | None) -> Path | None:
    from harness.reporting.exports import export

    page, comparison = (None, None) if as_json else write_page(run, out)
    if not as_json and markdown is None:
        return page
    comparison = comparison or Derived(read_run(run)).comparison
    if comparison.unread is not None:
        raise RecordError(comparison.unread)
    judged = comparison.judgements
    if as_json:
        found = {"version": REPORT_JSON_VERSION, "comparison": to_json(comparison), "judgements": judgements_json(judged)}
        print(json_text(found))
    if markdown is not None:
        text = export(judged, "markdown")
        if str(markdown) == STDOUT:
            print(text, end="")
        else:
            write_whole(markdown, text.encode())
    return page


def _side_by_side(runs: Sequence[Path], out: Path | None, as_json: bool, history: str | None) -> list[Path | None]:
    records = [one for run in runs for one in by_machine(read_run(run))]
    found = side_by_side.compare_several(records)
    if as_json:
        print(json_text(side_by_side.to_json(found)))
        return []
    from harness.reporting.side_by_side import write_side_by_side

    trend = None
    if history is not None:
        from harness.cli.history import history_of  # the database's library is not on every machine that measures

        trend = history_of(records[0], history)
    last = runs[-1] if runs[-1].is_dir() else runs[-1].parent
    page = write_side_by_side(found, out or last / SIDE_BY_SIDE, trend)
    show(one_line(f"report  {page}"))
    return [page]


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
LONGEST_S = 300


def print_pdf(page: Path) -> Path:
    """Write the PDF of ``page`` beside it with a headless browser, offline.

    Raises:
        UserError: no browser of the Chromium family is installed.
        StorageError: the browser could not write it; the message ends with its own.
    """
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        raise UserError(
            f"--pdf needs a browser of the Chromium family, and none of {', '.join(BROWSERS)} is on the PATH; install one "
            f"(Debian: apt install chromium), or open {page} in any browser and print it to a file"
        )
    target = page.with_suffix(".pdf")
    with tempfile.TemporaryDirectory(prefix="sbd-pdf-") as profile:
        made = Path(profile) / "page.pdf"
        # Chromium refuses its sandbox to root; the page is our own and loads nothing.
        as_root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        command = [
            browser,
            "--headless",
            "--disable-gpu",
            "--disable-quic",
            "--disable-background-networking",
            "--no-first-run",
            f"--user-data-dir={profile}",
            "--no-pdf-header-footer",
            f"--print-to-pdf={made}",
            *as_root,
            page.resolve().as_uri(),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise StorageError(f"{browser} did not print {page} within {LONGEST_S} s") from error
        if not made.is_file():
            last = (done.stderr.strip() or "it said nothing").splitlines()[-1]
            raise StorageError(f"{browser} did not print {page} (exit code {done.returncode}): {last}")
        write_whole(target, made.read_bytes())
    return target
