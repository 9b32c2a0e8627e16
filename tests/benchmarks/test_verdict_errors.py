"""The simulated records are records, their truths are true, and counts become figures as by hand."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, stats

from benchmarks import simulated_load
from benchmarks.results_file import RESULTS
from benchmarks.verdict_errors import counted, imported, loads, shapes
from benchmarks.verdict_errors.__main__ import main
from benchmarks.verdict_errors.cells import every_cell
from benchmarks.verdict_errors.drawn import DECODE_SD, LENGTH_SD, PROCESS_SD, PROMPT_SD, SPEEDUP, TOKENS, Task
from benchmarks.verdict_errors.records import claimed, paired_run
from harness.analysis.answer import Derived
from harness.record.schema import Run, RunHeader, Sample

FIRST = {task.kind: task.name for task in reversed(every_cell())}
"""The smallest task of every kind."""


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The truth of a load from few requests."""
    for name, value in {"LONG_STARTS": 2, "LONG_REQUESTS": 400, "LONG_WARM": 50}.items():
        monkeypatch.setattr(simulated_load, name, value)
    simulated_load.truth.cache_clear()


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("kind", FIRST)
def test_every_shape_runs(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The smallest count of each; the same command again has nothing to do."""
    command = ["--runs", "1", "--workers", "1", "--only", FIRST[kind], "--partial", str(tmp_path)]
    main(command)
    first = capsys.readouterr()
    assert f"{FIRST[kind]} | " in first.out and "about 0 min left" in first.err
    main(command)
    again = capsys.readouterr()
    assert again.out == first.out and not again.err


def runs() -> dict[str, Run]:
    """One of every way to make one."""
    random = np.random.default_rng(3)
    logs, few = (
        math.log(SPEEDUP) + 0.1 * random.normal(size=(2, 6, 3)),
        Task(kind="loads", shape="closed", prompts=12, processes=3),
    )
    paired = paired_run(np.full(6, 50.0), logs, tasks=[0, 0, 0, 1, 1, 1], clusters=[0, 0, 1, 1, 2, 2])
    files = imported._run(
        np.log(np.full((2, 3, 4), 0.1)) + 0.1 * random.normal(size=(2, 3, 4)), np.ones((2, 3, 4), bool), "other", random
    )
    shape = loads.shape_of(few)
    return {"paired": paired, "load": loads.load_run(shape, simulated_load.simulated(shape, random)), "files": files}


@pytest.mark.parametrize("name", ["paired", "load", "files"])
def test_a_simulated_run_is_one_as_it_is_read(name: str) -> None:
    """Written and read again, by the schema's own rules, it has the same verdict."""
    run = runs()[name]
    read = Run(
        header=RunHeader.model_validate_json(run.header.model_dump_json()),
        samples=[Sample.model_validate_json(one.model_dump_json()) for one in run.samples],
        outcomes=[],
        sessions=run.sessions,
    )
    asked = tuple(one for _, one in claimed("x", 2.0))
    mine, theirs = (Derived(one, asked).comparison.judgements for one in (run, read))
    assert mine is not None and theirs is not None and mine.judgements == theirs.judgements
    assert mine.judgements[0].value.value is not None and mine.judgements[0].state != "void"


def test_the_truth_of_totals_by_integration() -> None:
    """Over lognormal lengths; rounding of lengths to whole tokens is left out."""
    lengths = stats.lognorm(LENGTH_SD, scale=TOKENS)
    variance = PROMPT_SD**2 + PROCESS_SD**2 + DECODE_SD**2
    slower, _ = integrate.quad(lambda n: n * (n / TOKENS) ** 0.5 * lengths.pdf(n), 1, 5_000, limit=500)
    assert shapes.true_totals(0.5) == pytest.approx(SPEEDUP * lengths.mean() / slower / math.exp(variance / 2), rel=2e-3)


def test_the_stored_figures_have_the_keys_that_are_written() -> None:
    """Of the laboratory, from one run of each kind; those of records are in the test below."""
    stored = json.loads((RESULTS / "verdict_errors.json").read_text())["figures"]
    names = {"errors": "speedup_1", "accuracy": "accuracy_1", "power": "speedup_1", "few": "speedup_1_5"}
    states = ("runs", "intervals", "covered")
    kinds = {Task(kind=kind, shape="gaussian", prompts=50, processes=5): name for kind, name in names.items()}
    found = counted.of_laboratory({task: Counter({f"{name}_{state}": 1 for state in states}) for task, name in kinds.items()})
    assert found.keys() == {key for key in stored if not key.startswith("new_")}


def test_counts_become_figures_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A doubtful cell is judged by its fresh runs alone; an unmet one counts in the mean alone, and has a key."""
    wide, narrow = (Task(kind="loads", shape=shape, prompts=48, processes=3) for shape in ("half", "closed"))
    monkeypatch.setattr(counted, "NEW_UNMET", {(narrow.name, "p95"): "few requests"})
    counts = {
        wide: Counter(p50_runs=1000, p50_met=40, p50_intervals=1000, p50_covered=950, p50_power_runs=1000, p50_power_met=700),
        narrow: Counter(p95_runs=1000, p95_met=80, p95_intervals=1000, p95_covered=900, each_runs=1000, each_met=10)
        + Counter(each_intervals=50, unadjusted_runs=1000, unadjusted_met=190),
    }
    assert counted.doubtful(counts) == {wide: ["p50"]}
    fresh = Counter(p50_runs=10_000, p50_met=250, p50_intervals=10_000, p50_covered=9_400)
    counts[wide] = counted.judged_again(counts[wide], fresh, ["p50"])
    assert counted.of_records(counts) == {
        "new_false_confirmed_pct_mean": pytest.approx((2.5 + 8.0 + 1.0) / 3, abs=0.005),
        "new_false_confirmed_pct_max_met_cells": 2.5,
        "new_coverage_pct_min_met_cells": 94.0,
        "new_power_pct_min": 70.0,
        "new_unmet_cells": 1,
        f"new_unmet_pct.{narrow.name}.p95": 8.0,
    }


def test_the_truth_of_energy_by_integration() -> None:
    """Mean of all joules by that of all tokens, the prompt's own token among them."""
    lengths = stats.lognorm(LENGTH_SD, scale=TOKENS)
    variance = shapes.JOULES_SD**2 + PROCESS_SD**2 + DECODE_SD**2
    expected = (lengths.mean() + shapes.OVERHEAD) * math.exp(variance / 2) / (lengths.mean() + 1)
    assert shapes.true_joules(1.0) == pytest.approx(expected, rel=2e-3)
