"""Fresh processes: a level of replication crossed with the prompts, each taken by an interpreter of its own, none lost."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from harness.analysis.trust.integrity import integrity_of
from harness.cli.plan import estimated, render
from harness.errors import HungError, ProcessEndedError, StorageError, UserError
from harness.hardware.profile import Calibration
from harness.progress import Progress
from harness.record.schema import Run
from harness.record.store import RunStore, read_run
from harness.roofline.recorded_acceptance import recorded_arms
from harness.runner import subprocesses
from harness.runner.runner import run, run_errand
from harness.runner.stopping_rule import StoppingRule, missing_slots
from harness.runner.subprocesses import PROGRAM, ChildTask, FreshInterpreter, expect_success
from harness.scenario.loading import scenario_digest
from harness.scenario.plan import Share, make_plan
from harness.scenario.scenario import Scenario
from tests.helpers import ROOT
from tests.helpers import synthetic_run as synthetic
from tests.helpers.child_processes import REAL, InThisProcess
from tests.helpers.child_processes import calibrated as calibrated
from tests.helpers.fake_machine import SCENARIO, FakeEngine, fake_machine
from tests.helpers.published import published
from tests.helpers.running import is_running

PART = {
    "name": "one",
    "model": {"random": "llama-250m"},
    "dtype": "bfloat16",
    "baseline_check": 1,
    "arms": [{"method": "ntp"}, {"method": "sbd", "acceptance": {"replay": {"nfe_speedup": 2.0}}}],
    "workload": {"synthetic": {"prompt_tokens": 4}, "prompts": 6, "max_new_tokens": 33},
}


@pytest.fixture
def shape():
    """Any shape."""
    from harness.models import KNOWN_SHAPES

    return KNOWN_SHAPES["llama-250m"]


def plan_of(*parts):
    """A plan of the part above with changes, once per argument."""
    return make_plan(Scenario.model_validate({"version": 1, "name": "s", "parts": [PART | changes for changes in parts]}))


def test_every_process_takes_the_same_samples_with_the_same_seeds_in_another_order():
    """Prompts and processes are crossed; the first process goes through them as a run without processes does."""
    alone = [(s.key[:4], s.case.sample_seed(s.group, s.repeat)) for s in plan_of({"repeats": 2}).slots()]
    slots = list(plan_of({"repeats": 2, "processes": 3}).slots())
    by_process = [[(s.key[:4], s.case.sample_seed(s.group, s.repeat)) for s in slots if s.process == i] for i in range(3)]
    assert [s.process for s in slots] == sorted(s.process for s in slots), "one after the other"
    assert by_process[0] == alone
    assert all(Counter(taken) == Counter(alone) for taken in by_process)
    assert len({tuple(taken) for taken in by_process}) == 3
    assert len({s.key for s in slots}) == len(slots) == 3 * len(alone)


def test_parts_are_taken_in_turns_and_as_often_as_each_asks():
    """A slow hour falls on all parts alike."""
    plan = plan_of({"processes": 2}, {"name": "two"}, {"name": "three", "processes": 3})
    assert list(dict.fromkeys((s.share.part, s.share.process) for s in plan.slots())) == [
        ("one", 0),
        ("two", 0),
        ("three", 0),
        ("one", 1),
        ("three", 1),
        ("three", 2),
    ]


def test_the_plan_counts_every_process():
    """Samples and time of `sbd plan`, and the sum of the slots, are three times those of one process; the text says so."""
    from harness.hardware.profile import load_profile
    from harness.roofline.ceilings import ceilings_of

    ceilings = ceilings_of(load_profile("h100-sxm"), "bfloat16")
    once, thrice = (estimated(plan_of({"processes": n}), lambda case: (ceilings, None)) for n in (1, 3))
    assert thrice.samples == 3 * once.samples == len(list(plan_of({"processes": 3}).slots()))
    assert thrice.total_s == pytest.approx(3 * (once.total_s or 0))
    assert [one.case.case_id for one in thrice.cases] == [one.case.case_id for one in once.cases]
    assert "fresh processes, counted above: part one 3" in " ".join(render(thrice).split())
    alone = render(once)
    assert "fresh processes" not in alone and "design of part one: 1 of 3 processes that a verdict on time needs" in alone
    assert "design of part one: 3 processes, 6 prompts, the same in each, t with 2 degrees of freedom" in render(thrice)


@pytest.mark.parametrize("name", ["gamma_selection", "reference_accuracy"])
def test_older_records_keep_their_digest(name):
    """What a program that knew no processes wrote resolves today as it did then, so that a run begun then can go on now."""
    header = json.loads((ROOT / "reports" / name / "run.json").read_text())
    resolved = Scenario.model_validate(header["scenario"]).model_dump(mode="json")
    assert "processes" not in resolved["parts"][0]
    assert scenario_digest(resolved) == header["scenario_digest"]


def test_older_records_keep_their_samples_and_seeds():
    """The published run was taken in a shuffled order: today's plan has each of its samples, with the seed it was taken with,
    and would take none of them again.
    """
    held = published("quickstart")
    plan = make_plan(Scenario.model_validate(held.header.scenario))
    planned = {(slot.key, slot.case.sample_seed(slot.group, slot.repeat)) for slot in plan.slots() if not slot.warmup}
    taken = [(sample.key, sample.seed) for sample in held.samples if not sample.warmup]
    assert len(taken) > 100 and set(taken) <= planned
    assert missing_slots(plan, held, StoppingRule(plan, held)) == []


def test_processes_are_for_what_is_timed():
    """Refused with what to do."""
    with pytest.raises(ValueError, match="timed is false; leave processes out"):
        plan_of({"processes": 2, "timed": False})


def test_recorded_acceptance_counts_every_prompt_once():
    """Further processes decode the same prompts again: what is replayed from a run is that of the first."""
    run = synthetic.build(synthetic.Part(prompts=3))
    again = [sample.model_copy(update={"process": 1}) for sample in run.samples]
    both = run.model_copy(update={"samples": [*run.samples, *again]})
    assert recorded_arms(both, 16) == recorded_arms(run, 16)
    assert [len(arm.rows) for arm in recorded_arms(both, 16)] == [3, 3]


@pytest.fixture
def mixed(tmp_path):
    """Part one in three processes of the same prompts, part two in one: 24 counting samples a process."""
    file = tmp_path / "mixed.yaml"
    one = SCENARIO.replace("repeats: 2", "repeats: 2\n    processes: 3\n    own_prompts: false")
    file.write_text(one + SCENARIO.partition("parts:\n")[2].replace("name: one", "name: two"))
    return file


def no_machine():
    """A machine that the starting process must not touch."""
    broken = fake_machine(None)
    return replace(broken, profile=lambda scenario: pytest.fail("the starting process opened a device"))


def test_every_share_is_taken_by_one_fresh_process(mixed, shape, tmp_path):
    """One begins the run; then each share gets its own engine, in order; samples and session entries name the process."""
    spawn = InThisProcess(shape)
    held = read_run(run(mixed, tmp_path / "out", machine=no_machine(), spawn=spawn))
    shares = [None, Share(part="one", process=0), Share(part="two", process=0)]
    shares += [Share(part="one", process=i) for i in (1, 2)]
    assert [errand.share for errand in spawn.errands] == shares
    assert [len(engine.decoded) for engine in spawn.engines] == [0] + [24 + 8] * 4
    counted = Counter((s.case_id.partition("/")[0], s.process) for s in held.samples if not s.warmup)
    assert counted == {("one", 0): 24, ("one", 1): 24, ("one", 2): 24, ("two", 0): 24}
    assert len({s.key for s in held.samples}) == len(held.samples)
    asked = [Counter((prompts, seed) for _, prompts, seed in engine.decoded) for engine in spawn.engines]
    assert asked[1] == asked[3] == asked[4], "the same prompts and seeds in every process"
    for event, count in (("engine", 1), ("measured_passes", 5 + 2)):  # among 80 s of decoding, before and behind
        assert [s["process"] for s in held.events(event, "one")] == [i for i in range(3) for _ in range(count)]
    starts = [(s["part"], s["process"], s["pid"]) for s in held.sessions if s["event"] == "start"]
    assert starts == [("one", 0, os.getpid()), ("two", 0, os.getpid()), ("one", 1, os.getpid()), ("one", 2, os.getpid())]


def test_a_failed_process_ends_the_run_and_the_next_one_takes_what_is_missing(mixed, shape, tmp_path):
    """Part two breaks after 10 of its decodes (8 warm): two samples are kept, process 0 of part one is not taken again."""
    out = tmp_path / "out"
    with pytest.raises(RuntimeError):
        run(mixed, out, spawn=InThisProcess(shape, fail_at=32 + 10, error=RuntimeError("boom")))
    before = (out / "samples.jsonl").read_bytes()
    assert len(read_run(out).samples) == 42
    again = InThisProcess(shape)
    said = []
    progress = Progress()
    progress.note = said.append
    run(mixed, out, progress, spawn=again)
    assert [errand.share for errand in again.errands] == [Share(part="two", process=0)] + [
        Share(part="one", process=i) for i in (1, 2)
    ]
    assert said == [
        f"continuing {out}: 42 samples are kept",
        "part two, fresh process 1 of 1",
        "part one, fresh process 2 of 3",
        "part one, fresh process 3 of 3",
    ]
    assert (out / "samples.jsonl").read_bytes().startswith(before)
    keys = [s.key for s in read_run(out).samples if not s.warmup]
    assert len(keys) == len(set(keys)) == 4 * 24
    finished = InThisProcess(shape)
    run(mixed, out, spawn=finished)
    assert finished.errands == []


class Dying(InThisProcess):
    """Whose first processes of part two decode with these engines, one each, which raise, and end as ``end`` says."""

    def __init__(self, shape, dying, end):
        super().__init__(shape)
        self.dying, self.end = dying, end

    def __call__(self, errand):
        """Something is begun, and then the process is no more; half a line of its is in the record."""
        if errand.share is None or errand.share.part != "two" or not self.dying:
            return super().__call__(errand)
        self.errands.append(errand)
        with pytest.raises(RuntimeError, match="dies"):
            run_errand(errand, Progress(), fake_machine(self.dying.pop(0)))
        with (errand.directory / "events.jsonl").open("a") as file:
            file.write('{"session": {"event": "meas')
        return self.end()


def hung():
    """As a Spawner tells of it."""
    raise HungError("nothing came for 5 s (deadline_s), so its process was ended")


@pytest.mark.parametrize(
    ("end", "reason"),
    [(lambda: -signal.SIGKILL, "its process was killed (SIGKILL; "), (hung, "nothing came for 5 s (deadline_s)")],
)
def test_a_process_that_is_killed_or_hangs_is_tried_again_and_the_run_goes_on(mixed, shape, tmp_path, end, reason):
    """Once: everything is taken, and the failed try is in the record. Every time: its case is left out, the others are not."""
    spawn = Dying(shape, [FakeEngine(shape, fail_at=10, error=RuntimeError("dies"))], end)
    held = read_run(run(mixed, tmp_path / "once", spawn=spawn))
    assert len(set(keys_of(held))) == len(keys_of(held)) == 4 * 24 and held.outcomes == []
    [attempt] = [one for one in held.sessions if one["event"] == "attempt"]
    assert attempt["reason"].startswith(reason) and attempt["case_id"].startswith("two/")
    assert [errand.share for errand in spawn.errands[2:4]] == [Share(part="two", process=0)] * 2
    twice = [FakeEngine(shape, fail_at=0, error=RuntimeError("dies")) for _ in range(2)]
    held = read_run(run(mixed, tmp_path / "always", spawn=Dying(shape, twice, end)))
    [outcome] = held.outcomes
    assert outcome.reason.startswith(reason) and outcome.reason.endswith("(attempt 2 of 2)")
    assert {key[0] for key in keys_of(held)} == {case.case_id for case in held.header.cases} - {outcome.case_id}
    assert len(set(keys_of(held))) == len(keys_of(held)) < 4 * 24


class MeasuringPasses(FakeEngine):
    """An engine whose process dies, or is hung, when passes are measured for the n-th time; no case is begun then."""

    def __init__(self, shape, n):
        super().__init__(shape)
        self.left = n

    def measure_passes(self, sizes, beside):
        """As many times as it lives."""
        self.left -= 1
        if not self.left:
            raise RuntimeError("dies")
        return super().measure_passes(sizes, beside)


@pytest.mark.parametrize(
    ("end", "reason"),
    [(lambda: -signal.SIGKILL, "its process was killed (SIGKILL; "), (hung, "nothing came for 5 s (deadline_s)")],
)
@pytest.mark.parametrize("at", [1, 2, 7])
def test_a_process_that_is_lost_at_no_case_is_followed_by_another_as_often_as_a_case_is_tried(
    mixed, shape, tmp_path, end, reason, at
):
    """No case is charged with it, the loss is in the record; be it before the first sample, among them, or behind the last."""
    said, out = [], tmp_path / "out"
    progress = Progress()
    progress.note = said.append
    spawn = Dying(shape, [MeasuringPasses(shape, at)], end)
    held = read_run(run(mixed, out, progress, spawn=spawn))
    assert len(set(keys_of(held))) == len(keys_of(held)) == 4 * 24 and held.outcomes == [] and not spawn.dying
    assert held.unended is None, "a process that was lost behind its last sample did not say that it ended"
    [loss] = held.events("lost", "two")
    assert loss["reason"].startswith(reason) and (loss["process"], loss["lost"], loss["of"]) == (0, 1, 2)
    assert not held.events("attempt", "two")
    followed = [one for one in said if one.endswith("; another one takes what is missing")]
    assert len(followed) == (at < 7), "behind the last sample nothing is missing"
    assert len([errand for errand in spawn.errands if errand.share == Share(part="two", process=0)]) == 1 + len(followed)


def test_too_many_processes_lost_at_no_case_end_the_run_and_the_same_command_goes_on(mixed, shape, tmp_path):
    """Though each has taken something: one that hangs whenever passes are measured would need a deadline for every few samples.
    The count is that of all runs of the directory.
    """
    spawn = Dying(shape, [MeasuringPasses(shape, 2) for _ in range(4)], hung)
    with pytest.raises(ProcessEndedError, match=r"^part two, fresh process 1 of 1: .*; finished samples are kept"):
        run(mixed, tmp_path / "out", spawn=spawn)
    before = read_run(tmp_path / "out")
    assert len(spawn.dying) == 2 and 24 < len(keys_of(before)) < 48 and len(before.events("lost", "two")) == 2
    with pytest.raises(ProcessEndedError):
        run(mixed, tmp_path / "out", spawn=spawn)
    assert len(spawn.dying) == 1 and len(keys_of(read_run(tmp_path / "out"))) > len(keys_of(before))
    held = read_run(run(mixed, tmp_path / "out", spawn=InThisProcess(shape)))
    assert len(set(keys_of(held))) == len(keys_of(held)) == 4 * 24
    assert [one["lost"] for one in held.events("lost", "two")] == [1, 2, 3]


MARKING = """
import sys
from pathlib import Path
from harness.record.store import RunStore
store = RunStore(Path(sys.argv[1]))
while True:
    store.mark("a/long/case/with/a/name")
    store.mark("b/short")
