"""The verdict on claims: confirmed, refuted, inconclusive or void, with the interval and the reason.

A claim of several bounds is confirmed where all are met, and refuted where any is missed. A run is held to the claims that were
asked for, else those of its scenario, else the program's question, the paper's figures and our limits.

Each has its state at its own level. Beside it stands whether a confirmed claim stays so together with the others (Holm).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from harness.analysis.judge.check import judge, judged_figure, state_of
from harness.analysis.judge.highlight import ClaimedCell, Place, places
from harness.analysis.judge.judgement import GRAVEST_FIRST, Judgement, Judgements, by_records
from harness.analysis.results import Comparison
from harness.errors import RecordError
from harness.record.schema import RunHeader
from harness.scenario.claim_text import OURS, PAPER, load_claims, read_claim
from harness.scenario.claims import Claim, Claims

QUESTION = read_claim("3-5x faster").model_copy(update={"name": "3-5x faster by the clock", "primary": True})
"""What the program asks of a run without claims of its own, before the paper's figure and our limits."""


def verdict(comparison: Comparison, claims: Claims, header: RunHeader) -> Judgements:
    """Judge every claim at every cell that it is about, in the order of the claims.

    A claim of the scenario was made before the run; an imported run was there before every claim.
    """
    before = {_content(claim): claim.primary for claim in (() if header.imported else recorded_claims(header)[0])}
    asked = [(claim, place) for claim in claims for place in places(claim, comparison, header, _content(claim) in before)]
    found = [_judgement(claim, place, comparison) for claim, place in asked]
    for primary in (True, False):
        _together(asked, found, [i for i, (claim, _) in enumerate(asked) if before.get(_content(claim), False) is primary])
    judged = Judgements(
        title=f"claims about {header.scenario_name}",
        runs=(comparison.run_id,),
        judgements=tuple(found),
        claims=tuple(claim for claim, _ in asked),
    )
    return by_records(judged, [comparison.integrity])


def _content(claim: Claim) -> object:
    """Equal of two claims that say the same, whatever they are called."""
    return claim.bounds, claim.where, claim.scope


def _together(asked: Sequence[tuple[Claim, Place]], found: list[Judgement], family: Sequence[int]) -> None:
    """Say in ``found`` which confirmed claims of a family stay so at a level that holds for all of it.

    Step-down: at the level of all of the family; then, while some stay confirmed, at that of those left. Each bound of a claim
    is judged at the whole level, because the claim needs them all. Source: S. Holm, Scand. J. Stat. 6 (1979) 65.
    """
    met, held = [i for i in family if found[i].state == "met" and len(family) > 1], set[int]()
    while more := {i for i in met if i not in held and _stays(*asked[i], len(family) - len(held))}:
        held |= more
    for i in met:
        one, stays = found[i], "confirmed" if i in held else "not shown"
        words = f"as one of {len(family)} verdicts: {stays} at the family-wise 95 %"
        found[i] = replace(one, together=i in held, reason=f"{one.reason}; {words}", levels=(*one.levels, words))


def _stays(claim: Claim, place: Place, family: int) -> bool:
    return isinstance(place, ClaimedCell) and all(
        state_of(bound, judged_figure(place, bound, family)) == "met" for bound in claim.bounds
    )


def _judgement(claim: Claim, place: Place, comparison: Comparison) -> Judgement:
    """The bounds' answers as one: that of the first bound, or of the one that decides a claim of several metrics."""
    findings = [judge(bound, place, comparison, claim.scope) for bound in claim.bounds]
    gravest = next(state for state in GRAVEST_FIRST if any(one.state == state for one in findings))
    deciding = [one for one in findings if one.state == gravest]
    return replace(
        findings[0] if claim.metric is not None else deciding[0],
        state=gravest,
        bound=_bound_words(claim),
        reason=_reason(findings),
        remedy="; ".join(dict.fromkeys(one.remedy for one in deciding if one.remedy)) or None,
    )


def _reason(findings: Sequence[Judgement]) -> str:
    """The reason of a single bound; of several, each with the metric and its outcome before it."""
    if len({one.reason for one in findings}) == 1:
        return findings[0].reason
    return " | ".join(f"{one.metric} {one.word}: {one.reason}" for one in findings)


def _bound_words(claim: Claim) -> str:
    """The claim as a bound in words."""
    several = len(claim.bounds) > 1
    said = " and ".join(f"{bound.metric} {bound.words}" if several else bound.words for bound in claim.bounds)
    beside = "; ".join(text for text in (claim.name, claim.source) if text)
    return f"{said} ({beside})" if beside else said


def claims_for(header: RunHeader, texts: Sequence[str], files: Sequence[Path | str]) -> Claims:
    """Claims in text and in files, in this order; else the recorded ones of the scenario, those about the clock first.

    Raises:
        UserError, ScenarioError: a claim or a file that cannot be read.
        RecordError: the record's own claims cannot be read.
    """
    asked = tuple(read_claim(text) for text in texts) + tuple(claim for file in files for claim in load_claims(file))
    if asked:
        return asked
    try:
        recorded = TypeAdapter(tuple[Claim, ...]).validate_python(header.scenario.get("claims") or ())
    except ValidationError as error:
        mistakes = error.error_count()
        raise RecordError(f"{header.run_id}: the claims of the record cannot be read ({mistakes} mistakes)") from error
    clock_first = sorted(recorded, key=lambda claim: claim.metric != QUESTION.metric)
    return tuple(clock_first) or _own_claims()


@cache
def _own_claims() -> Claims:
    return (QUESTION, *load_claims(PAPER), *load_claims(OURS))


def recorded_claims(header: RunHeader) -> tuple[Claims, str | None]:
    """The claims of the record; the program's question, with the reason, where they cannot be read."""
    try:
        return claims_for(header, (), ()), None
    except RecordError as error:
        return (QUESTION,), str(error)
