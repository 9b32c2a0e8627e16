"""The first line of a page and of a run in the gallery: what was asked, the verdict on it, the figure and the answers' state.

What is asked is how much faster: the scenario's own claim about the clock, else whether it is 3-5x. It has the same verdict,
interval and arm as its card below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness import formatting
from harness.analysis.judgement import State
from harness.analysis.results import ArmResult, Comparison
from harness.reporting.claims_shown import Held
from harness.reporting.sentences import lossless

ASKED = "wall_speedup"
TIMELESS = "nfe_speedup"
"""Asked of a part without a clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """``state`` and ``word`` of the verdict; ``asked`` before them, ``found`` behind them."""

    asked: str
    state: State
    word: str
    found: str


def headlines(held: Sequence[Held], comparison: Comparison) -> list[Headline]:
    """One per part and batch size that has a claim about its speed, in the order of the cards."""
    places = dict.fromkeys(one.place for one in held)
    return [_headline(asked, comparison) for place in places if (asked := _asked([one for one in held if one.place == place]))]


def tally_of(held: Sequence[Held]) -> str:
    """How many claims the cards show, by verdict: ``8 claims: 1 confirmed, 2 refuted``."""
    words = [one.judgement.word for one in held]
    counted = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    return f"{len(words)} claim{'s' if len(words) != 1 else ''}: {counted}"


def _asked(held: Sequence[Held]) -> Held | None:
    """The claim about the clock; that about passes where a clock was not there to judge it."""
    found = [one for metric in (ASKED, TIMELESS) for one in held if one.judgement.metric == metric]
    return next((one for one in found if one.judgement.value.value is not None), found[0] if found else None)


def _headline(one: Held, comparison: Comparison) -> Headline:
    judged, cell = one.judgement, one.judgement.cell
    places = [
        found for found in comparison.cells
        if found.is_summary and (found.part, str(found.batch_size)) == (cell.get("part"), cell.get("batch_size"))
    ]  # fmt: skip
    arms = [arm for found in places for arm in found.arms]
    arm = next((arm for arm in arms if arm.label == cell.get("arm")), None)
    value, parts = judged.value, list[str]()
    if value.value is not None:
        ends = ""
        if value.low is not None and value.high is not None:
            ends = f" ({formatting.figure(value.low, 3)}\u2013{formatting.figure(value.high, 3)})"
        fewer = "" if judged.metric == ASKED else " fewer passes, not timed"
        parts.append(f"{formatting.ratio(value.value)}{ends}{fewer}")
    if arm is not None:
        parts += [arm.label, *_answers(arm, next((one for one in arms if one.is_ntp), None))]
    if judged.state == "void":
        parts.append(judged.reason.partition(";")[0])
    return Headline(asked=one.name, state=judged.state, word=judged.word, found=", ".join(parts))


def _answers(arm: ArmResult, ntp: ArmResult | None) -> list[str]:
    """What is known of the answers: NTP's own, right, or given."""
    same, right = arm.identical_to_ntp, arm.accuracy
    if arm.replayed:
        return ["acceptance replayed, no answers"]
    if arm.served is not None and arm.served.partings is not None:
        parted = arm.served.partings
        told = f"{parted.errors} of {parted.compared} answers part from NTP's by an error"
        return [told + (f", {parted.unclassified} unclassed" if parted.unclassified else "")]
    if same.value is not None and (arm.lossless or same.value == 1):
        return [*filter(None, [lossless(arm)]), f"output identical to NTP's on {round(same.value * same.n)} of {same.n}"]
    if right.value is None:
        return []
    beside = "" if ntp is None or ntp.accuracy.value is None else f", NTP's {formatting.percent(ntp.accuracy.value)}"
    return [f"{formatting.percent(right.value)} of the answers right{beside}"]
