"""The verdicts on the published runs, held against the samples as they stand in the files."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from harness.analysis.judge.judgement import to_json
from harness.analysis.judge.verdict import verdict
from harness.scenario.claim_text import load_claims
from tests.helpers.crossed_mean import crossed_mean
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


def test_the_published_wall_over_nfe_by_hand() -> None:
    """From the samples as they stand in the file: per prompt NTP seconds per token over the arm's seconds per pass."""
    run = published("quickstart")
    (claimed,) = judged(run, "wall_over_nfe >= 0.9 at part=reference, gamma=0.003").judgements
    kernels = [
        t
        for s in run.samples
        if s.case_id.startswith("reference/")
        for t in (s.meters.get("kernel_before_s"), s.meters.get("kernel_after_s"))
        if t is not None
    ]
    usual, found = float(np.median(kernels)), {}
    for sample in run.samples:
        part, task, _, kind = sample.case_id.split("/")
        arm = "ntp" if kind.startswith("ntp") else "sbd" if "g0.003" in kind else None
        if part != "reference" or arm is None or sample.warmup:
            continue
        window_s = sample.prefill_s + sample.decode_s
        fit = all(sample.meters[name] <= 1.5 * usual for name in ("kernel_before_s", "kernel_after_s"))
        fit &= sample.meters["steal_s"] <= 0.05 * window_s * 2 and sample.meters["compiled_graphs"] == 0
        passes = sum(role != "prefill" for role in sample.passes.role)
        if fit and passes:
            found.setdefault(((task, sample.group), sample.process), {})[arm] = sample.decode_s / passes
    logs = {key: math.log(pair["ntp"] / pair["sbd"]) for key, pair in found.items() if len(pair) == 2}
    assert claimed.sizes == {"prompts": len({prompt for prompt, _ in logs}), "processes": 3}
    assert claimed.value.value == pytest.approx(math.exp(crossed_mean(logs)), rel=1e-9)


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
    half = 1.6449 * losses.std(ddof=1) / math.sqrt(len(losses))
    assert accuracy.sizes == {"prompts": 24000} and accuracy.value.value == pytest.approx(100 * losses.mean())
    assert accuracy.value.low == pytest.approx(100 * (losses.mean() - half), rel=1e-3)