"""


def test_what_is_marked_is_never_half_of_it(tmp_path):
    """A shorter mark ends where it ends; and wherever a process is stopped, there is one. Between a truncation and what is then
    written there was none: a process killed there had been at no case, which ended its run.
    """
    store = RunStore(tmp_path)
    assert store.marked() == ""
    for mark in ("a/long/case/with/a/name", "b/ü", "c", ""):
        store.mark(mark)
        assert store.marked() == mark
    with subprocess.Popen([sys.executable, "-c", MARKING, str(tmp_path)], cwd=ROOT) as process:
        try:
            while not store.marked():
                assert process.poll() is None
                time.sleep(0.001)
            seen = Counter()
            for _ in range(300):
                process.send_signal(signal.SIGSTOP)
                os.waitid(os.P_PID, process.pid, os.WSTOPPED)
                seen[store.marked()] += 1
                process.send_signal(signal.SIGCONT)
                time.sleep(0.001)
        finally:
            process.kill()
    assert set(seen) == {"a/long/case/with/a/name", "b/short"}


class SlowChild:
    """A child on a pretended clock that leaves a file behind every so many seconds, for so long; then it leaves nothing."""

    def __init__(self, folder, every_s, until_s, ends_s=None):
        self.folder, self.every_s, self.until_s, self.ends_s = folder, every_s, until_s, ends_s
        self.now_s = 0.0

    def wait(self, timeout=None):
        """Time passes."""
        before, self.now_s = self.now_s, self.now_s + timeout
        assert self.now_s < 10_000, "it is never ended"
        if self.now_s // self.every_s > before // self.every_s and self.now_s < self.until_s:
            (self.folder / "samples.jsonl").write_text(f"{self.now_s}")
        if self.ends_s is not None and self.now_s >= self.ends_s:
            return 0
        raise subprocess.TimeoutExpired("child", timeout)

    def watched(self, deadline_s):
        """What it ends with, under eyes that look four times in a deadline."""
        patience = subprocesses.Watchdog(self.folder, deadline_s)
        while True:
            try:
                return self.wait(deadline_s / 4)
            except subprocess.TimeoutExpired:
                patience.look()


def test_a_child_that_leaves_nothing_behind_so_long_is_ended(tmp_path, monkeypatch):
    """One that adds to its record every 4 s may take an hour on a deadline of 5 s; one that stops doing so is killed."""
    steady = SlowChild(tmp_path, 4, 10_000, ends_s=3600)
    monkeypatch.setattr(subprocesses.time, "monotonic", lambda: child.now_s)
    child = steady
    assert steady.watched(5.0) == 0
    child = stuck = SlowChild(tmp_path, 4, 100)
    with pytest.raises(HungError, match=r"nothing came for 5 s \(deadline_s\), so its process was ended"):
        stuck.watched(5.0)
    assert 101 < stuck.now_s < 105


def test_nobody_else_writes_from_the_first_process_to_the_last(mixed, shape, tmp_path):
    """Before, between and behind the errands the directory is locked; afterwards it is free."""
    out = tmp_path / "out"
    inner = InThisProcess(shape)

    def refused():
        with pytest.raises(StorageError, match="another sbd run is writing here"), RunStore(out) as other:
            other.hold()

    def spawn(errand):
        refused()
        status = inner(errand)
        refused()
        return status

    between = Progress()
    between.note = lambda message: refused()
    run(mixed, out, between, spawn=spawn)
    assert len(inner.errands) == 5
    with RunStore(out) as other:
        other.hold()


def test_time_left_is_that_of_all_processes(mixed, shape, tmp_path):
    """Each process announces its own samples and, apart, those of the shares after it, with the models still to be opened.

    The number of all is the same in every process.
    """
    out = tmp_path / "out"
    announced = []

    class Listening(Progress):
        """Keeps what is announced."""

        def start(self, case_ids, later=(), planned=None, starts=0, names=None, known_s=None):
            """Counts."""
            announced.append((len(case_ids), len(later), planned, starts))

    def spawn(errand):
        run_errand(errand, Listening(), fake_machine(FakeEngine(shape)))
        return 0

    run(mixed, out, spawn=spawn)
    of_a_share = 24 + 4 * 4
    assert announced == [(of_a_share, left * of_a_share, 4 * of_a_share, 1 + left) for left in (3, 2, 1, 0)]


def test_another_number_of_processes_is_another_scenario(mixed, shape, tmp_path):
    """The message names the key."""
    out = run(mixed, tmp_path / "out", spawn=InThisProcess(shape))
    mixed.write_text(mixed.read_text().replace("processes: 3", "processes: 4"))
    with pytest.raises(UserError, match=r"another scenario \(parts.0.processes\)"):
        run(mixed, out, spawn=InThisProcess(shape))


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (2, 2, "exit status 2 (its message stands above)"),
        (5, 5, "exit status 5"),
        (1, 5, "exit status 1"),
        (-9, 5, "exit status -9 (SIGKILL; Linux kills so what asks for more memory"),
        (-11, 5, "(SIGSEGV)"),
    ],
)
def test_how_a_process_ended_is_told(status, code, words):
    """Exit status, cause as far as it is known, what is kept, what to do; a user's mistake stays one."""
    with pytest.raises(ProcessEndedError) as caught:
        expect_success(status, "part one, fresh process 2 of 3")
    message = str(caught.value)
    assert message.startswith("part one, fresh process 2 of 3: ended with") and words in message
    assert "finished samples are kept" in message and caught.value.exit_code == code
    with pytest.raises(KeyboardInterrupt):
        expect_success(130, "x")
    expect_success(0, "x")


