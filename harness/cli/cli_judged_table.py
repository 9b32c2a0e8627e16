"""Judgements for people: a table, what would decide the open ones, and the verdict as the last line."""

from __future__ import annotations

from io import StringIO
from shutil import get_terminal_size

from rich import box
from rich.console import Console
from rich.table import Table

from harness.analysis.judgement import Judgements
from harness.reporting.exports.plain import one_line
from harness.reporting.exports.wording import gravest_first, tally, value_words, verdict_words

HEADS = ("verdict", "metric", "where", "value [95 % interval]", "asked", "reason")
NARROWEST = 100
NO_TERMINAL = (140, 50)


def table(judgements: Judgements, exit_code: int) -> str:
    """Gravest first; text only, at least 100 characters wide.

    No line starts with text from outside: a CI runner would obey one that starts with ``::`` (or has ``##[`` anywhere).
    """
    ordered = gravest_first(judgements)
    parts = [_grid(judgements)] if ordered else []
    for one in ordered:
        if one.remedy:
            parts.append(f"to decide {one_line(one.metric)} of {one_line(one.subject)}: {one_line(one.remedy)}")
    said = f"verdict: {verdict_words(judgements)} ({tally(judgements)}; exit code {exit_code}): {one_line(judgements.title)}"
    return "\n".join([*parts, said]).replace("##[", "# #[")


def _grid(judgements: Judgements) -> str:
    grid = Table(box=box.ROUNDED)
    for head in HEADS:
        grid.add_column(head, no_wrap=head in HEADS[:2], overflow="fold")
    for one in gravest_first(judgements):
        texts = (one.metric, one.subject, value_words(one), one.bound, one.reason)
        grid.add_row(one.word, *(one_line(text) for text in texts), end_section=True)
    text = StringIO()
    width = max(get_terminal_size(fallback=NO_TERMINAL).columns, NARROWEST)
    Console(file=text, width=width, highlight=False, markup=False, emoji=False).print(grid)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())
