"""Judgements for reviewers and CI: Markdown, GitHub annotations and JUnit XML.

Markdown is for a job summary ($GITHUB_STEP_SUMMARY) or a comment on a pull or merge request. Source: GitHub Flavored Markdown
0.29 (tables 4.10, escapes 6.1, entities 6.2, raw HTML 6.10). The first line is a comment that depends on the title only, so a
bot finds its own comment and rewrites it. Text is escaped: it makes no tag, link, picture, column or notification.

GitHub annotations: workflow commands on standard output, ``::error title=...::message``. Source: docs.github.com, "Workflow
commands for GitHub Actions", and actions/toolkit, core/src/command.ts. ``%``, CR and LF are percent-encoded everywhere, ``:``
and ``,`` in a property as well. GitHub shows ten errors, ten warnings and ten notices per step and drops the rest. So the
gravest come first, and the last line is a notice with the count of all.

JUnit XML, for Jenkins, GitLab, Azure and most others: elements and attributes of the Jenkins xunit plugin's junit-10.xsd.
GitLab's "unit test report" reads all of them (name, classname; failure, error, skipped with message; system-out). It has one
testcase per judgement:

* missed: ``failure``, the program under test did not do what was asked.
* void: ``error``, JUnit's word for a test that could not be carried out; it must not look green.
* inconclusive: ``skipped``, because JUnit has no third outcome; it is neither green nor red, and its message is shown.
* met: no child element; the figures stand in ``system-out``.

The exit code (``--inconclusive``) decides what an inconclusive verdict does to a build. A judgement has no ``time``, because
it is not timed and 0 would be a figure.
"""

from __future__ import annotations

import re
from collections import Counter
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from harness import __version__
from harness.analysis.judge.judgement import Judgements, State
from harness.formatting import one_line
from harness.reporting.exports.wording import HEADS, NOTHING_JUDGED, details, gravest_first, named, row, tally, verdict_words

MARKER = "sbd judgements"
LONGEST = 60_000
"""Characters; GitHub refuses a comment with more than 65,536."""
LONGEST_TEXT = 600

# Markdown's inline characters. Those that split a table or HTML become entities, which hold in every renderer; a backslash
# does not.
_SPECIAL = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_[]~$"} | {"|": "&#124;", "<": "&lt;", ">": "&gt;", "&": "&amp;"})
# What GitHub looks for in the finished page, where a backslash is gone: @name, #123, bare addresses, :emoji:. A zero-width
# character breaks them up.
_CALLS = re.compile(r"(?<=@)(?=\S)|(?<=#)(?=\d)|(?<=:)(?=[\w/+-])|(?<=www)(?=\.)", re.IGNORECASE)


def markdown_text(judgements: Judgements) -> str:
    """Marker, verdict line, table (gravest first), remedies. Rows that do not fit a comment are only counted."""
    ordered = gravest_first(judgements)
    head = f"{marker(judgements.title)}\n\n**{escaped(verdict_words(judgements))}**: {escaped(judgements.title)}: "
    head += f"{escaped(tally(judgements))}\n"
    foot = "\nRuns:\n\n" + "".join(f"- run: {escaped(run)}\n" for run in judgements.runs) if judgements.runs else ""
    rows, remedies, room = [], [], LONGEST - len(head) - len(foot)
    for one in ordered:
        line = f"| {' | '.join(map(escaped, row(one)))} |\n"
        # The fixed word comes first, because text that starts with ``- `` opens a nested list.
        remedy = f"- {one.word}: {escaped(one.metric)} of {escaped(one.subject)}: {escaped(one.remedy or '')}\n"
        room -= len(line) + (len(remedy) if one.remedy else 0)
        if room < 0:
            break
        rows.append(line)
        remedies += [remedy] if one.remedy else []
    table = ["| " + " | ".join(HEADS) + " |\n", "|" + "---|" * len(HEADS) + "\n", *rows] if rows else []
    left = len(ordered) - len(rows)
    cut = f"\n{left} more are left out here; the JSON and JUnit files hold all.\n" if left else ""
    decide = "\nTo decide:\n\n" + "".join(remedies) if remedies else ""
    return head + ("\n" if table else "") + "".join(table) + cut + decide + foot


def escaped(text: str) -> str:
    """``text`` as Markdown that only shows it."""
    return _CALLS.sub("\u200b", one_line(text, LONGEST_TEXT).strip()).translate(_SPECIAL)


def marker(title: str) -> str:
    """The first line: an HTML comment that no title can end (HTML standard, 13.1.6: no ``-->``, ``--!>`` or leading ``>``)."""
    return f"<!-- {MARKER}: {re.sub('[<>-]+', '-', one_line(title, LONGEST_TEXT))} -->"


LEVELS: dict[State, str] = {"missed": "error", "void": "error", "inconclusive": "warning"}
"""A met judgement has no annotation."""
LONGEST_TITLE = 200


def github_text(judgements: Judgements) -> str:
    """A line per judgement that is not met, gravest first, then one notice with the verdict."""
    lines = [
        _command(LEVELS[one.state], f"{one.word}: {one.metric}", [one_line(one.subject), *details(one)])
        for one in gravest_first(judgements)
        if one.state in LEVELS
    ]
    verdict = _command("notice", f"{verdict_words(judgements)}: {judgements.title}", [tally(judgements)])
    return "".join(f"{line}\n" for line in [*lines, verdict])


def _command(level: str, title: str, lines: list[str]) -> str:
    said, about = (
        text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
        for text in ("\n".join(lines), one_line(title, LONGEST_TITLE))
    )
    return f"::{level} title={about.replace(':', '%3A').replace(',', '%2C')}::{said}"


OUTCOMES: dict[State, str] = {"missed": "failure", "void": "error", "inconclusive": "skipped"}


def junit_text(judgements: Judgements) -> str:
    """One ``testsuites`` with one ``testsuite``; with no judgement, one testcase that is an error."""
    outcomes = Counter(OUTCOMES.get(one.state) for one in judgements.judgements) or Counter({"error": 1})
    totals = {"tests": outcomes.total(), "failures": outcomes["failure"], "errors": outcomes["error"]}
    counts = {key: str(number) for key, number in totals.items()}
    root = Element("testsuites", {"name": "sbd"} | counts)
    title = one_line(judgements.title)
    suite = SubElement(root, "testsuite", {"name": title} | counts | {"skipped": str(outcomes["skipped"])})
    properties = SubElement(suite, "properties")
    runs = {f"run {place}": one_line(run) for place, run in enumerate(judgements.runs, start=1)}
    for name, value in ({"sbd version": __version__, "verdict": verdict_words(judgements)} | runs).items():
        SubElement(properties, "property", {"name": name, "value": value})
    for name, one in named(judgements).items():
        case = SubElement(suite, "testcase", {"name": name, "classname": f"sbd.{one.kind}"})
        if one.state in OUTCOMES:
            message = {"message": one_line(f"{one.word}: {one.reason}"), "type": one.word}
            outcome = SubElement(case, OUTCOMES[one.state], message)
        else:
            outcome = SubElement(case, "system-out")
        outcome.text = "\n".join([one.word, *details(one)])
    if not judgements.judgements:
        case = SubElement(suite, "testcase", {"name": "verdict", "classname": "sbd"})
        SubElement(case, "error", {"message": NOTHING_JUDGED, "type": "void"})
    indent(root)
    written: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return written.decode() + "\n"