def test_a_child_finds_the_program_that_started_it(tmp_path):
    """A folder called harness where the user stands is not taken for it."""
    (tmp_path / "harness").mkdir()
    (tmp_path / "harness" / "__init__.py").write_text("raise SystemExit('the wrong one')")
    errand = ChildTask(scenario=Path("s.yaml"), directory=Path("o"), share=None, lent=(3, 4))
    command = list(FreshInterpreter(debug=True).command(errand))
    assert command[command.index(PROGRAM) + 2 : -1] == ["--debug", "run-process"]
    words = [*command[: command.index(PROGRAM) + 2], "--version"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.startswith("sbd 0.")


def test_a_child_that_did_not_hear_the_interrupt_is_told(monkeypatch):
    """Where only the starting process got the signal, the child gets it after the grace, and is waited for."""
    monkeypatch.setattr(subprocesses, "GRACE_S", 0.05)
    told = "signal.signal(signal.SIGINT, lambda *_: sys.exit(130))"
    ending = f"import signal, sys, time\n{told}\nprint(flush=True)\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", ending], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline()
        subprocesses._interrupt(child)
        assert child.returncode == 130


INTERRUPTED = """
import sys
from harness import cli
from harness.runner import subprocesses
idle = "import sys, time; print('begun', file=sys.stderr, flush=True); time.sleep(60)"
subprocesses.FreshInterpreter.command = lambda self, errand: [sys.executable, "-c", idle]
sys.argv = ["sbd", "run", *sys.argv[1:]]
cli.main()
"""


