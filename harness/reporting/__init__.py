"""Writes the report of a run: one HTML file that opens without a network, and its values as JSON.

In: records and comparisons. Out: a page, its JSON, figures, files for other programs; no statistic of its own. Open ``page``
first, then ``explain``, which lists the figures.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:  # the page's libraries load when a page is written
    from harness.analysis.results import Comparison
    from harness.record.schema import Run

Made = TypeVar("Made")

__all__ = ["write_report"]


def write_report(run_dir: Path, out: Path | None = None, tell: Callable[[Comparison, Run], None] | None = None) -> Path:
    """Write ``report.html`` and ``report.json`` (the comparison, versioned) of the run in ``run_dir``.

    A run that was taken on several kinds of machine is shown as several runs side by side.

    Args:
        run_dir: a run directory.
        out: the HTML file to write; the JSON goes beside it. Default: into the run directory.
        tell: is handed the comparison of one run, which takes seconds to derive, and the run, once the page is there.

    Returns:
        The path of the HTML file.

    Raises:
        RecordError: the run cannot be read.
        StorageError: the disk refuses.
    """
    from pydantic_core import to_json as pretty_json

    from harness.analysis.answer import Derived, to_json
    from harness.record.by_machine import by_machine
    from harness.record.publication import REPORTS
    from harness.record.regular_file import write_whole
    from harness.record.store import read_run
    from harness.regression.side_by_side import compare_several
    from harness.reporting.page import render

    page = out or run_dir / REPORTS[0]
    with out_of_the_collectors_sight(lambda: by_machine(read_run(run_dir))) as (run, *others):
        if others:
            from harness.reporting.side_by_side import write_side_by_side  # trends need a database's library, one run does not

            return write_side_by_side(compare_several([run, *others]), page)
        comparison = Derived(run).comparison
        data = to_json(comparison)
        json.dumps(data, allow_nan=False)  # refuses NaN and infinity, which the faster writer below lets through
        write_whole(page.with_suffix(".json"), pretty_json(data, indent=1))
        write_whole(page, render(run, comparison, data).encode())
        if tell is not None:
            tell(comparison, run)
    return page


@contextmanager
def out_of_the_collectors_sight(make: Callable[[], Made]) -> Iterator[Made]:
    """Yield what ``make`` makes and keep it out of garbage collection, which would walk millions of values and free none."""
    gc.disable()
    try:
        made = make()
        gc.freeze()
    finally:
        gc.enable()
    try:
        yield made
    finally:
        gc.unfreeze()
