"""A run as frames: against a published run's report by other arithmetic, against a run built by hand, and as documented."""

from __future__ import annotations

import doctest
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import harness
from harness.analysis import frames
from harness.analysis.answer import compare, to_json
from harness.analysis.frames import RunFrames
from harness.errors import RecordError
from harness.record.schema import PassColumns, Run
from harness.record.store import read_run
from tests.helpers import ROOT
from tests.helpers import synthetic_run as synthetic
from tests.helpers.crossed_mean import crossed_mean
from tests.helpers.environments import with_header
from tests.helpers.two_runs import stored

QUICKSTART = ROOT / "reports" / "quickstart"
KEY = ["case_id", "process", "group", "repeat", "warmup"]


METHODS = ("ntp", "sbd", "sbd_verified")


@pytest.fixture(scope="module")
def quickstart() -> RunFrames:
    """The published run."""
    return harness.load_run(QUICKSTART)


@pytest.fixture(scope="module")
def reported() -> pd.DataFrame:
    """Its report's JSON, one row per arm of a summary cell."""
    cells = to_json(compare(read_run(QUICKSTART)))["cells"]
    lines = [
        arm | {"part": cell["part"], "batch_size": cell["batch_size"], "timed": cell["timed"]}
        for cell in cells
        if cell["is_summary"]
        for arm in cell["arms"]
    ]
    assert len(lines) >= 5
    return pd.DataFrame(lines).set_index(["part", "batch_size", "label"])


def test_the_documented_example_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line of it, from the root of a checkout."""
    monkeypatch.chdir(ROOT)
    [example] = doctest.DocTestFinder(recurse=False).find(frames.load_run, "load_run", globs={})
    assert len(example.examples) >= 8
    assert doctest.DocTestRunner().run(example) == (0, len(example.examples))


def sound(found: pd.DataFrame) -> pd.DataFrame:
    """What the comparison counts."""
    return found[~found.warmup & found.void.isna() & found.method.isin(METHODS)]


def test_summed_samples_are_the_reports_totals(quickstart: RunFrames, reported: pd.DataFrame) -> None:
    """Decode seconds, forwards, tokens and passes of every arm, added up by pandas, stand in the report's JSON."""
    by_arm = sound(quickstart.samples).groupby(["part", "batch_size", "arm"], observed=True)
    totals = by_arm[["decode_s", "forward_s", "decode_tokens", "nfe", "passes"]].sum()
    assert len(totals) == len(reported)
    for name in ("decode_s", "forward_s"):
        wanted = reported[name].map(lambda quantity: quantity["value"])
        assert np.allclose(totals[name], wanted.loc[totals.index].astype(float), rtol=1e-12)
    for arm, found in totals.iterrows():
        assert found["decode_s"] / found["decode_tokens"] == pytest.approx(1 / reported.loc[arm]["tokens_per_s"]["value"])
    whole = quickstart.samples[~quickstart.samples.warmup & quickstart.samples.method.isin(METHODS)]
    counts = whole.groupby(["part", "batch_size", "arm"], observed=True)[["decode_tokens", "nfe", "passes"]].sum()
    for name in ("decode_tokens", "nfe", "passes"):
        assert (counts[name] == reported[name].loc[counts.index]).all(), name


def test_speedups_paired_by_hand_are_the_reports(quickstart: RunFrames, reported: pd.DataFrame) -> None:
    """Samples joined on the prompt: the ratio of totals and the geometric mean, of every SBD arm, without our statistics."""
    timed = sound(quickstart.samples)
    timed = timed.assign(per_token_s=timed.decode_s / timed.decode_tokens)
    ntp = timed[timed.method == "ntp"]
    checked = 0
    for (part, batch, arm), of_arm in timed[timed.method != "ntp"].groupby(["part", "batch_size", "arm"], observed=True):
        pairs = of_arm.merge(ntp, on=["part", "task", "batch_size", "process", "group", "repeat"], suffixes=("", "_ntp"))
        totals = (pairs.decode_s_ntp.sum() / pairs.decode_tokens_ntp.sum()) / (pairs.decode_s.sum() / pairs.decode_tokens.sum())
        keys = [pairs.task, pairs.group, pairs.process]
        logs = np.log(pairs.per_token_s_ntp / pairs.per_token_s).groupby(keys, observed=True).mean()
        known = reported.loc[(part, batch, arm)]
        assert totals == pytest.approx(known["wall_speedup_totals"]["value"])
        mean = crossed_mean({((task, group), process): log for (task, group, process), log in logs.items()})
        assert np.exp(mean) == pytest.approx(known["wall_speedup"]["value"])
        checked += 1
    assert checked == 4


