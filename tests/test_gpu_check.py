"""The GPU check without a GPU: what it would run is valid, and nothing that did not run is passed over."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from benchmarks import gpu_check
from harness.plan import make_plan
from harness.record import CaseOutcome
from harness.scenario import Scenario
from tests import synthetic_run as synthetic


@pytest.mark.parametrize(("dry", "cells"), [(True, 6), (False, 12)])
def test_its_scenario_is_valid_and_its_cells_share_the_weights(dry, cells):
    """Contexts times batch sizes, NTP and four block sizes each, all on one engine."""
    plan = make_plan(Scenario.model_validate(gpu_check.scenario(dry)))
    arms = [case for case in plan.cases if not case.is_check]
    assert len(arms) == cells * 5
    assert len({str(case.part.engine) for case in arms}) == 1


def test_every_arm_is_listed_with_what_became_of_it():
    """One measured, one that did not fit, one that the deadline cut off."""
    part = synthetic.Part()
    fast, faster = (synthetic.case(part, arm, "word_problems").case_id for arm in synthetic.ARMS[1:])
    gone = CaseOutcome(case_id=fast, outcome="does_not_fit", reason="too big")
    held = synthetic.build(part, without=frozenset({fast, faster}), outcomes=(gone,))
    states = {row.arm: row.state for row in gpu_check.rows(held)}
    assert states == {
        "NTP": "measured, 8 samples",
        "SBD k=16 γ=0.1": "does_not_fit: too big",
        "SBD k=16 γ=0.6": "not run: the time was up",
    }


def test_the_pass_shown_is_a_deciding_pass_of_the_arms_own_width():
    """Put in: a 16-token pass costs 1.3 one-token passes; the 32-token pass that commits is another one."""
    [ntp, first, _] = gpu_check.rows(synthetic.build(synthetic.Part()))
    assert ntp.over_one_token == pytest.approx(1.0)
    assert first.over_one_token == pytest.approx(1.3)


def test_the_engine_writes_the_tokens_of_the_plain_session():
    """The check that a GPU will run, on this CPU."""
    assert gpu_check.exactness("cpu") == {"ntp": True, "lockstep": True, "ragged": True}