def test_ctrl_c_ends_both_and_is_said_once(mixed, tmp_path):
    """A terminal sends it to the starting process and to its child; exit code 130, one message, no traceback of ours."""
    pytest.importorskip("transformers")
    command = [sys.executable, "-c", INTERRUPTED, str(mixed), "--out", str(tmp_path / "out")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=ROOT) as process:
        assert process.stderr is not None and process.stderr.readline() == "begun\n"
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate()
    assert process.returncode == 130
    assert err.count("interrupted: finished samples are kept; the same command continues the run") == 1


class PickledHere:
    """An executor that does here what it is given, but for what another process would not get."""

    started = 0

    def __init__(self, *_):
        PickledHere.started += 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def submit(self, function, *arguments):
        """Both ways by pickle."""
        found: Future[object] = Future()
        found.set_result(pickle.loads(pickle.dumps(function(*pickle.loads(pickle.dumps(arguments))))))
        return found


def test_a_calibration_is_measured_in_another_process_and_read_in_this_one(calibrated, monkeypatch):
    """To read one, another process would load torch and transformers first: 6 s at the start of every run. To measure one, it
    gets all that it needs; and what number of threads an earlier part asked for is nothing to a part that asks for none.
    """
    import torch

    from harness.runner import local_machine

    [file] = Path(calibrated["XDG_CACHE_HOME"]).glob("sbd/*.json")
    kept = Calibration.model_validate_json(file.read_text())
    asked = []
    monkeypatch.setenv("XDG_CACHE_HOME", calibrated["XDG_CACHE_HOME"])
    monkeypatch.setattr(local_machine, "ProcessPoolExecutor", PickledHere)
    monkeypatch.setattr(local_machine, "load_or_calibrate", lambda *arguments: asked.append(arguments) or kept)
    monkeypatch.setattr(local_machine, "OWN_THREADS", 1)
    monkeypatch.setattr(PickledHere, "started", 0)
    said, progress = [], Progress()
    progress.note = said.append
    case = make_plan(Scenario.model_validate(yaml.safe_load(REAL))).cases[0]
    assert case.shape is not None
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        part = case.part.model_copy(update={"threads": None})
        assert local_machine.this_machine().calibrate(part, case.shape, progress, []) == kept.model_dump(mode="json")
        local_machine.this_machine().open_engine(part)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
    assert said == [f"part one: calibration for float32 of {kept.created_at}, kept"] and PickledHere.started == 0
    file.unlink()
    assert local_machine.this_machine().calibrate(case.part, case.shape, progress, []) == kept.model_dump(mode="json")
    assert said[1].startswith("part one: calibrating this machine for float32") and PickledHere.started == 1
    [(device, dtype, threads, model_bytes, how)] = asked
    assert (device, dtype, threads, model_bytes) == ("cpu", "float32", 1, kept.model_bytes) and callable(how.steps)


