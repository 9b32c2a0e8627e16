"""GitHub annotations: workflow commands on standard output, ``::error title=...::message``.

Grammar and escaping: docs.github.com, "Workflow commands for GitHub Actions", and actions/toolkit, core/src/command.ts:
``%``, CR and LF are percent-encoded everywhere, ``:`` and ``,`` in a property as well. GitHub shows ten errors, ten warnings
and ten notices per step and drops the rest, so the gravest come first and the last line is a notice with the count of all.
"""

from __future__ import annotations

from harness.analysis.judgement import Judgements, State
from harness.reporting.exports.plain import one_line
from harness.reporting.exports.wording import details, gravest_first, tally, verdict_words

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
