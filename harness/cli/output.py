"""How a command shows its answer: JSON for programs; tables and lines at the terminal's width for people."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Collection, Iterable, Sequence
from shutil import get_terminal_size
from typing import Any, TypeVar

from harness.formatting import escaped_json, one_line

Reason = TypeVar("Reason")


def json_text(value: Any, indent: int | None = 1) -> str:
    """Plain values as JSON; non-ASCII letters stay as they are."""
    return escaped_json(json.dumps(value, indent=indent, ensure_ascii=False, default=str))


def wrapped(text: str, first: str = "", other: str = "") -> str:
    """Foreign ``text`` in lines of the terminal's width, the first one indented by ``first``."""
    width = max(get_terminal_size(fallback=(140, 50)).columns, 80)
    return textwrap.fill(one_line(text), width, initial_indent=first, subsequent_indent=other, break_long_words=False)


def lines_of(*texts: str) -> str:
    """Foreign texts, a line each."""
    return "\n".join(map(one_line, texts))


def by_reason(named: Iterable[tuple[str, Reason]]) -> dict[Reason, list[str]]:
    """The names of every reason, each reason once, in order."""
    found: dict[Reason, list[str]] = {}
    for name, reason in named:
        found.setdefault(reason, []).append(name)
    return found


def grid(
    heads: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Collection[str] = (), folds: Collection[str] = (),
    at_least: int = 100, ruled: bool = False,
) -> str:  # fmt: skip
    """A table of texts (or drawings of rich) as text, at the terminal's width; without a terminal it is 160.

    ``right``: right-aligned columns. ``folds``: columns that may wrap. ``ruled``: a frame and a rule below each row.
    """
    from io import StringIO

    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.ROUNDED if ruled else None, pad_edge=ruled)
    for head in heads:
        fold = head in folds
        table.add_column(
            head, justify="right" if head in right else "left", no_wrap=not fold, overflow="fold" if fold else "ellipsis"
        )
    for row in rows:
        told = (
            one_line(cell).replace("::", ": :") if isinstance(cell, str) else cell for cell in row
        )  # folds within words too
        table.add_row(*told, end_section=ruled)
    text, width = StringIO(), max(get_terminal_size(fallback=(160, 50)).columns, at_least)
    Console(file=text, width=width, highlight=False, markup=False, emoji=False).print(table)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())
