"""What `sbd run --until decided` looks at between two processes: claims about the clock, judged as the report does it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from harness.analysis.answer import Derived
from harness.analysis.judge.check import SHOW_BASELINE
from harness.analysis.judge.judgement import Judgement
from harness.formatting import ratio
from harness.record.schema import Looks, Run
from harness.scenario.claims import Claim
from harness.stats.looks import nominal_levels, processes_needed


def look(run: Run, whole: int) -> tuple[bool, list[str]]:
    """Whether every claim about the clock is decided or void after so many whole processes; a line for each.

    What waits for generate() alone counts as decided: that is in the first process, and more of them do not help. Before the
    first look nothing is decided. A claim that the last look would hardly decide is told, with what it would take.
    """
    looks = run.header.looks
    assert looks is not None  # only such a run is looked at
    judged = Derived(run.model_copy(update={"sessions": [*run.sessions, {"event": "end"}]})).comparison.judgements
    asked = [
        (claim, one)
        for claim, one in zip(judged.claims, judged.judgements, strict=True)
        if any(bound.definition.clock for bound in claim.bounds) and run.header.written(one.cell.get("part", "")).own_prompts
    ]
    if whole < looks.first:
        return False, [words for claim, one in asked for words in _hardly(claim, one, looks)]
    lines = [f"look after {whole} of up to {looks.last} processes: {_found(one)}" for _, one in asked]
    return all(one.state != "inconclusive" or one.remedy == SHOW_BASELINE for _, one in asked), lines


def _found(one: Judgement) -> str:
    value, ends = one.value, ""
    if value.low is not None and value.high is not None:
        ends = f" (95 % {value.low:.3g}\u2013{value.high:.3g})"
    shown = "no figure" if value.value is None else f"{value.value:.3g}{ends}"
    return f"{one.metric} {shown}, {one.bound}: {one.word}; {one.subject}"


def _hardly(claim: Claim, one: Judgement, looks: Looks) -> Iterator[str]:
    limits = [limit for bound in claim.bounds if bound.metric == one.metric for limit in bound.limits if limit]
    value, level = one.value.value, nominal_levels(looks.first, looks.last, looks.error)[looks.last]
    if one.state == "inconclusive" and limits and value:
        bound = min(limits, key=lambda limit: abs(math.log(value / limit)))
        needed = processes_needed(one.value, bound, level)
        if needed is None or needed > looks.last:
            takes = f"{needed:,}" if needed else "more than 1,000"
            words = f"will hardly be decided at {bound:g}: {takes} processes would, {looks.last} may come"
            yield f"{one.metric} {ratio(value)} {words}"