def child_of(pid: int) -> int | None:
    """The process that ``pid`` has started, if there is one."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == pid and state != "Z":
            return int(stat.parent.name)
    return None


@contextmanager
def in_the_middle(command: list[str], environment: dict[str, str], out: Path, samples: int) -> Iterator[subprocess.Popen[str]]:
    """The command, once it has taken so many samples in all and more are to come."""
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        until(process, out, samples)
        yield process


def until(process: subprocess.Popen[str], out: Path, samples: int) -> None:
    """Wait until there are so many samples, and the command is still at work."""
    file = out / "samples.jsonl"
    while process.poll() is None and (not file.exists() or file.read_bytes().count(b"\n") < samples):
        time.sleep(0.01)
    assert process.poll() is None, process.stderr.read() if process.stderr else ""


def keys_of(held: Run) -> list[object]:
    """Counting samples only: warm-ups are taken again by whoever goes on."""
    return [sample.key for sample in held.samples if not sample.warmup]


@pytest.mark.full
def test_killed_orphaned_and_finished(tmp_path, calibrated):
    """kill -9 of the first child, after which the run goes on by itself; kill -9 of the starter during the second, then to the
    end: nothing is lost or taken twice, nothing keeps running, and every process wrote the same tokens.
    """
    file, out = tmp_path / "real.yaml", tmp_path / "out"
    file.write_text(REAL)
    command = [sys.executable, "-m", "harness", "run", str(file), "--out", str(out), "--no-report"]
    with in_the_middle(command, calibrated, out, 5) as process:  # of 36, so that it is at work for long
        child = child_of(process.pid)
        assert child is not None
        os.kill(child, signal.SIGKILL)
        first = read_run(out)
        until(process, out, 40 + 6)
        [attempt] = [one for one in read_run(out).sessions if one["event"] == "attempt"]
        assert "its process was killed (SIGKILL; Linux kills so" in attempt["reason"] and attempt["process"] == 0
        child = child_of(process.pid)
        assert child is not None
        process.kill()
        deadline = time.monotonic() + 60
        while is_running(child) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not is_running(child), "a killed run leaves nothing running"
    second = read_run(out)
    assert second.samples[: len(first.samples)] == first.samples
    subprocess.run(command, env=calibrated, check=True, cwd=ROOT, capture_output=True)
    held = read_run(out)
    proved = integrity_of(held)
    assert proved.words == "sealed, not signed" and proved.contradictions == ()
    assert held.samples[: len(second.samples)] == second.samples
    plan = make_plan(Scenario.model_validate(held.header.scenario))
    assert sorted(keys_of(held)) == sorted(slot.key for slot in plan.slots() if not slot.warmup)
    assert len(set(keys_of(held))) == len(keys_of(held)) == 2 * 2 * 16
    starts = [s for s in held.sessions if s["event"] == "start"]
    assert [s["process"] for s in starts] == [0, 0, 1, 1] and len({s["pid"] for s in starts}) == 4
    wrote = {}
    for sample in held.samples:
        wrote.setdefault((sample.case_id, sample.group), set()).add(tuple(sample.rows[0].output_ids))
    assert len(wrote) == 32 and all(len(outputs) == 1 for outputs in wrote.values())


def test_processes_that_share_a_model_listen_on_the_loopback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the variables that gloo and NCCL read; the user's own have precedence."""
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth7")
    told = 'import os; open(os.environ["RANK"], "w").write(os.environ["GLOO_SOCKET_IFNAME"] + os.environ["NCCL_SOCKET_IFNAME"])'
    monkeypatch.chdir(tmp_path)
    assert [child.wait() for child in subprocesses.start([sys.executable, "-c", told], 2, tmp_path, [])] == [0, 0]
    assert {Path(rank).read_text() for rank in "01"} <= {"loeth7", "lo0eth7"}
