"""The verdicts on the published runs, held against the samples as they stand in the files."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from harness.analysis.judge.judgement import to_json
from harness.analysis.judge.verdict import verdict
from harness.scenario.claim_text import load_claims
from tests.helpers.judged_runs import judged
from tests.helpers.published import compared, published


def test_the_papers_claims_on_the_published_quickstart() -> None:
    """Fewer passes are confirmed and the clock falls short; 30 problems do not show that accuracy stays within a point."""
    run = published("quickstart")
    found = verdict(compared("quickstart"), load_claims("paper") + load_claims("ours"), run.header)
    words = [(one.cell["part"], one.metric, one.word) for one in found.judgements]
    assert words == [
        ("reference", "nfe_speedup", "confirmed"),
        ("reference", "wall_over_nfe", "refuted"),
        ("reference", "accuracy_loss_points", "inconclusive"),
    ]
    assert found.exit_code() == 1 and json.dumps(to_json(found), allow_nan=False)
    assert [one.word for one in judged(run, "wall_speedup >= 5 at part=reference").judgements] == ["refuted"]


def test_the_papers_claims_on_the_published_accuracy_run() -> None:
    """24,000 prompts: fewer passes are confirmed, and the accuracy of the reference model is refuted to be the same."""
    run = published("reference_accuracy")
    found = verdict(compared("reference_accuracy"), load_claims("paper") + load_claims("ours"), run.header)
    words = {one.metric: one.word for one in found.judgements}
    assert words == {"nfe_speedup": "confirmed", "wall_over_nfe": "void", "accuracy_loss_points": "refuted"}
    marks: dict[str, dict[tuple[str, str], bool]] = {"ntp": {}, "sbd": {}}
    for sample in run.samples:
        part, task, _, kind = sample.case_id.split("/")
        arm = "ntp" if kind.startswith("ntp") else "sbd" if "g0.003" in kind else None
        if part == "sbd" and arm and not sample.warmup:
            marks[arm] |= {(task, row.prompt_id): bool(row.correct) for row in sample.rows}
    losses = np.array([marks["ntp"][key] - float(marks["sbd"][key]) for key in marks["ntp"]])
    accuracy = next(one for one in found.judgements if one.metric == "accuracy_loss_points")
    half = 1.9600 * losses.std(ddof=1) / math.sqrt(len(losses))
    assert accuracy.sizes == {"prompts": 24000} and accuracy.value.value == pytest.approx(100 * losses.mean())
    assert accuracy.value.low == pytest.approx(100 * (losses.mean() - half), rel=1e-3)
