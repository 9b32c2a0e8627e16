"""A run whose processes were not measured with the same: void without a word in the record, a weakness with one."""

from __future__ import annotations

import re
from typing import Any

import pytest

from harness.analysis.answer import compare
from harness.errors import UserError
from harness.record.schema import Run
from harness.regression.comparability import refuse_unlike, unlike
from harness.reporting.evidence import health
from harness.reporting.page import render
from tests.helpers.judged_runs import judged
from tests.helpers.two_runs import in_processes, two_arms

RUN = in_processes(two_arms(jitter=0.05, prompts=8), 1.0, 1.02, 0.98)
CLAIMS = ("wall_speedup >= 1", "nfe_speedup >= 1", "accuracy_loss_points <= 1")


def measured_with(run: Run, *weights: str, part: str = "reference", **allowed: Any) -> Run:
    """The run with an identity event for every process, of these weights; ``allowed``: the items of an event that allows."""
    events = [{"event": "identity", "part": part, "process": n, "weights": one, "cpu": None} for n, one in enumerate(weights)]
    events += [{"event": "allowed", "part": part, "process": 1, "items": allowed}] if allowed else []
    return run.model_copy(update={"sessions": [*run.sessions, *events]})


def words(run: Run) -> dict[str, str]:
    """The state and the reason of every claim."""
    return {one.metric: f"{one.state}: {one.reason}" for one in judged(run, *CLAIMS).judgements}


def test_processes_with_other_weights_leave_no_verdict() -> None:
    """Made by hand: sbd itself refuses, or records that it was allowed. No figure of the part is judged, timed or not."""
    assert words(measured_with(RUN, "a", "a", "a")) == words(RUN)
    assert not any(said.startswith("void") for said in words(RUN).values())
    mixed = measured_with(RUN, "a", "b", "a")
    for said in words(mixed).values():
        assert said.startswith(
            "void: part reference: processes of this part were not measured with the same (weights: a, then b)"
        )
    assert "and no --allow is recorded" in render(mixed, compare(mixed))
    with pytest.raises(UserError, match="NEW: part reference: processes of this part were not measured with the same"):
        refuse_unlike(RUN, [mixed], names=("BASE", "NEW"))


def test_what_was_allowed_is_a_weakness_in_words() -> None:
    """Judged, with what differed beside it; an item that was not allowed stays void."""
    mixed = measured_with(RUN, "a", "b", "b", weights={"then": "a", "now": "b"})
    weakness = "; the run was continued under --allow although this differed (weights: a, then b)"
    expected = {metric: re.sub("(?=; as one of)|$", weakness, said, count=1) for metric, said in words(RUN).items()}
    assert words(mixed) == expected
    assert any("under --allow" in line for line in health(compare(mixed)))
    other = measured_with(RUN, "a", "b", "b", cpu={"then": "x", "now": "y"})
    assert {one.partition(":")[0] for one in words(other).values()} == {"void"}


def test_two_runs_with_other_weights_are_not_alike() -> None:
    """The key names them; records that do not tell their weights are not refused for it."""
    base, new = measured_with(RUN, "a", "a", "a"), measured_with(RUN, "b", "b", "b")
    assert [str(one) for one in unlike(base, new)] == ['model.reference.weights: ["a"] in BASE, ["b"] in NEW']
    with pytest.raises(UserError, match="--allow model"):
        refuse_unlike(base, [new])
    assert len(refuse_unlike(base, [new], ["model"])) == 1
    assert unlike(base, base) == unlike(base, RUN) == unlike(RUN, new) == ()


@pytest.mark.parametrize("odd", [7, "text", ["cpu"], None])
def test_odd_events_break_nothing(odd: Any) -> None:
    """Records come from others; what such an event says changes no verdict."""
    events = [
        {"event": "identity", "part": odd, "weights": odd, "drafts": odd},
        {"event": "identity", "weights": {}},
        {"event": "allowed", "part": odd, "items": odd},
        {"event": "allowed", "part": "reference", "items": odd},
    ]
    run = RUN.model_copy(update={"sessions": [*RUN.sessions, *events]})
    assert words(run) == words(RUN) and unlike(run, RUN) == ()
