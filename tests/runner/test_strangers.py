"""NTP is held against engines of others within a run: a fake machine and planted times; what is absent has its reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.analysis.answer import compare
from harness.errors import MissingExtraError, UserError
from harness.record.store import read_run
from harness.runner import sampling
from harness.runner.job import Job
from harness.runner.options import RunOptions
from harness.runner.protocols import Machine
from harness.runner.runner import run
from harness.scenario.part import Part
from tests.helpers.fake_machine import SCENARIO as RANDOM
from tests.helpers.fake_machine import FakeEngine, fake_machine

SCENARIO = """
version: 1
name: beside
parts:
  - name: one
    model: {reference: sbd}
    dtype: float32
    threads: 3
    arms: [{method: ntp}, {method: sbd, block_size: 8, gamma: 0.1}]
    workload: {synthetic: {prompt_tokens: 4}, prompts: 6, max_new_tokens: 3}
    batch_sizes: [1, 2]
    baseline_check: 6
"""


class Planted(FakeEngine):
    """An engine whose every decode takes so many seconds."""

    def __init__(self, decode_s: float) -> None:
        super().__init__()
        self.decode_s = decode_s

    def decode(self, case, prompts, seed):
        """The fixed answer in the planted time."""
        decoded = super().decode(case, prompts, seed)
        half = self.decode_s / 2 * (1 + 0.001 * (len(self.decoded) % 3))  # no two take exactly the same time
        return replace(decoded, decode_s=2 * half, forward_s=(0.5, half, half), sampler_s=(0.0, 0.0, 0.0))


def machine_with(opened: list[Part], **engines: float) -> Machine:
    """NTP takes 2 s a decode and these engines so many; any other is not installed."""

    def open_engine(part: Part) -> FakeEngine:
        opened.append(part)
        for name in part.servers:
            if name not in engines:
                raise MissingExtraError(f"{name} is not installed; set SBD_IT")
            return Planted(engines[name])
        return Planted(2.0)

    return replace(fake_machine(), open_engine=open_engine)


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The scenario as a file, on a machine where torch has three threads."""
    monkeypatch.setattr(sampling, "snapshot", lambda: {"threads": {"torch": 3}})
    file = tmp_path / "beside.yaml"
    file.write_text(SCENARIO)
    return file


def asked(scenario: Path) -> Job:
    """As `sbd run --engines` asks."""
    return Job.of(scenario, RunOptions(engines=True))


@pytest.mark.parametrize(("engine_s", "state"), [(2 / 1.5, "slow"), (2 / 1.05, "kept_up"), (2.4, "kept_up")])
def test_a_planted_engine_is_timed_in_turn_and_judged(engine_s: float, state: str, scenario: Path, tmp_path: Path) -> None:
    """One that is 1.5 times as fast makes the part void for speed, one that is 1.05 times as fast does not."""
    opened: list[Part] = []
    folder = run(asked(scenario), tmp_path / "out", machine=machine_with(opened, llama_cpp=engine_s))
    held = read_run(folder)
    cells = [cell for cell in compare(held).cells if cell.is_summary]
    assert [cell.baseline_check.state for cell in cells] == [state, state]
    assert [cell.baseline_check.has_engines for cell in cells] == [True, True]
    [server] = [part.servers["llama_cpp"] for part in opened if "llama_cpp" in part.servers]
    assert server.arguments == ("--threads", "3", "--parallel", "2", "--ctx-size", "14"), "started once for the largest request"
    taken = [one.case_id.rpartition("/")[2] for one in held.samples if "/b1/" in one.case_id and not one.warmup]
    assert [taken[at : at + 5].count("engine-llama_cpp") for at in range(0, 30, 5)] == [1] * 6, "in turn with the arms"
    assert [one["seen"] for one in held.events("beside", "one")] == ["one"]
    assert held.header.command.endswith(" --engines")


def test_what_is_not_installed_has_its_reason_and_stops_nothing(scenario: Path, tmp_path: Path) -> None:
    """Every other case has its samples, and the run is finished."""
    opened: list[Part] = []
    machine = machine_with(opened)
    held = read_run(run(asked(scenario), tmp_path / "out", machine=machine))
    reasons = {one.case_id: one.reason for one in held.outcomes}
    assert len(reasons) == 4 and all("is not installed; set SBD_" in reason for reason in reasons.values())
    cases = {one.case_id for one in held.header.cases if not one.case_id.rpartition("/")[2].startswith("engine-")}
    assert {one.case_id for one in held.samples} == cases
    assert [list(part.servers) for part in opened if part.servers] == [["llama_cpp"], ["vllm"]], "once, for both batch sizes"
    before = len(opened)
    run(asked(scenario), tmp_path / "out", machine=machine)
    assert len(opened) == before, "nothing is tried again"


def test_a_scenario_without_a_checkpoint_has_nothing_to_hold_it_against(tmp_path: Path) -> None:
    """Random weights are in no file; nothing is begun."""
    file = tmp_path / "fake.yaml"
    file.write_text(RANDOM)
    with pytest.raises(UserError, match="--engines: no part decodes a checkpoint"):
        run(asked(file), tmp_path / "out", machine=machine_with([]))
    assert not (tmp_path / "out" / "run.json").exists()


def test_a_plain_run_starts_no_engine_and_has_the_same_digest(scenario: Path, tmp_path: Path) -> None:
    """The default costs nothing: not a case, not a key of the record."""
    opened: list[Part] = []
    held = read_run(run(scenario, tmp_path / "out", machine=machine_with(opened)))
    assert not any(part.servers for part in opened)
    assert "baseline_engines" not in held.header.scenario["parts"][0]
    assert not any(case.arm.server for case in held.header.cases) and not held.outcomes
