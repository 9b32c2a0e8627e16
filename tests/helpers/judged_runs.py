"""A claim held against a run."""

from __future__ import annotations

from typing import Literal

from harness.analysis.answer import compare
from harness.analysis.judge.judgement import Judgements
from harness.analysis.judge.verdict import verdict
from harness.record.schema import Run
from harness.scenario.claim_text import read_claim
from harness.scenario.claims import THIS_PROCESS, Claim
from tests.helpers.environments import with_claims


def judged(run: Run, *texts: str, scope: Literal["this process"] | None = THIS_PROCESS) -> Judgements:
    """The verdict on claims of a scenario; synthetic runs have one process, and it is their scope unless said otherwise."""
    claims = tuple(read_claim(text).model_copy(update={"scope": scope}) for text in texts)
    return verdict(compare(run), claims, claiming(run, *claims).header)


def claiming(run: Run, *claims: Claim) -> Run:
    """The run as if its scenario had made these claims."""
    return with_claims(run, *(one.model_dump(mode="json") for one in claims))
