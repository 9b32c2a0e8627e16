"""Two stored runs, gated: each is read into figures once, and a speedup that fell says why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from harness.analysis.judge.judgement import Judgements
from harness.record.schema import Run
from harness.regression.gate import judge
from harness.regression.gate.judge import GateOptions, gate_runs
from tests.helpers.two_runs import in_processes, slower, two_arms

RUN = two_arms(jitter=0.05)
LUCK = (1.0, 1.002, 0.997, 1.001, 0.999, 1.003, 0.998, 1.0005, 0.9985, 1.0015)


def gated(base: Run, new: Run) -> Judgements:
    """The answers, on a machine whose noise nobody measured."""
    return gate_runs(base, new, ("a", "b"), GateOptions(), lambda header: {})


def test_each_run_is_read_into_figures_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of either side, and the counts of both."""
    made = Counter[str]()

    def counting(name: str) -> Callable[..., Any]:
        maker = getattr(judge, name)

        def make(*given: Any) -> Any:
            made[name] += 1
            return maker(*given)

        return make

    for name in ("processes_of", "judge_counted"):
        monkeypatch.setattr(judge, name, counting(name))
    found = gated(in_processes(RUN, *LUCK[:3]), in_processes(RUN, *LUCK[3:6]))
    assert made == {"processes_of": 2, "judge_counted": 1} and found.runs == ("a", "b")


def test_a_speedup_that_fell_says_why() -> None:
    """The arm's own time grew by a tenth, NTP's did not; what passed needs no reason."""
    found = gated(in_processes(RUN, *LUCK), slower(in_processes(RUN, *LUCK[::-1]), 1.1, "sbd"))
    (speedup,) = (judged for judged in found.judgements if judged.metric == "wall_speedup")
    assert speedup.state == "missed" and "the speedup fell because the arm itself became slower" in speedup.reason
    alike = gated(in_processes(RUN, *LUCK), in_processes(RUN, *LUCK[::-1]))
    assert not any("the speedup" in judged.reason for judged in alike.judgements)
