"""The runner with a fake machine: order, continuation, outcomes; and once for real, killed in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace

import pytest

from harness.analysis.answer import compare
from harness.errors import NotPossibleError, StorageError, UserError
from harness.progress import Progress
from harness.record.decode import Readings
from harness.record.store import RunStore, read_run
from harness.runner import job, sample_taking, sampling
from harness.runner.runner import run
from tests.helpers.fake_machine import SCENARIO, FakeDecoded, FakeEngine, fake_machine, generation


@pytest.fixture
def scenario(tmp_path):
    """The scenario as a file."""
    file = tmp_path / "fake.yaml"
    file.write_text(SCENARIO)
    return file


def test_every_planned_sample_is_taken_once_and_arms_share_seed_and_prompts(scenario, tmp_path):
    """4 prompts in 4 and 2 groups, 2 repeats, 2 arms: 24 samples; a pair differs in nothing but the arm.

    Two warm-ups of each of 4 cases: the fake always takes the same time. Its passes take 2.5 s to measure, so they are measured
    after every 15 s, every sixth sample, and before and after them all.
    """
    engine = FakeEngine()
    held = read_run(run(scenario, tmp_path / "out", machine=fake_machine(engine)))
    assert sum(not s.warmup for s in held.samples) == (4 + 2) * 2 * 2
    assert sum(s.warmup for s in held.samples) == 2 * 4
    pairs = {}
    for case_id, prompts, seed in engine.decoded:
        pairs.setdefault((case_id.split("/")[2], prompts, seed), set()).add(case_id.rsplit("/", 1)[1])
    assert all(len(arms) == 2 for arms in pairs.values())
    assert held.header.hardware is None
    assert held.header.hardware_reason == "a fake machine"
    opened = ["start", "identity", "engine", "identity"]
    assert [s["event"] for s in held.sessions] == [*opened, *["measured_passes"] * (5 + 2), "end"]
    what_it_runs_on = {"event": "engine", "part": "one", "process": 0, "seen": "one"}
    assert held.sessions[2] == what_it_runs_on


def test_the_record_names_the_scenario_as_seen_from_where_it_was_run(scenario, tmp_path, monkeypatch):
    """Below that folder without the folders above it; elsewhere as it was given, or, if it is shipped, by its name."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for folder, shown in ((tmp_path, f"sbd run {scenario.name}"), (elsewhere, f"sbd run {scenario}")):
        monkeypatch.chdir(folder)
        held = run(scenario, tmp_path / f"run{len(shown)}", machine=fake_machine())
        assert read_run(held).header.command == shown
    monkeypatch.setattr(job, "data_dir", lambda name: tmp_path if name == "scenarios" else None)
    held = run(scenario, tmp_path / "shipped", machine=fake_machine())
    assert read_run(held).header.command == f"sbd run {scenario.stem}"


def test_passes_are_measured_among_the_samples(scenario, tmp_path, monkeypatch):
    """32 decodes of 2.5 s with their prefill: where it takes no time, after every 60 s, so after every 24th decode: once. Where
    it takes 3 s and may take a quarter, every 12 s, after every fifth: six times; and every time before and after them all.
    """
    for every_s, decodes, times in ((60.0, [], 1), (1.0, [FakeDecoded(generation(1), decode_s=1.0)] * 2, 6)):
        monkeypatch.setattr(sampling, "MEASURE_EVERY_S", every_s)
        monkeypatch.setattr(sampling, "MEASURE_SHARE", 0.25)
        engine = FakeEngine()
        monkeypatch.setattr(engine, "measure_passes", lambda block_sizes, beside, decodes=decodes: decodes)
        held = read_run(run(scenario, tmp_path / f"every {every_s}", machine=fake_machine(engine)))
        assert len(held.samples) == 32 and {(s.prefill_s, s.decode_s) for s in held.samples} == {(0.5, 2.0)}
        visits = held.events("measured_passes", "one")
        assert len(visits) == times + 2
        before, first, last = visits[0]["ended_at"], held.samples[0].started_at, held.samples[-1].ended_at
        assert before <= first and visits[1]["ended_at"] >= first and visits[-1]["ended_at"] >= last, "told by the clock"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), StorageError("disk full"), RuntimeError("boom")])
def test_what_is_finished_survives_and_is_not_taken_again(scenario, tmp_path, error):
    """Whatever ends a run, the next one takes exactly the missing samples, warmed up anew: 4 + 3 before, 8 + 21 after."""
    out = tmp_path / "out"
    with pytest.raises(type(error)):
        run(scenario, out, machine=fake_machine(FakeEngine(fail_at=7, error=error)))
    before = (out / "samples.jsonl").read_bytes()
    assert len(read_run(out).samples) == 7
    again = FakeEngine()
    run(scenario, out, machine=fake_machine(again))
    assert len(again.decoded) == 8 + 21
    assert (out / "samples.jsonl").read_bytes().startswith(before)
    keys = [(s.case_id, s.group, s.repeat) for s in read_run(out).samples if not s.warmup]
    assert len(keys) == len(set(keys)) == 24


