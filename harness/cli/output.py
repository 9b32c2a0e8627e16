"""How a command shows its answer: JSON for programs; tables, lines and colours at the terminal's real width for people.

A command builds its text without a thought of the width and hands it to ``show``. Where standard output is no terminal, no
line is broken, so that other programs read them whole.
"""

from __future__ import annotations

import csv
import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from io import StringIO
from typing import Annotated, Any, TextIO, TypeVar

from typer import Option

from harness.formatting import csv_cell, escaped_json, one_line

Reason = TypeVar("Reason")
AsJson = Annotated[bool, Option("--json", help="print JSON")]
Amount = Annotated[float, Option(min=0.0)]
Number = Annotated[int, Option(min=1)]
"""Options of at least 0, and of at least 1."""
WITHOUT_A_TERMINAL = 160
"""Columns of a table that no terminal shows."""
NARROWEST, WIDEST = 40, 1000
LEAST_FOLDED, LEAST_IN_A_FRAME = 14, 22
"""Columns that a column of sentences needs; with fewer the rows are written below each other."""
GAP, FRAME = 2, 3
"""Columns between two columns of a table, and what a frame adds to each column."""
_STYLES = {
    "green": ("confirmed", "passed", "unchanged", "better", "kept up"),
    "red": ("refuted", "regressed", "changed", "worse"),
    "yellow": ("inconclusive", "unclear", "void"),
}
STYLES = {word: style for style, words in _STYLES.items() for word in words}
"""Colours of the words that a command ends with; each word says the same without them."""
_CODES = {"red": 31, "green": 32, "yellow": 33}


def csv_text(lines: Iterable[Mapping[str, Any]]) -> str:
    """The lines as CSV with a head; a line without a column has an empty cell there."""
    lines = list(lines)
    text = StringIO()
    table = csv.DictWriter(text, fieldnames=list(dict.fromkeys(key for line in lines for key in line)), lineterminator="\n")
    table.writeheader()
    table.writerows({key: csv_cell(value) for key, value in line.items()} for line in lines)
    return text.getvalue()


def json_text(value: Any, indent: int | None = 1) -> str:
    """Plain values as JSON; non-ASCII letters stay as they are."""
    return escaped_json(json.dumps(value, indent=indent, ensure_ascii=False, default=str))


def columns(stream: TextIO | None = None) -> int | None:
    """Width of the terminal of ``stream`` (standard output), or what COLUMNS says; None where neither is there."""
    said = os.environ.get("COLUMNS", "")
    if said.isascii() and said.isdigit() and 0 < len(said) <= 4 and int(said):
        return max(int(said), NARROWEST)
    try:
        found = os.get_terminal_size((stream or sys.stdout).fileno()).columns
    except (OSError, ValueError, AttributeError):  # no terminal, or a stream without a descriptor
        return None
    return max(found, NARROWEST) if found else None


def coloured(stream: TextIO | None = None) -> bool:
    """Whether colours may be written there: a terminal that can, and NO_COLOR is not set (no-color.org)."""
    shown = stream or sys.stdout
    return shown.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in ("", "dumb")


def show(text: str, stream: TextIO | None = None) -> None:
    """Print lines for people: broken at the terminal's width, the verdict in its colour."""
    shown = fitted(text, columns(stream))
    if coloured(stream):
        shown = re.sub(r"^(verdict: )(\w+)", lambda found: found[1] + _painted(found[2]), shown, flags=re.MULTILINE)
    print(shown, file=stream or sys.stdout, flush=stream is not None)


def give(as_json: bool, plain: Callable[[], Any], words: Callable[[], str], indent: int | None = 1) -> None:
    """Print an answer: its plain values as JSON, or its words for people."""
    if as_json:
        print(json_text(plain(), indent))
    else:
        show(words())


def _painted(word: str) -> str:
    return f"\x1b[1;{_CODES[STYLES[word]]}m{word}\x1b[0m" if word in STYLES else word


def fitted(text: str, width: int | None) -> str:
    """``text`` with every line that is wider than ``width`` broken at its spaces; what follows is indented by two more."""
    if width is None:
        return text
    return "\n".join(part for line in text.split("\n") for part in _broken(line, width))


def _broken(line: str, width: int) -> list[str]:
    if len(line) <= width or "\x1b" in line:  # tables come as wide as they may be, with their colours
        return [line]
    indent = line[: len(line) - len(line.lstrip(" "))]
    head = re.match(r" *\S[^ ]*(?: [^ ]+)* {2,}", line)  # "name   what is said of it" goes on below what is said
    hang = " " * len(head[0]) if head and len(head[0]) <= width // 2 else f"{indent}  "
    if any(len(word) > width - len(hang) for word in line.split(" ")):
        line = line.replace("::", ": :")  # broken within a word, it might begin a line that CI obeys
    filled = textwrap.wrap(
        line.strip(" "), width, initial_indent=indent, subsequent_indent=hang, break_on_hyphens=False, drop_whitespace=True
    )
    return filled or [""]