def test_predictions_are_those_of_the_report(quickstart: RunFrames, reported: pd.DataFrame) -> None:
    """Per arm and rung, predicted and measured speedup; the error is their quotient less one."""
    found = quickstart.predictions[quickstart.predictions.is_summary]
    checked = 0
    for row in found[found.rung_reason.isna()].itertuples():
        arm = reported.loc[(row.part, row.batch_size, row.arm)]
        of_rung = [one for one in arm["predictions"] if one["rung"] == row.rung]
        priced = [one for one in of_rung if one.get("ex_ante", row.rung != "shape-calibrated") == row.ex_ante]
        if not priced:
            continue  # a report older than ex-ante prices
        [known] = priced
        assert row.wall_speedup == pytest.approx(known["wall_speedup"]["value"])
        if known["wall_speedup"]["low"] is None:  # not every price has an interval
            assert math.isnan(row.wall_speedup_low) and math.isnan(row.wall_speedup_high)
        else:
            assert row.wall_speedup_low <= row.wall_speedup <= row.wall_speedup_high
        assert row.measured_wall_speedup == pytest.approx(arm["wall_speedup"]["value"])
        assert row.wall_speedup_error == pytest.approx(row.wall_speedup / row.measured_wall_speedup - 1)
        assert row.decode_error == pytest.approx(row.decode_s / row.measured_decode_s - 1)
        checked += 1
    assert checked > 10
    missing = found[found.rung_reason.notna()]
    assert set(missing.rung) == {"datasheet"} and missing.wall_speedup.isna().all()


def test_passes_add_up_to_their_sample(quickstart: RunFrames) -> None:
    """Final tokens over all passes of a sample are the tokens that it wrote; numbers run from 0; the first is the prefill."""
    passes, samples = quickstart.passes, quickstart.samples.set_index(KEY)
    by_sample = passes.groupby(KEY, observed=True)
    assert (by_sample.final_tokens.sum() == samples.output_tokens.loc[by_sample.final_tokens.sum().index]).all()
    assert (by_sample.number.max() + 1 == by_sample.size()).all()
    assert set(passes[passes.number == 0].role) == {"prefill"} == set(passes[passes.role == "prefill"].role)
    assert len(passes) == sum(len(s.passes.role) for s in read_run(QUICKSTART).samples)


def by_hand() -> Run:
    """Batches of 2 in a timed part, the same again by a second process at half the speed; a part without times."""
    run = synthetic.build(
        synthetic.Part(prompts=4, batch_size=2, blocks=2), synthetic.Part(name="untimed", prompts=2, timed=False)
    )
    again = [
        sample.model_copy(update={"process": 1, "decode_s": 2 * sample.decode_s})
        for sample in run.samples
        if sample.case_id.startswith("reference") and sample.decode_s
    ]
    return synthetic.with_samples(run, [*run.samples, *again])


