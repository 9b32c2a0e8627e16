"""The one table of metrics: whoever uses a figure finds there what it needs of it."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from harness.analysis.answer import compare
from harness.analysis.figures.arms import TOTALS
from harness.analysis.judge.check import NO_REQUESTS
from harness.scenario.metrics import METRICS, names_of
from tests.helpers import ROOT
from tests.helpers.judged_runs import judged
from tests.helpers.pages import FULL
from tests.helpers.simulated_server import load_run


@cache
def sbd_arm(served: bool) -> Any:
    """The SBD arm of a full run, or of one whose requests were counted."""
    run = load_run([{"requests_per_s": 10.0, "first_token_s": 1.0}]) if served else FULL
    return next(arm for cell in compare(run).cells for arm in cell.arms if not arm.is_ntp)


def test_every_use_finds_its_words() -> None:
    """A page names what is claimed, a gate says how it derives its figures, and each metric has a use."""
    for metric in METRICS.values():
        assert bool(metric.words) == metric.claimed, metric.name
        assert bool(metric.what) == bool(metric.gated), metric.name
        assert metric.claimed or metric.gated or metric.tracked, metric.name
        assert metric.by_default <= metric.tracked, metric.name


@pytest.mark.parametrize("name", names_of(lambda metric: metric.claimed and not metric.of_requests))
def test_what_can_be_claimed_is_derived_and_judged(name: str) -> None:
    """Of a full run every claimed figure is there, by both estimators where it is a mean of ratios, and a claim is answered."""
    metric = METRICS[name]
    bound = "<= 100" if metric.better == "lower" else ">= 0.01"
    (found, *_) = judged(FULL, f"{name} {bound}").judgements
    assert found.metric == name and found.unit == metric.unit and found.reason
    assert found.value.value is not None or name in ("joules_per_token", "lossless", "prediction_error_during_run")
    arm = sbd_arm(served=False)
    own = {"wall_speedup", "identical_to_ntp"}
    assert name in arm.figures or name in own
    assert (name + TOTALS in arm.figures) == metric.averaged or name in own


@pytest.mark.parametrize("name", names_of(lambda metric: metric.of_requests))
def test_figures_over_requests_are_derived_where_a_server_answered(name: str) -> None:
    """And a claim about them in another run says why there are none."""
    arm = sbd_arm(served=True)
    assert name in arm.figures and arm.figures[name].reason != NO_REQUESTS.reason
    (found, *_) = judged(FULL, f"{name} >= 0.01").judgements
    assert found.word == "void" and NO_REQUESTS.reason is not None and NO_REQUESTS.reason in found.reason


def test_docs_name_the_table() -> None:
    """A newcomer is sent to it."""
    assert "scenario/metrics.py" in (ROOT / "docs" / "house.md").read_text(encoding="utf-8")