def lines_of(*texts: str) -> str:
    """Foreign texts, a line each."""
    return "\n".join(map(one_line, texts))


def by_reason(named: Iterable[tuple[str, Reason]]) -> dict[Reason, list[str]]:
    """The names of every reason, each reason once, in order."""
    found: dict[Reason, list[str]] = {}
    for name, reason in named:
        found.setdefault(reason, []).append(name)
    return found


def wrapped(text: str, first: str = "", other: str = "") -> str:
    """Foreign ``text`` in lines of the terminal's width (100 without one), the first one indented by ``first``."""
    width = columns() or 100
    return textwrap.fill(one_line(text), width, initial_indent=first, subsequent_indent=other, break_on_hyphens=False)


def grid(
    heads: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    right: Collection[str] = (),
    folds: Collection[str] = (),
    ruled: bool = False,
) -> str:
    """A table of texts (or drawings of rich) as text, at the terminal's width.

    Where the terminal is too narrow for its columns, each row is written as lines of ``column  value`` instead: nothing is cut.
    ``right``: right-aligned columns. ``folds``: columns that may wrap. ``ruled``: a frame and a rule below each row.
    """
    told = [[one_line(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    width = columns()
    needed = _needed(heads, told, folds, ruled)
    if width is not None and needed > width:
        high = [head.replace(" ", "\n") for head in heads]  # heads of several lines may make it fit
        folded = [one for one, head in zip(high, heads, strict=True) if head in folds]
        if (needed := _needed(high, told, folded, ruled)) > width:
            return _stacked(heads, told, width)
        right, heads, folds = [one for one, head in zip(high, heads, strict=True) if head in right], high, folded
    return _table(heads, told, right, folds, ruled, width or max(WITHOUT_A_TERMINAL, needed))


def _needed(heads: Sequence[str], rows: Sequence[Sequence[Any]], folds: Collection[str], ruled: bool) -> int:
    """Columns that the table takes at least, its sentences folded."""
    from rich.cells import cell_len

    def wide(cell: Any) -> int:
        return max(map(cell_len, cell.split("\n"))) if isinstance(cell, str) else getattr(cell, "width", None) or 0

    needed = FRAME * len(heads) + 1 if ruled else GAP * (len(heads) - 1)
    for head, *cells in zip(heads, *rows, strict=True):
        widest = max(map(wide, (head, *cells)))
        needed += min(widest, LEAST_IN_A_FRAME if ruled else LEAST_FOLDED) if head in folds else widest
    return needed


def _stacked(heads: Sequence[str], rows: Sequence[Sequence[Any]], width: int) -> str:
    """Every row as lines, its first column above the others; empty values are left out."""
    heads = [" ".join(head.split()) for head in heads]  # some stand on several lines in a table
    label = min(max((len(head) for head in heads[1:]), default=0), 22)
    lines: list[str] = []
    for first, *others in rows:
        lines += _broken((_painted(str(first)) if coloured() else str(first)) or "-", width)
        for head, cell in zip(heads[1:], others, strict=True):
            if isinstance(cell, str) and cell:  # a drawing says what a figure beside it says
                lines += _broken(f"  {head:{label}}  {cell}", width)
    return "\n".join(lines)


def _table(
    heads: Sequence[str], rows: Sequence[Sequence[Any]], right: Collection[str], folds: Collection[str], ruled: bool, width: int
) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.ROUNDED if ruled else None, pad_edge=ruled)
    for head in heads:
        fold = head in folds
        table.add_column(
            head, justify="right" if head in right else "left", no_wrap=not fold, overflow="fold" if fold else "ellipsis"
        )
    for row in rows:
        cells = (cell.replace("::", ": :") if isinstance(cell, str) else cell for cell in row)  # folds within words too
        table.add_row(*(Text(cell, STYLES[cell]) if cell in STYLES else cell for cell in cells), end_section=ruled)
    paint, text = coloured(), StringIO()
    console = Console(
        file=text,
        width=min(width, WIDEST),
        highlight=False,
        markup=False,
        emoji=False,
        force_terminal=paint,
        color_system="standard" if paint else None,
        no_color=not paint,
        legacy_windows=False,
    )
    console.print(table)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())
