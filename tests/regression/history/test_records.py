"""What a history keeps of a run: records of every version, the figures of its comparison, its machine and its revision."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.analysis.answer import compare
from harness.analysis.tally import pass_values
from harness.errors import RecordError, UserError
from harness.record.same import machine_of, software_of
from harness.record.schema import OLDEST_READ, RECORD_VERSION, Run
from harness.record.store import read_run
from harness.regression.history.derive import (
    DEFAULT_METRICS,
    HistoryRecord,
    Revision,
    known_metrics,
    reciprocal,
    record_of,
    utc,
)
from harness.regression.history.store import History
from harness.scenario.metrics import METRICS, PRICES
from harness.stats.quantity import Quantity, absent
from tests.helpers import synthetic_run as synthetic
from tests.helpers.environments import with_cases, with_environment
from tests.helpers.records import RECORDS

RUN = synthetic.build(jitter=0.05, tasks=("word_problems", "record_to_json"), calibration=synthetic.calibration())


def kept(run: Run = RUN, revision: Revision | None = None) -> HistoryRecord:
    """The record of ``run``."""
    return record_of(run, "/runs/1", revision or Revision())


@pytest.mark.parametrize("version", range(OLDEST_READ, RECORD_VERSION + 1))
def test_a_record_of_every_version_loads_and_is_kept(version: int, tmp_path: Path) -> None:
    """Published runs of each version, cut down; a new version without a folder here fails."""
    folder = RECORDS / f"v{version}"
    run = read_run(folder)
    assert run.header.record_version == version and len(run.samples) >= 8
    with History(str(tmp_path / "h.sqlite")) as history:
        assert history.add(record_of(run, str(folder), Revision())) == "added"
        found = history.record(run.header.run_id)
    assert (found.record_version, found.samples, found.revision.commit) == (version, 10, run.header.environment["commit"])
    figures = [one.value for one in found.figures if one.metric in ("nfe_speedup", "wall_speedup", "time_per_token_s")]
    assert len(figures) >= 4 and None not in figures


def test_the_figures_are_those_of_the_comparison() -> None:
    """Cell by cell, with unit and interval; an absent one has its reason; what holds for NTP by definition is left out."""
    figures = {(one.cell, one.arm, one.metric): one for one in kept().figures}
    cells = {one.cell for one in kept().figures}
    assert cells == {"reference/all/b1", "reference/word_problems/b1", "reference/record_to_json/b1"}
    for cell in compare(RUN).cells:
        name = f"reference/{cell.task or 'all'}/b1"
        for arm in cell.arms:
            rate = figures[name, arm.label, "tokens_per_s"]
            assert rate.value == arm.tokens_per_s.value and rate.unit == "tokens/s" and rate.better == "higher"
            assert figures[name, arm.label, "time_per_token_s"].value == pytest.approx(1 / arm.tokens_per_s.value)
            assert figures[name, arm.label, "accuracy"].low == arm.accuracy.low
            errors = {one.price: one.decode_error.value for one in arm.predictions}
            assert errors and all(figures[name, arm.label, f"decode_error.{price}"].value == e for price, e in errors.items())
            if arm.is_ntp:
                assert not {(name, arm.label, "wall_speedup"), (name, arm.label, "nfe_speedup")} & figures.keys()
                continue
            wall = figures[name, arm.label, "wall_speedup"]
            assert (wall.value, wall.low, wall.high, wall.n) == (
                arm.wall_speedup.value,
                arm.wall_speedup.low,
                arm.wall_speedup.high,
                arm.wall_speedup.n,
            )
    assert all((one.value is None) <= bool(one.reason) for one in figures.values())
    assert {one.metric for one in figures.values()} <= set(METRICS)


def test_seconds_per_token_turn_the_interval_round() -> None:
    """Four tokens a second, between two and five: a quarter of a second, between a fifth and a half."""
    turned = reciprocal(Quantity(value=4.0, low=2.0, high=5.0, n=7, method="t"))
    assert turned == Quantity(value=0.25, low=0.2, high=0.5, n=7, method="t")
    assert reciprocal(Quantity(value=4.0)) == Quantity(value=0.25)
    assert reciprocal(absent("not timed", 3)) == absent("not timed", 3)


def test_one_machine_is_one_fingerprint() -> None:
    """Software, load and free memory may change; processor, flags and cores may not. GPUs only where one was used."""
    same = machine_of(RUN.header)
    assert same == machine_of(with_environment(RUN, load_average=[9, 9, 9], memory_available_bytes=1, kernel="7.0").header)
    assert same == machine_of(with_environment(RUN, gpus=[{"name": "H100"}]).header)
    assert (same.words, len(same.fingerprint)) == ("Example CPU", 12)
    others = [{"cpu_model": "Another"}, {"isa_flags": ["avx2"]}, {"affinity_cores": 2}, {"cgroup_cpus": 1.5}]
    found = {machine_of(with_environment(RUN, **other).header).fingerprint for other in others}
    assert len(found | {same.fingerprint}) == 5
    on_gpu = with_cases(RUN, lambda case: {"device": "cuda:0"})
    cards = [{"name": "NVIDIA H100 80GB HBM3", "memory_bytes": 85, "multiprocessors": 132, "uuid": str(i)} for i in range(2)]
    seen = machine_of(with_environment(on_gpu, gpus=cards).header)
    assert seen.words == "2 x NVIDIA H100 80GB HBM3" and seen.fingerprint not in found | {same.fingerprint}


def test_versions_that_may_explain_a_change() -> None:
    """Those the snapshot tells."""
    assert software_of(RUN.header) == {"python": "3.11.7", "torch": "2.13.0"}


def test_the_revision_is_what_was_said_else_what_was_recorded() -> None:
    """That the checkout had changes is known of the recorded commit only."""
    run = with_environment(RUN, commit="a" * 40, commit_has_changes=True)
    assert kept(run).revision == Revision(commit="a" * 40, has_changes=True)
    assert kept(run, Revision(commit="b" * 40)).revision == Revision(commit="b" * 40)
    given = Revision(branch="main", committed_at="2026-11-20T12:00:00+02:00")
    assert kept(run, given).revision == Revision(
        commit="a" * 40, has_changes=True, branch="main", committed_at="2026-11-20T10:00:00+00:00"
    )
    assert kept().revision == Revision()


def test_times_are_in_utc_and_sort_as_text() -> None:
    """Zones and their absence; nonsense is refused by name."""
    assert utc("2026-11-20T10:00:00Z", "") == utc("2026-11-20T12:00:00+02:00", "") == utc("2026-11-20T10:00:00", "")
    for nonsense in ("yesterday", "0001-01-01T00:00:00+14:00"):
        with pytest.raises(RecordError, match=f"run x: '{re.escape(nonsense)}' is not"):
            utc(nonsense, "run x")


def test_metrics_by_name() -> None:
    """A name without its rung means every rung; none means the default ones; an unknown one is refused with the known."""
    assert PRICES == pass_values.PRICES
    assert known_metrics([]) == DEFAULT_METRICS and "wall_speedup_error.datasheet" in DEFAULT_METRICS
    assert known_metrics(["decode_error", "accuracy"])[-1] == "accuracy"
    assert set(known_metrics(["decode_error"])) == {name for name in METRICS if name.startswith("decode_error.")}
    assert known_metrics(["accuracy"]) == ("accuracy",)
    with pytest.raises(UserError, match=r"--metric speed: is not followed; known are wall_speedup, .*datasheet"):
        known_metrics(["speed"])
