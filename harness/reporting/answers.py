"""The answers on top of the page: one card per part and batch size with its figure, its claims, why, and what weakens it.

A card is about the highlighted arm; an absent value is replaced by its reason. A weakness stands beside the figure: a slow
baseline, one process only, replayed acceptance, void samples, missing cases. The end of a run in a terminal is the first card
in a few lines, in its words. This module puts values of a comparison into words and computes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from harness import formatting
from harness.analysis.evidence.best_settings import faster
from harness.analysis.results import ArmResult, Cell, Comparison, Highlight, has_contender
from harness.frozen import frozen
from harness.record.same import crowded
from harness.record.schema import RunHeader
from harness.reporting import cells as wording
from harness.reporting import sentences
from harness.reporting.cells import Entry, Mark, Marks, Pointers, ends, shown
from harness.reporting.claims_shown import ClaimShown, Held, claims_shown, whose_claims
from harness.stats.quantity import Quantity


def weaknesses(cell: Cell, arm: ArmResult | None, comparison: Comparison, header: RunHeader) -> tuple[str, ...]:
    """One sentence per weakness, the gravest kind first."""
    kept_up = cell.baseline_check.state == "kept_up"
    check, ceiling = cell.baseline_check, cell.baseline_check.ceiling
    far = "" if ceiling is None or check.far_from_ceiling else ceiling.words  # that stands in the first line
    weak = ["" if kept_up else sentences.baseline(cell), _emulated(cell, header), _sentence(far)]
    quota = cell.timed and not cell.imported and crowded(header.environment, header.written(cell.part).threads)
    weak += map(_sentence, (*cell.imported, *cell.remarks, quota or None))
    weak += () if arm is None else _of_arm(cell, arm)
    for mix in comparison.mixes:
        weak += map(_sentence, (mix.why_void, mix.weakness) if mix.part == cell.part else ())
    for health in comparison.health:
        if health.part == cell.part and health.void:
            rules = "; ".join(f"{words} ({times})" for words, times in health.reasons.items())
            weak.append(f"{health.void} of {health.timed} timed samples are void and left out of every time: {rules}.")
    # Planned cases that left no sample; their outcomes say how they ended.
    here = (cell.part, cell.batch_size)
    cases = [case for case in header.cases if (case.part, case.batch_size) == here and not case.is_check]
    cells = [one for one in comparison.cells if (one.part, one.batch_size) == here]
    by_task = [one for one in cells if not one.is_summary] or cells
    ended = {outcome["case_id"] for outcome in comparison.outcomes}
    ended |= {case_id for one in by_task for arm in one.arms for case_id in arm.case_ids}
    if without := sum(case.case_id not in ended for case in cases):
        weak.append(f"{without} of {len(cases)} cases have no sample yet: the run is not finished.")
    return tuple(filter(None, weak))


def _emulated(cell: Cell, header: RunHeader) -> str:
    """Whether bfloat16 is slow for a reason other than the decoding."""
    case = next((one for one in header.cases if one.part == cell.part), None)
    flags = header.environment.get("isa_flags")
    if case is None or (case.device, case.dtype) != ("cpu", "bfloat16") or flags is None:
        return ""
    if any("bf16" in flag for flag in flags):
        return ""
    return (
        "This CPU has no instructions for bfloat16 products (AVX512-BF16, AMX), so a pass of several tokens costs as much as "
        "several passes of one: dtype: float32 shows what the machine can do."
    )


def _of_arm(cell: Cell, arm: ArmResult) -> Iterator[str]:
    """What weakens the figures of one arm. A side of the speedup that loses its slow samples looks faster."""
    if arm.replayed:
        yield "The acceptance was replayed: times are measured, the number of passes was given, and there are no answers."
    yield _sentence(arm.decode_time_estimated)
    if lost := arm.paired.one_sided:
        yield f"{formatting.count(lost)} prompts were decoded by NTP or by this arm alone, so there is no interval."
    if only := arm.wall_speedup.these_processes_only:
        yield f"The interval is about {only}; another process on the same machine may differ by more."
    if arm.simultaneous is not None:  # it was picked by what it is judged on
        said = f"{arm.label} was picked from {arm.simultaneous.picked_from} arms on these same decodes, which flatters it"
        band = ends(arm.simultaneous.figures["wall_speedup"])
        at_level = f"at a simultaneous 95 % level, which verdicts take, its speedup is {band}"
        yield f"{said}: {at_level if band else 'verdicts take its figures at a simultaneous 95 % level'}."
    if said := cell.void_words(arm):
        yield f"Timed samples by arm: {said}."


def _sentence(words: str | None) -> str:
    return f"{words[0].upper()}{words[1:]}." if words else ""


@frozen
class AnswerCard:
    """One card: a large figure with its unit and basis, the claims, titled paragraphs, weaknesses.

    ``figure`` is an entry as in a table; it has no value where it is a word. ``arm`` is None where none answers.
    """

    highlight: Highlight
    cell: Cell
    arm: ArmResult | None
    title: str
    about: str
    figure: Entry
    unit: str
    interval: str
    claims: list[ClaimShown]
    paragraphs: tuple[tuple[str, str], ...]
    weaknesses: tuple[str, ...]


def answers(comparison: Comparison, header: RunHeader, held: Sequence[Held], pointers: Pointers) -> list[AnswerCard]:
    """One card per part and batch size with a planned arm besides NTP, in the order of the scenario."""
    cards, void = list[AnswerCard](), comparison.integrity.void
    for highlight in (one for one in comparison.answers if has_contender(one, header)):
        cell = comparison.summary(highlight.part, highlight.batch_size)
        arm, about = cell.arm(highlight.label), f"{wording.model(cell)} on {wording.machine(header, cell.device)}"
        if void is not None or arm is None:
            figure, unit, interval = Entry(text="Void" if void else "No answer"), "no answer" if void else "", ""
            told: tuple[tuple[str, str], ...] = (("No answer", _sentence(void or f"nothing can be said: {highlight.reason}")),)
        else:
            about = f"{wording.arm(arm)}; {about}"
            figure, unit, interval = _figure(highlight, cell, arm, pointers)
            fast = sentences.baseline(cell) if cell.baseline_check.state == "kept_up" else ""
            more = (("Prompts", _sentence(sentences.prompted(cell, arm, header))), ("Baseline", fast))
            told = (*sentences.paragraphs(cell, arm, highlight), *(one for one in more if one[1]))
        card = AnswerCard(
            highlight=highlight,
            cell=cell,
            arm=arm,
            title=f"{cell.part}, {cell.size_words}",
            about=about,
            figure=figure,
            unit=unit,
            interval=interval,
            claims=claims_shown([one for one in held if one.place == (cell.part, str(cell.batch_size))], pointers),
            paragraphs=told,
            weaknesses=weaknesses(cell, arm, comparison, header),
        )
        cards.append(card)
    return cards


def _figure(highlight: Highlight, cell: Cell, arm: ArmResult, pointers: Pointers) -> tuple[Entry, str, str]:
    """The speed of the arm in large type, its unit and its interval; words where it is no answer."""
    speed = arm.wall_speedup if cell.timed else arm.passes_saved
    read_by: Mark = "measured" if cell.timed else "counted"
    marks: Marks = (read_by, "replayed") if arm.replayed else (read_by,)
    if highlight.basis == "none":  # a speed that costs accuracy is not an answer: the large type is not that speed
        lost, clock = arm.accuracy_difference.value, "by the clock" if cell.timed else "fewer passes"
        cost = "" if lost is None else f" and changes accuracy by {formatting.points(lost)}"
        fastest = "" if speed.value is None else f"the fastest is {formatting.ratio(speed.value)} {clock}{cost}"
        return Entry(text="No arm keeps NTP's accuracy", marks=marks), fastest, ""
    if speed.value is None:
        return Entry(text="No wall-clock figure", marks=marks), speed.reason or "", ""
    words = (_unit(speed, cell, arm), cell.baseline_check.far_from_ceiling, sentences.lossless(arm), faster(cell, arm))
    ground = sentences.ground(speed, cell) if cell.timed else ""
    if cell.timed and arm.request_speedup.value is not None:
        ground += f"; whole request {formatting.ratio(arm.request_speedup.value)}"
    return shown(speed, formatting.ratio, pointers.of(speed), marks=marks), ", ".join(filter(None, words)), ground


def _unit(speed: Quantity, cell: Cell, arm: ArmResult) -> str:
    if not cell.timed:
        return "fewer forward passes; not timed"
    named, given = sentences.OF_BASELINE.get(cell.baseline_check.state, ("", ""))[1], ""
    if named:
        return named
    if arm.replayed and (passes := arm.passes_saved.value) is not None:
        given = f", made to need {formatting.ratio(passes)} fewer passes (replayed: given, not found)"
    if speed.low is not None and speed.high is not None and speed.low <= 1 <= speed.high:
        return f"the speed of NTP{given}: no clear difference"
    return f"faster by the clock{given}" if (speed.value or 0) > 1 else f"the speed of NTP{given}: slower by the clock"


MOST_SENTENCE = 120
"""Letters of a weakness; the page has it whole."""


def answer_lines(run: Path, comparison: Comparison, header: RunHeader) -> str:
    """At most seven lines: the first part's answer in full, the number of other parts, the verdict, the next command."""
    cards = answers(comparison, header, (), Pointers(comparison))
    lines = [*_of_card(cards[0], comparison, header)] if cards else ["answer  none: the scenario has no arm besides NTP"]
    for card in cards[1:2]:
        more = f"; {len(cards) - 2} more on the page" if len(cards) > 2 else ""
        figure = "" if card.figure.raw is None else f"{card.figure.text} "
        lines.append(f"also    {card.title}: {figure}{card.unit}{more}")
    lines.append(f"claims  {comparison.unread or whose_claims(header, comparison.judgements)}")
    open_ = comparison.judgements.state in ("inconclusive", "void")
    asking = "  says what would decide it" if open_ else '--claim "3-5x within 1 point"'
    lines.append(f"next    sbd verify {run} {asking}")
    return "\n".join(map(formatting.one_line, lines))


