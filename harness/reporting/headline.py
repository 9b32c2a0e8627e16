"""The first line of a page and of a run in the gallery: what was asked, the verdict on it, the figure and the answers' state.

What is asked is how much faster: the scenario's own claim about the clock, else whether it is 3-5x. It has the same verdict,
interval and arm as its card below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness import formatting
from harness.analysis.best_settings import faster
from harness.analysis.judgement import State
from harness.analysis.results import Comparison
from harness.reporting.claims_shown import Held
from harness.reporting.sentences import kept

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


def _asked(held: Sequence[Held]) -> Held | None:
    """The claim about the clock; that about passes where a clock was not there to judge it."""
    found = [one for metric in (ASKED, TIMELESS) for one in held if one.judgement.metric == metric]
    return next((one for one in found if one.judgement.value.value is not None), found[0] if found else None)


def _headline(one: Held, comparison: Comparison) -> Headline:
    judged, value, parts = one.judgement, one.judgement.value, list[str]()
    if value.value is not None:
        ends = ""
        if value.low is not None and value.high is not None:
            ends = f" ({formatting.figure(value.low, 3)}\u2013{formatting.figure(value.high, 3)})"
        fewer = "" if judged.metric == ASKED else " fewer passes, not timed"
        parts.append(f"{formatting.ratio(value.value)}{ends}{fewer}")
    for cell in comparison.cells:
        for arm in cell.arms if cell.is_summary and (cell.part, str(cell.batch_size)) == one.place else ():
            if arm.label == judged.cell.get("arm"):
                parts += filter(None, (arm.label, kept(cell, arm), faster(cell, arm)))
    if judged.state == "void":
        parts.append(judged.reason.partition(";")[0])
    return Headline(asked=one.name, state=judged.state, word=judged.word, found=", ".join(parts))
