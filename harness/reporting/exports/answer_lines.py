"""The end of a run in a few lines: speedup, passes, accuracy, baseline, what weakens it, the verdict, what to type next.

Each figure is one of the page's own, in its words. The page has the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from harness import formatting
from harness.analysis.claim_places import has_contender
from harness.analysis.judgement import Judgements
from harness.analysis.results import ArmResult, Cell, Comparison, Highlight
from harness.record.schema import RunHeader
from harness.reporting.answers import Answer, answers
from harness.reporting.cells import Pointers
from harness.reporting.claims_shown import held_claims, whose_claims
from harness.reporting.sentences import baseline, kept, prompted

MOST_SENTENCE = 120
"""Letters of a weakness; the page has it whole."""


def answer_lines(run: Path, comparison: Comparison, header: RunHeader) -> str:
    """At most seven lines: the first part's answer in full, the number of other parts, the verdict, the next command."""
    cards = answers(comparison, header, (), Pointers(comparison))
    asked = [one for one in comparison.answers if has_contender(one, header)]
    first = zip(cards[:1], asked, strict=False)
    lines = [line for card, highlight in first for line in _of_part(card, highlight, comparison, header)]
    if not cards:
        lines.append("answer  none: the scenario has no arm besides NTP")
    for card in cards[1:2]:
        more = f"; {len(cards) - 2} more on the page" if len(cards) > 2 else ""
        figure = "" if card.figure.raw is None else f"{card.figure.text} "
        lines.append(f"also    {card.title}: {figure}{card.unit}{more}")
    _, judged, unread = held_claims(comparison, header)
    lines.append(f"claims  {unread or whose_claims(header, judged)}")
    lines.append(f"next    {_next(run, judged)}")
    return "\n".join(map(formatting.one_line, lines))


def _of_part(card: Answer, highlight: Highlight, comparison: Comparison, header: RunHeader) -> Iterator[str]:
    cell = comparison.summary(highlight.part, highlight.batch_size)
    arm = next((one for one in cell.arms if one.label == highlight.label), None)
    if arm is None or comparison.integrity.void is not None:
        yield f"answer  {card.title}: {comparison.integrity.void or highlight.reason}"
        return
    interval = f" ({card.interval})" if card.interval else ""
    yield f"answer  {arm.label}, {card.title}: {card.figure.text}{',' if card.figure.raw is None else ''} {card.unit}{interval}"
    known = arm.passes_saved.value
    fewer = f"not known: {arm.passes_saved.reason}" if known is None else f"{formatting.ratio(known)} fewer forward passes"
    unknown = arm.accuracy_difference.reason or arm.accuracy.reason
    answers_kept = kept(cell, arm) or f"accuracy not known: {unknown}"
    yield f"passes  {'; '.join(filter(None, (fewer, answers_kept, prompted(cell, arm, header))))}"
    yield f"base    {_baseline(cell, arm)}"
    others = [one for one in card.weaknesses if one != baseline(cell)]
    if others:
        more = f" (and {len(others) - 1} more on the page)" if len(others) > 1 else ""
        yield f"but     {formatting.one_line(others[0], MOST_SENTENCE)}{more}"


def _baseline(cell: Cell, arm: ArmResult) -> str:
    said, rate, best = baseline(cell) or "the part was not timed.", arm.tokens_per_s.value, cell.best_ntp_tokens_per_s
    if rate is None or best is None:
        return said
    return f"{said} {formatting.rate(rate)} tokens/s beside {formatting.rate(best)} of the best NTP."


def _next(run: Path, judged: Judgements) -> str:
    """The command that goes on from here."""
    if judged.state in ("inconclusive", "void"):
        return f"sbd verify {run}   says what would decide it"
    return f'sbd verify {run} --claim "3-5x within 1 point"'