def _of_card(card: AnswerCard, comparison: Comparison, header: RunHeader) -> Iterator[str]:
    cell, arm, void = card.cell, card.arm, comparison.integrity.void
    if arm is None or void is not None:
        yield f"answer  {card.title}: {void or card.highlight.reason}"
        return
    interval = f" ({card.interval})" if card.interval else ""
    yield f"answer  {arm.label}, {card.title}: {card.figure.text}{',' if card.figure.raw is None else ''} {card.unit}{interval}"
    known = arm.passes_saved.value
    fewer = f"not known: {arm.passes_saved.reason}" if known is None else f"{formatting.ratio(known)} fewer forward passes"
    unknown = arm.accuracy_difference.reason or arm.accuracy.reason
    answers_kept = sentences.kept(cell, arm) or f"accuracy not known: {unknown}"
    yield f"passes  {'; '.join(filter(None, (fewer, answers_kept, sentences.prompted(cell, arm, header))))}"
    rate, best = arm.tokens_per_s.value, cell.best_ntp_tokens_per_s
    base = sentences.baseline(cell) or "the part was not timed."
    if rate is not None and best is not None:
        base += f" {formatting.rate(rate)} tokens/s beside {formatting.rate(best)} of the best NTP."
    yield f"base    {base}"
    others = [one for one in card.weaknesses if one != sentences.baseline(cell)]
    if others:
        more = f" (and {len(others) - 1} more on the page)" if len(others) > 1 else ""
        yield f"but     {formatting.one_line(others[0], MOST_SENTENCE)}{more}"
