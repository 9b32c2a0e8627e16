"""The table of `sbd check` for any run: pass costs, modelled and counted bytes, errors of the prices, NTP over generate().

Usage: python -m benchmarks.run_table RUN...
"""

from __future__ import annotations

import sys
from pathlib import Path

from harness.analysis.answer import Derived
from harness.check.cells import cells_table, rows, widths
from harness.errors import SbdError
from harness.record.store import RunStore, read_run


def table(directory: Path) -> str:
    """The tables of one run as Markdown; what it has not measured yet is listed as such."""
    title = f"# {directory.name}\n\n"
    if not RunStore(directory).exists:
        return f"{title}no run was begun\n"
    derived = Derived(read_run(directory), ())
    return title + cells_table(rows(derived, "not reached yet"), widths(derived))


def main() -> None:
    """Print one after the other; a record that cannot be read is told in its place."""
    for name in sys.argv[1:]:
        try:
            print(table(Path(name)))
        except SbdError as error:
            print(f"# {Path(name).name}\n\n{error}\n")


if __name__ == "__main__":
    main()
