"""Markdown for a job summary ($GITHUB_STEP_SUMMARY) or a comment on a pull or merge request.

The first line is a comment that is the same for every call with this title, so that a bot finds its own comment and rewrites
it. GitHub Flavored Markdown (its spec, 0.29: tables 4.10, escapes 6.1, entities 6.2, raw HTML 6.10); text is escaped so that
it shows as it is: no tag, no link, no picture, no further column, and nobody is notified.
"""

from __future__ import annotations

import re

from harness.analysis.judgement import Judgement, Judgements
from harness.reporting.exports.plain import one_line
from harness.reporting.exports.wording import gravest_first, tally, value_words, verdict_words

MARKER = "sbd judgements"
LONGEST = 60_000
"""Characters; GitHub refuses a comment with more than 65,536."""
LONGEST_TEXT = 600
HEADS = ("verdict", "metric", "where", "value", "asked", "reason")

# What Markdown reads within a line. Entities, not a backslash, for what a table or HTML is split at: they hold in every
# renderer, however it cuts cells.
_SPECIAL = str.maketrans(
    {mark: f"\\{mark}" for mark in "\\`*_[]~$"} | {"|": "&#124;", "<": "&lt;", ">": "&gt;", "&": "&amp;"}
)
# What GitHub looks for in the finished page, where a backslash is gone: @name, #123, bare addresses, :emoji:. A character of no
# width breaks them up.
_CALLS = re.compile(r"(?<=@)(?=\S)|(?<=#)(?=\d)|(?<=:)(?=[\w/+-])|(?<=www)(?=\.)", re.IGNORECASE)
_NO_WIDTH = "\u200b"


def markdown_text(judgements: Judgements) -> str:
    """Marker, verdict line, table (gravest first), remedies. Rows beyond what a comment holds are counted, not shown."""
    ordered = gravest_first(judgements)
    head = f"{_marker(judgements.title)}\n\n**{escaped(verdict_words(judgements))}**: {escaped(judgements.title)}: "
    head += f"{escaped(tally(judgements))}\n"
    foot = "\nRuns:\n\n" + "".join(f"- run: {escaped(run)}\n" for run in judgements.runs) if judgements.runs else ""
    rows, remedies, room = [], [], LONGEST - len(head) - len(foot)
    for one in ordered:
        row, remedy = _row(one), _remedy(one)
        room -= len(row) + (len(remedy) if one.remedy else 0)
        if room < 0:
            break
        rows.append(row)
        remedies += [remedy] if one.remedy else []
    table = ["| " + " | ".join(HEADS) + " |\n", "|" + "---|" * len(HEADS) + "\n", *rows] if rows else []
    left = len(ordered) - len(rows)
    cut = f"\n{left} more are left out here; the JSON and JUnit files hold all.\n" if left else ""
    decide = "\nTo decide:\n\n" + "".join(remedies) if remedies else ""
    return head + ("\n" if table else "") + "".join(table) + cut + decide + foot


def escaped(text: str) -> str:
    """``text`` as Markdown that shows it and does nothing else."""
    return _CALLS.sub(_NO_WIDTH, one_line(text, LONGEST_TEXT)).translate(_SPECIAL)


def _marker(title: str) -> str:
    """An HTML comment that nothing in the title can end (HTML standard, 13.1.6: no ``-->``, ``--!>`` or leading ``>``)."""
    return f"<!-- {MARKER}: {re.sub('[<>-]+', '-', one_line(title, LONGEST_TEXT))} -->"


def _remedy(one: Judgement) -> str:
    """A list item; it starts with a word of ours, for a text that starts with ``- `` would open a list within it."""
    return f"- {one.word}: {escaped(one.metric)} of {escaped(one.subject)}: {escaped(one.remedy or '')}\n"


def _row(one: Judgement) -> str:
    cells = (one.word, one.metric, one.subject, value_words(one), one.bound, one.reason)
    return "| " + " | ".join(escaped(cell) for cell in cells) + " |\n"