def test_a_run_built_by_hand() -> None:
    """NTP writes 1 + 32 tokens in 32 passes of 10 ms forward and 0.75 ms sampler; a batch of two counts both rows once."""
    run = RunFrames(by_hand())
    ntp = run.samples[(run.samples.part == "reference") & (run.samples.method == "ntp") & ~run.samples.warmup]
    assert list(zip(ntp.process, ntp.group, strict=True)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert ntp.decode_s.tolist() == pytest.approx([0.352, 0.352, 0.704, 0.704])
    assert ntp.forward_s.tolist() == pytest.approx([0.320] * 4) and ntp.sampler_s.tolist() == pytest.approx([0.024] * 4)
    assert set(ntp.prompts) == {2} and set(ntp.output_tokens) == {66} and set(ntp.decode_tokens) == {64}
    assert set(ntp.passes) == {32} and set(ntp.nfe) == {64} and set(ntp.prompt_tokens) == {80}
    passes = run.passes[(run.passes.part == "reference") & (run.passes.method == "ntp") & (run.passes.number == 1)]
    assert set(passes.query_tokens) == {2} and set(passes.context_tokens) == {80} and set(passes.active_rows) == {2}
    assert set(passes.padded_query_tokens) == {1} and set(passes.padded_context_tokens) == {40}
    rows = run.rows.merge(ntp[KEY], on=KEY)
    assert rows.prompt_id.tolist() == ["p0", "p1", "p2", "p3"] * 2 and rows.row.tolist() == [0, 1] * 4
    assert rows.correct.tolist() == [True, True, True, False] * 2, "the third prompt is wrong by construction"
    untimed = run.samples[run.samples.part == "untimed"]
    assert untimed[["prefill_s", "decode_s", "forward_s", "sampler_s"]].isna().all(axis=None)
    assert run.header.scenario_name == "synthetic" and "samples" in repr(run)


def test_units_and_types_hold_where_nothing_is_known() -> None:
    """A part without times has frames of the same columns and types, with reasons beside what is missing."""
    arms = RunFrames(synthetic.build(timed=False)).arms
    timed = RunFrames(by_hand()).arms
    assert list(arms) == list(timed)
    for name in ("wall_speedup", "wall_speedup_low", "decode_s", "tokens_per_s"):
        assert arms[name].isna().all() and arms[name].dtype == timed[name].dtype == float
    assert set(arms.wall_speedup_reason) == {"this part was not timed"}
    assert not {name for name in arms if name.endswith("_value")}


def test_a_void_sample_says_why_and_keeps_its_times() -> None:
    """Two samples in which something was compiled, and one of a quiet machine."""
    run = synthetic.build()
    meters = [{"compiled_graphs": 1.0} if number in (1, 2) else {} for number in range(len(run.samples))]
    run = synthetic.with_samples(run, (s.model_copy(update={"meters": m}) for s, m in zip(run.samples, meters, strict=True)))
    samples = RunFrames(run).samples
    assert samples.index[samples.void.notna()].tolist() == [1, 2]
    assert set(samples.void.dropna()) == {"a forward pass was compiled while the clock ran"}
    assert samples.decode_s.notna().all() and samples.meter_compiled_graphs.isna().sum() == len(samples) - 2


def test_a_record_without_process_sampler_and_meters_loads(tmp_path: Path) -> None:
    """Process 0, missing, no such column."""
    run = synthetic.build()
    untold = synthetic.altered(run, lambda one: {"passes": one.passes.model_copy(update={"sampler_s": None})})
    file = stored(with_header(untold, record_version=6), tmp_path / "run") / "samples.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        for name in ("process", "meters", "meter_reasons"):
            del line[name]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    old, new = harness.load_run(file.parent), RunFrames(run)
    assert set(old.samples.process) == set(old.passes.process) == {0} and old.header.record_version == 6
    assert old.passes.sampler_s.isna().all() and old.samples.sampler_s.isna().all()
    pd.testing.assert_frame_equal(old.samples.drop(columns="sampler_s"), new.samples.drop(columns="sampler_s"))
    assert old.arms.pass_parts_sampler_s_reason.str.contains("record version 3").all()


KEPT = sorted({file.parent for folder in ("reports", "tests/data/records") for file in (ROOT / folder).rglob("run.json")})


LARGE = ("reference_accuracy",)
SLOW = ("gamma_selection",)


@pytest.mark.parametrize(
    "folder",
    [pytest.param(run, marks=[pytest.mark.full] * (run.name in SLOW), id=run.name) for run in KEPT if run.name not in LARGE],
)
def test_every_kept_record_loads(folder: Path) -> None:
    """Whatever version wrote it; those with ten thousand samples and more are left to the reports' own tests."""
    run = harness.load_run(folder)
    held = read_run(folder)
    assert len(run.samples) == len(held.samples) and len(run.rows) == sum(len(sample.rows) for sample in held.samples)
    assert len(run.passes) == sum(len(sample.passes.role) for sample in held.samples)
    assert len(run.arms) and isinstance(run.predictions, pd.DataFrame)


def test_a_run_without_samples_has_empty_frames() -> None:
    """Begun and nothing more: every frame is there; those of what was recorded have their columns."""
    full = synthetic.build()
    run = RunFrames(synthetic.with_samples(full, []))
    assert [len(frame) for frame in (run.samples, run.rows, run.passes, run.arms, run.predictions)] == [0] * 5
    assert all(list(getattr(run, name)) == list(getattr(RunFrames(full), name)) for name in ("samples", "rows", "passes"))


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    """A folder without a run, and a name that the package does not have."""
    with pytest.raises(RecordError, match="no run here"):
        harness.load_run(tmp_path)
    with pytest.raises(AttributeError, match="has no attribute 'load_runs'"):
        harness.load_runs  # noqa: B018 - asking is the test


def test_times_of_no_decode_pass_add_up_to_zero() -> None:
    """Also where the passes were not timed; with decode passes such a sum is not known."""
    run = synthetic.build(name="untimed", prompts=2, timed=False)
    first = run.samples[0]
    prompt_alone = {name: one[:1] if isinstance(one, list) else one for name, one in first.passes.model_dump().items()}
    short = first.model_copy(update={"passes": PassColumns.model_validate(prompt_alone)})
    found = RunFrames(synthetic.with_samples(run, [short, run.samples[1]])).samples
    assert found[["forward_s", "sampler_s"]].iloc[0].tolist() == [0.0, 0.0]
    assert found[["forward_s", "sampler_s"]].iloc[1].isna().all()
