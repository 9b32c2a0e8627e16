"""Histories whose levels are known because they were put in: records of one arm over commits, no run behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha1
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.analysis.results import COMPARISON_VERSION
from harness.record.schema import RECORD_VERSION
from harness.regression.history.store import HistoryRecord, Revision, TrackedFigure
from harness.scenario.metrics import METRICS

START = datetime(2026, 1, 1, tzinfo=UTC)
CELL, ARM = "reference/word_problems/b1", "SBD k=16 γ=0.35"


def commit(number: int) -> str:
    """40 hexadecimal digits, the same for the same number."""
    return sha1(str(number).encode()).hexdigest()


def figure(value: float | None, metric: str = "wall_speedup", arm: str = ARM, cell: str = CELL) -> TrackedFigure:
    """One figure without an interval."""
    known = METRICS[metric]
    return TrackedFigure(
        cell=cell,
        arm=arm,
        metric=metric,
        value=value,
        low=None,
        high=None,
        n=40,
        unit=known.unit,
        better=known.better,
        reason=None if value is not None else "left out on purpose",
    )


def record(number: int, *figures: TrackedFigure, **other: Any) -> HistoryRecord:
    """The run of commit ``number``, measured a day after the one before; ``other`` replaces fields."""
    day = (START + timedelta(days=number)).isoformat(timespec="seconds")
    made = HistoryRecord(
        run_id=f"{number:08x}{'0' * 24}",
        path=f"/runs/{number}",
        measured_at=day,
        revision=Revision(commit=commit(number), has_changes=False, branch="main", committed_at=day),
        fingerprint="0123456789ab",
        machine="Example CPU, 2 cores",
        software={"torch": "2.13.0"},
        scenario_name="synthetic",
        scenario_digest="d" * 64,
        record_version=RECORD_VERSION,
        comparison_version=COMPARISON_VERSION,
        samples=100,
        figures=figures,
    )
    return replace(made, **other)


def stepped(
    random: np.random.Generator, commits: int = 80, step: int = 40, factor: float = 1.03, noise: float = 0.01
) -> list[float]:
    """A speedup of 3 with lognormal noise whose level is ``factor`` times as high from commit ``step`` on."""
    level = np.where(np.arange(commits) < step, 3.0, 3.0 * factor)
    return [float(value) for value in level * np.exp(random.normal(0.0, noise, commits))]


def autoregressive(random: np.random.Generator, points: int, correlation: float) -> NDArray[np.float64]:
    """Noise of deviation 1: every value is ``correlation`` times the one before plus something new."""
    made = random.normal(size=points)
    for i in range(1, points):
        made[i] = correlation * made[i - 1] + np.sqrt(1 - correlation**2) * made[i]
    return made


def records_of(values: Sequence[float], metric: str = "wall_speedup") -> list[HistoryRecord]:
    """One record a commit."""
    return [record(number, figure(value, metric)) for number, value in enumerate(values)]
