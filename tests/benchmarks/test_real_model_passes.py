"""Tokens per pass by answer: the rows of a batch add up to what the analysis charges it with, and a mean worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import real_model
from benchmarks.real_model import answers_of, summary_of
from benchmarks.real_model_passes import tokens_per_pass
from harness.analysis.frames import RunFrames
from tests.helpers.published import published


def test_the_answers_of_a_batch_add_up_to_its_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """By domain, of every arm of the published run, with short answers too."""
    monkeypatch.setattr(real_model, "LEAST_TOKENS", 0)
    run = published("real_model_passes")
    frames = RunFrames(run)
    samples = frames.samples
    for arm in summary_of(frames.comparison.cells, "float32").arms:
        sums = samples[samples.case_id.isin(arm.case_ids)].groupby("task", observed=True)[["decode_tokens", "nfe"]].sum()
        found = {task: tuple(pairs.sum(axis=0)) for task, pairs in answers_of(run, arm).items()}
        assert found == {str(task): (tokens, passes) for task, tokens, passes in sums.itertuples()} and len(found) == 10


def test_domains_count_alike() -> None:
    """Two and eight tokens a pass are four, however many answers a domain has; equal answers leave no interval."""
    answers = {"a": np.array([[20.0, 10.0]] * 7), "b": np.array([[8.0, 1.0]])}
    assert tokens_per_pass(answers, ("a", "b")) == pytest.approx((4.0, 4.0, 4.0))
    answers = {"a": np.array([[10.0, 10.0], [30.0, 10.0]])}
    assert tokens_per_pass(answers, ("a",)) == pytest.approx((2.0, 1.0, 3.0))
