"""Whom the first line is about, and one list of claims wherever a run is told."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import pytest

from harness.analysis.answer import compare
from harness.analysis.judge.verdict import claims_for, verdict
from harness.record.schema import Run
from harness.record.written import WrittenArm
from harness.reporting.answers import answer_lines
from harness.reporting.claims_shown import headlines, held_claims
from harness.reporting.page import render
from harness.scenario.claim_text import read_claim
from tests.helpers import synthetic_run as synthetic
from tests.helpers.command import Cli
from tests.helpers.environments import with_cases, with_header
from tests.helpers.two_runs import stored

OURS, LOOKUP = "SBD k=16 γ=0.1", "prompt lookup n=4"


def with_rival(**scenario: Any) -> Run:
    """An arm of SBD beside prompt lookup, which is faster."""
    lookup = synthetic.Arm(label=LOOKUP, gamma=0.6, passes_per_block=2)
    run = synthetic.build(arms=(*synthetic.ARMS[:2], lookup))
    rival = WrittenArm.model_validate({"method": "prompt_lookup", "draft_tokens": 4, "temperature": 0.0})
    run = with_cases(run, lambda case: {"arm": rival} if case.label == LOOKUP else {})
    return with_header(run, scenario=run.header.scenario | scenario)


def test_the_only_arm_that_is_no_rival_is_answered_first() -> None:
    """Terminal, card and headline are about it, the faster rival is a clause, and no claim takes it for a pick."""
    run = with_rival()
    found = compare(run)
    assert (found.answers[0].label, found.answers[0].asked, found.answers[0].picked_from) == (OURS, True, 1)
    speeds = {arm.label: arm.wall_speedup.value for arm in found.cells[0].arms}
    assert speeds[LOOKUP] > speeds[OURS]
    clause = f"{LOOKUP} is faster, {speeds[LOOKUP]:.2f}x"
    first = answer_lines(Path("r"), found, run.header).splitlines()[0]
    assert first.startswith(f"answer  {OURS}, ") and clause in first
    held = held_claims(found.judgements)
    assert {one.judgement.cell["arm"] for one in held} == {OURS}
    [headline] = headlines(held, found)
    assert OURS in headline.found and headline.found.endswith(clause)
    assert clause in html.unescape(render(run, found))


def test_a_claim_about_an_arm_says_what_is_faster() -> None:
    """Of the slower arm alone; two arms that are no rivals are picked from as ever."""
    run = with_rival()
    reasons = {
        arm: verdict(compare(run), (read_claim(f"wall_speedup >= 1 at arm='{arm}'"),), run.header).judgements[0].reason
        for arm in (OURS, LOOKUP)
    }
    assert f"{LOOKUP} is faster" in reasons[OURS] and "is faster" not in reasons[LOOKUP]
    both = synthetic.build()
    assert compare(both).answers[0].picked_from == 2 and not compare(both).answers[0].asked


@pytest.mark.parametrize(
    "claims",
    [
        [],
        [
            {"metric": "accuracy_loss_points", "max": 1.0},
            {"metric": "wall_speedup", "min": 2.0},
            {"metric": "nfe_speedup", "min": 2.0},
        ],
    ],
)
def test_the_claims_are_one_list(cli: Cli, tmp_path: Path, claims: list[dict[str, Any]]) -> None:
    """Page, terminal and verify: as many, in the same words, the clock's first; claims that nobody made are not counted."""
    run = with_rival(claims=claims)
    found = compare(run)
    held, overall = held_claims(found.judgements), found.judgements
    assert [one.judgement for one in held] == list(overall.judgements) and held[0].judgement.metric == "wall_speedup"
    assert overall == verdict(found, claims_for(run.header, (), ()), run.header)
    page, lines = render(run, found), answer_lines(Path("r"), found, run.header).splitlines()
    [line] = [one for one in lines if one.startswith("claims")]
    assert page.count('<li class="claim') == len(held) == (len(claims) or 4)
    words = [one.judgement.word for one in held]
    gravest = [word for word in ("refuted", "void", "inconclusive", "confirmed") if word in words]
    tally = ", ".join(f"{words.count(word)} {word}" for word in gravest)
    assert (line == f"claims  this scenario's own: {tally}") == bool(claims) and (tally in page) == bool(claims)
    cli("verify --json", str(stored(run, tmp_path / "r")))
    told = json.loads(cli.out)["judgements"]
    assert [(one["metric"], one["word"]) for one in told] == [(one.judgement.metric, one.judgement.word) for one in held]
