"""Writes the report of a run: one HTML file that opens without a network, and its values as JSON.

Reads records and comparisons only and computes no statistic of its own.
"""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["write_report"]


def write_report(run_dir: Path, out: Path | None = None) -> Path:
    """Write ``report.html`` and ``report.json`` (the comparison, versioned) of the run in ``run_dir``.

    Args:
        run_dir: a run directory.
        out: the HTML file to write; the JSON goes beside it. Default: into the run directory.

    Returns:
        The path of the HTML file.

    Raises:
        RecordError: the run cannot be read.
        StorageError: the disk refuses.
    """
    from pydantic_core import to_json as pretty_json

    from harness.compare import compare, to_json
    from harness.journal import write_whole
    from harness.reporting.page import render
    from harness.store import REPORTS, read_run

    run = read_run(run_dir)
    comparison = compare(run)
    page = out or run_dir / REPORTS[0]
    data = to_json(comparison)
    json.dumps(data, allow_nan=False)  # refuses what is no number, which the faster writer below would let through
    write_whole(page.with_suffix(".json"), pretty_json(data, indent=1))
    write_whole(page, render(run, comparison, data).encode())
    return page