def test_warming_up_ends_when_the_times_settle_or_at_the_limit(scenario, tmp_path):
    """A scripted clock: 9, 4, 2 and 2 seconds a decode need all four warm-ups, always halving ones end at the limit of 4."""
    for times_s, expected in (([9.0, 4.0, 2.0, 2.0, 2.0], 4), ([64.0, 32.0, 16.0, 8.0, 4.0, 2.0], 4), ([3.0, 3.1], 2)):
        engine = FakeEngine()
        engine.script_s = times_s
        held = read_run(run(scenario, tmp_path / f"out-{times_s[1]}", machine=fake_machine(engine)))
        taken = Counter(s.case_id for s in held.samples if s.warmup)
        assert set(taken.values()) == {expected}


def test_a_case_that_does_not_fit_is_an_outcome_and_the_others_go_on(scenario, tmp_path):
    """Batch 2 is too big: both its arms are recorded so, batch 1 is measured, and nothing is tried again."""
    out = run(scenario, tmp_path / "out", machine=fake_machine(FakeEngine(too_big=2)))
    held = read_run(out)
    assert {o.outcome for o in held.outcomes} == {"does_not_fit"}
    assert len(held.outcomes) == 2
    assert all("/b1/" in s.case_id for s in held.samples)
    again = FakeEngine()
    run(scenario, out, machine=fake_machine(again))
    assert again.decoded == []


def test_a_case_that_cannot_fit_is_refused_before_the_model_is_loaded(scenario, tmp_path):
    """250M bf16 weights need 0.5 GB: with 0.4 GB free every case is an outcome that says so, and no engine is asked."""
    engine = FakeEngine()
    held = read_run(run(scenario, tmp_path / "out", machine=fake_machine(engine, free_bytes=400_000_000)))
    assert engine.decoded == []
    assert len(held.outcomes) == 4
    assert "needs 0.5 GB at least, 0.4 GB are free" in held.outcomes[0].reason


def test_a_finished_default_directory_is_left_alone(scenario, tmp_path, monkeypatch):
    """Without --out an unfinished run is continued and a finished one is followed by the next number."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run(scenario, None, machine=fake_machine(FakeEngine(fail_at=3, error=KeyboardInterrupt())))
    first = run(scenario, None, machine=fake_machine())
    second = run(scenario, None, machine=fake_machine())
    assert first.name.endswith("-1")
    assert second.name.endswith("-2")
    assert RunStore(first).exists


KILLED = """
version: 1
name: killed
parts:
  - name: one
    model: {random: {name: tiny, layers: 1, hidden: 16, intermediate: 16, heads: 2, kv_heads: 1, head_dim: 8, vocab: 64}}
    dtype: float32
    timed: false
    threads: 1
    arms: [{method: ntp}, {method: sbd, block_size: 4, gamma: 0.5}]
    workload: {synthetic: {prompt_tokens: 4}, prompts: 300, max_new_tokens: 12}
