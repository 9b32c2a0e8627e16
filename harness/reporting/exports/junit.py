"""JUnit XML: what Jenkins, GitLab, Azure and most others show as test results.

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

from collections import Counter
from xml.etree import ElementTree

from harness import __version__
from harness.analysis.judgement import Judgement, Judgements, State
from harness.reporting.exports.plain import one_line
from harness.reporting.exports.wording import NOTHING_JUDGED, details, names, verdict_words

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
