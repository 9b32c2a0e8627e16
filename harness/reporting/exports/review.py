"""Markdown for a job summary ($GITHUB_STEP_SUMMARY) or a comment on a pull or merge request.

The first line is a comment that is the same for every call with this title, so that a bot finds its own comment and rewrites
it. GitHub Flavored Markdown (its spec, 0.29: tables 4.10, escapes 6.1, entities 6.2, raw HTML 6.10); text is escaped so that
it shows as it is: no tag, no link, no picture, no further column, and nobody is notified.

GitHub annotations: workflow commands on standard output, ``::error title=...::message``.

Grammar and escaping: docs.github.com, "Workflow commands for GitHub Actions", and actions/toolkit, core/src/command.ts:
``%``, CR and LF are percent-encoded everywhere, ``:`` and ``,`` in a property as well. GitHub shows ten errors, ten warnings
and ten notices per step and drops the rest, so the gravest come first and the last line is a notice with the count of all.

JUnit XML: what Jenkins, GitLab, Azure and most others show as test results.

Elements and attributes are among those of the Jenkins xunit plugin's junit-10.xsd, and are those that GitLab's "unit test
report" reads (name, classname; failure, error, skipped with message; system-out). One testcase per judgement:

============  ===================  ==========================================================================
missed        ``failure``          the program under test did not do what was asked
void          ``error``            JUnit's word for a test that could not be carried out; it must not look green
inconclusive  ``skipped``          JUnit has no third outcome; skipped is neither green nor red, and its message is shown
met           nothing              the figures stand in ``system-out``
============  ===================  ==========================================================================

The file says what was found. What an inconclusive verdict does to a build is decided by the exit code (``--inconclusive``).
No ``time``: a judgement is reached, not timed, and 0 would be a figure.
"""

from __future__ import annotations

import re
from collections import Counter
from xml.etree import ElementTree

from harness import __version__
from harness.analysis.judgement import Judgement, Judgements, State
from harness.reporting.exports.wording import (
    NOTHING_JUDGED,
    details,
    gravest_first,
    names,
    one_line,
    tally,
    value_words,
    verdict_words,
)

MARKER = "sbd judgements"
LONGEST = 60_000
"""Characters; GitHub refuses a comment with more than 65,536."""
LONGEST_TEXT = 600
HEADS = ("verdict", "metric", "where", "value", "asked", "reason")

# What Markdown reads within a line. Entities, not a backslash, for what a table or HTML is split at: they hold in every
# renderer, however it cuts cells.
_SPECIAL = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_[]~$"} | {"|": "&#124;", "<": "&lt;", ">": "&gt;", "&": "&amp;"})
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


LEVELS: dict[State, str] = {"missed": "error", "void": "error", "inconclusive": "warning"}
"""What is met gets no annotation of its own."""
LONGEST_TITLE = 200


def github_text(judgements: Judgements) -> str:
    """A line per judgement that is not met, gravest first, and one notice with the verdict."""
    lines = [
        _command(LEVELS[one.state], f"{one.word}: {one.metric}", [one_line(one.subject), *details(one)])
        for one in gravest_first(judgements)
        if one.state in LEVELS
    ]
    verdict = _command("notice", f"{verdict_words(judgements)}: {judgements.title}", [tally(judgements)])
    return "".join(f"{line}\n" for line in [*lines, verdict])


def _command(level: str, title: str, lines: list[str]) -> str:
    return f"::{level} title={_property(one_line(title, LONGEST_TITLE))}::{_data(chr(10).join(lines))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


OUTCOMES: dict[State, str] = {"missed": "failure", "void": "error", "inconclusive": "skipped"}


def junit_text(judgements: Judgements) -> str:
    """One ``testsuites`` with one ``testsuite``; where nothing was judged, one testcase that says so as an error."""
    outcomes = Counter(OUTCOMES.get(one.state) for one in judgements.judgements) or Counter({"error": 1})
    totals = {"tests": outcomes.total(), "failures": outcomes["failure"], "errors": outcomes["error"]}
    counts = {key: str(number) for key, number in totals.items()}
    root = ElementTree.Element("testsuites", {"name": "sbd"} | counts)
    title = one_line(judgements.title)
    suite = ElementTree.SubElement(root, "testsuite", {"name": title} | counts | {"skipped": str(outcomes["skipped"])})
    properties = ElementTree.SubElement(suite, "properties")
    runs = {f"run {place}": one_line(run) for place, run in enumerate(judgements.runs, start=1)}
    for name, value in ({"sbd version": __version__, "verdict": verdict_words(judgements)} | runs).items():
        ElementTree.SubElement(properties, "property", {"name": name, "value": value})
    for name, one in zip(names(judgements), judgements.judgements, strict=True):
        _add_case(suite, name, one)
    if not judgements.judgements:
        case = ElementTree.SubElement(suite, "testcase", {"name": "verdict", "classname": "sbd"})
        ElementTree.SubElement(case, "error", {"message": NOTHING_JUDGED, "type": "void"})
    ElementTree.indent(root)
    written: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return written.decode() + "\n"


def _add_case(suite: ElementTree.Element, name: str, one: Judgement) -> None:
    case = ElementTree.SubElement(suite, "testcase", {"name": name, "classname": f"sbd.{one.kind}"})
    if one.state in OUTCOMES:
        message = {"message": one_line(f"{one.word}: {one.reason}"), "type": one.word}
        said = ElementTree.SubElement(case, OUTCOMES[one.state], message)
    else:
        said = ElementTree.SubElement(case, "system-out")
    said.text = "\n".join([one.word, *details(one)])