"""


@pytest.mark.long
def test_a_run_that_is_killed_is_continued(tmp_path):
    """kill -9 in the middle of a real run, then the same command: every sample once, the first ones untouched."""
    file, out = tmp_path / "killed.yaml", tmp_path / "out"
    file.write_text(KILLED)
    code = "import sys; from harness.runner.runner import run; run(sys.argv[1], __import__('pathlib').Path(sys.argv[2]))"
    command = [sys.executable, "-c", code, str(file), str(out)]
    process = subprocess.Popen(command)
    samples = out / "samples.jsonl"
    while process.poll() is None and (not samples.exists() or samples.read_bytes().count(b"\n") < 20):
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    held = [s.model_dump() for s in read_run(out).samples]
    assert 20 <= len(held) < 600, "the kill came in the middle"
    subprocess.run(command, check=True)
    everything = [s.model_dump() for s in read_run(out).samples]
    assert everything[: len(held)] == held
    assert len({(s["case_id"], s["group"], s["repeat"], s["warmup"]) for s in everything}) == len(everything) == 600


def test_what_the_meters_read_is_in_the_record_with_unit_source_and_reason(scenario, tmp_path):
    """Values and reasons with every sample; what each figure is, and what this machine cannot tell, once per part."""
    engine = FakeEngine()
    figure = {"unit": "J", "source": "script"}
    engine.meters = {"figures": {"energy_j": figure}, "absent": [{"figures": ["x"], "reason": "no x"}]}
    engine.readings = Readings(values={"energy_j": 3.0}, reasons={"steal_s": "not counted"})
    held = read_run(run(scenario, tmp_path / "out", machine=fake_machine(engine)))
    assert all(s.meters == {"energy_j": 3.0} and s.meter_reasons == {"steal_s": "not counted"} for s in held.samples)
    [entry] = [s for s in held.sessions if s.get("event") == "meters"]
    assert entry["part"] == "one" and entry["figures"]["energy_j"]["unit"] == "J" and entry["absent"][0]["reason"] == "no x"


def test_parts_that_agree_on_the_model_share_it(tmp_path):
    """Two parts with other prompts load once; a third on another dtype loads again."""
    file = tmp_path / "three.yaml"
    part = SCENARIO.partition("parts:\n")[2]
    others = (
        part.replace("name: one", "name: two").replace("prompt_tokens: 4", "prompt_tokens: 5"),
        part.replace("name: one", "name: three").replace("bfloat16", "float32"),
    )
    file.write_text(SCENARIO + "".join(others))
    opened = []
    machine = replace(fake_machine(), open_engine=lambda part: opened.append(part.name) or FakeEngine())
    held = read_run(run(file, tmp_path / "out", machine=machine))
    assert opened == ["one", "three"]
    assert {s.case_id.split("/")[0] for s in held.samples} == {"one", "two", "three"}


@pytest.mark.parametrize(("then", "now"), [("native", "eager"), ("compiled", "native")])
def test_samples_of_two_ways_of_execution_are_never_mixed(scenario, tmp_path, then, now):
    """A run begun with native forwards is not continued where they would be eager, nor one of before; nothing is lost."""
    out = tmp_path / "out"
    first = replace(fake_machine(FakeEngine(fail_at=7, error=KeyboardInterrupt())), execution=lambda part: then)
    with pytest.raises(KeyboardInterrupt):
        run(scenario, out, machine=first)
    with pytest.raises(UserError, match=f"were {then}, here they would be {now}"):
        run(scenario, out, machine=replace(fake_machine(), execution=lambda part: now))
    assert len(read_run(out).samples) == 7
    run(scenario, out, machine=replace(first, open_engine=lambda part: FakeEngine()))
    assert sum(not s.warmup for s in read_run(out).samples) == 24


@pytest.mark.parametrize(("asked", "told"), [("auto", ["no compiler"]), ("eager", [])])
def test_auto_that_falls_back_to_eager_says_so_once(scenario, tmp_path, monkeypatch, asked, told):
    """In the terminal, and in the record as a remark, which the page and every answer show; not where eager was asked for."""
    scenario.write_text(SCENARIO.replace("    dtype:", f"    execution: {asked}\n    dtype:"))
    engine, notes, progress = FakeEngine(), [], Progress()
    monkeypatch.setattr(engine, "fingerprint", lambda part: {"kernels": None, "kernels_reason": "no compiler"})
    monkeypatch.setattr(progress, "note", notes.append)
    held = read_run(run(scenario, tmp_path / "out", machine=fake_machine(engine), progress=progress))
    words = [f"forwards are eager, slower than by the kernels for CPUs: {why}" for why in told]
    assert [one["remark"] for one in held.events("remark", "one")] == words
    assert [one for one in notes if "eager" in one] == [f"part one: {one}" for one in words]
    assert all(cell.remarks == tuple(words) for cell in compare(held).cells)


def test_a_case_that_this_machine_cannot_run_is_its_own_outcome(scenario, tmp_path):
    """The yardstick broke: that is recorded with its reason, and every other sample is taken."""
    engine = FakeEngine(fail_at=3, error=NotPossibleError("generate() failed: no compiler"))
    held = read_run(run(scenario, tmp_path / "out", machine=fake_machine(engine)))
    [outcome] = held.outcomes
    assert (outcome.outcome, outcome.reason) == ("failed", "generate() failed: no compiler")
    assert {s.case_id for s in held.samples if not s.warmup} == {c.case_id for c in held.header.cases} - {outcome.case_id}


def test_tokens_of_the_first_decodes_are_spelt_in_the_record(scenario, tmp_path):
    """Once per part, at the first decode that counts: the fake writes the same three tokens every time."""

    class Spelling:
        """Token 5 is its own text, 6 is markup, 7 is special."""

        def decode(self, ids):
            """The text of one token."""
            return {5: "five", 6: "<b>", 7: ""}[ids[0]]

    engine = FakeEngine()
    engine.tokenizer = Spelling()
    held = read_run(run(scenario, tmp_path / "out", machine=fake_machine(engine)))
    assert held.events("token_texts", "one") == [
        {"event": "token_texts", "part": "one", "process": 0, "texts": {"5": "five", "6": "<b>", "7": ""}}
    ]


def test_a_server_that_tells_no_passes_leaves_empty_columns():
    """Its answers are recorded all the same."""
    untold = FakeDecoded(replace(generation(2), passes=()), forward_s=None, sampler_s=None)
    columns = sample_taking.pass_columns(untold)
    assert (columns.role, columns.query_tokens, columns.forward_s) == ([], [], None)
