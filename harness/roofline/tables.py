"""Tables 3 and 4 of the paper as data, for the command line to print and for ``--json``.

One mode alone, or both side by side. Knows no terminal and no file.
"""

from __future__ import annotations

from typing import Any

from harness.roofline.paper import PaperMode, table3_rows, table4_rows

TABLES_VERSION = 1


def paper_tables(mode: PaperMode) -> dict[str, Any]:
    """``{"version", "mode", "table3": rows with ``slowdown``, "table4": rows with ``wall_speedup``}``."""
    return {"version": TABLES_VERSION, "mode": mode, "table3": table3_rows(mode), "table4": table4_rows(mode)}


def side_by_side() -> dict[str, Any]:
    """As ``paper_tables`` in mode ``both``: the printed figure under its name, beside it ``<name>_corrected``."""
    return {
        "version": TABLES_VERSION,
        "mode": "both",
        "table3": _joined(table3_rows("as_printed"), table3_rows("corrected"), "slowdown"),
        "table4": _joined(table4_rows("as_printed"), table4_rows("corrected"), "wall_speedup"),
    }


def _joined(printed: list[dict[str, float]], corrected: list[dict[str, float]], figure: str) -> list[dict[str, float]]:
    return [{**left, f"{figure}_corrected": right[figure]} for left, right in zip(printed, corrected, strict=True)]
