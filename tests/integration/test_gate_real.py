"""The benchmark of real gates: its machinery with pretended commands, and its planted regressions for real, untimed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import gate_real
from harness.progress import Progress
from harness.record.schema import Run
from harness.record.store import read_run
from harness.regression.counted import counted
from harness.regression.gate import revisions
from tests.helpers.synthetic_run import NTP
from tests.helpers.two_runs import MORE_PASSES, noisy, stored, two_arms

pytestmark = pytest.mark.long

RUN = two_arms()
SCENARIO = """\
version: 1
name: tiny
parts:
  - &part
    name: real
    model: {random: {name: tiny, layers: 2, hidden: 32, intermediate: 64, heads: 2, kv_heads: 1, head_dim: 16, vocab: 64}}
    dtype: float32
    threads: 1
    timed: false
    arms: [{method: ntp}, {method: sbd, block_size: 8, gamma: [0, 0.1]}]
    workload: {synthetic: {prompt_tokens: 8}, prompts: 2, max_new_tokens: 24}
  - <<: *part
    name: replayed
    arms: [{method: ntp}, {method: sbd, block_size: 8, acceptance: {replay: {nfe_speedup: 2.0}}}]
"""


class Modules:
    """A launcher that knows the benchmark's commands by the module they run."""

    def __init__(self, **measured: Callable[[int], Run]) -> None:
        self.measured, self.launched = measured, list[str]()

    def __call__(self, command: str, stdout: Path, stderr: Path) -> int:
        """Store the run of that module."""
        match = re.search(r"-m (\S+) run gate --no-report --out (.+)", command)
        assert match and command.startswith("cd ")
        name = match[1].rpartition(".")[2]
        number = self.launched.count(name)
        self.launched.append(name)
        stored(self.measured[name](number), Path(shlex.split(match[2])[0]))
        return 0


def machinery(work: Path, slow: Callable[[int], Run], extra: Callable[[int], Run]) -> tuple[dict[str, float], Modules]:
    """The figures of three A/A gates and the two planted ones."""
    launcher = Modules(harness=noisy(RUN, "plain"), slow_sampler=slow, extra_pass=extra)
    return gate_real.figures(work, 3, 10, 10, Progress(), launcher), launcher


def test_the_figures_are_those_of_what_was_planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No A/A fails and both regressions are found; asked again, nothing is run twice."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(revisions.secrets, "randbits", lambda bits: 0)
    extra = two_arms(arms=(NTP, MORE_PASSES))
    slow = noisy(RUN, "slow", factor=1.1, method="sbd")
    found, _ = machinery(tmp_path / "work", slow, lambda n: extra)
    assert found == {
        "aa_gates": 3,
        "aa_pairs": 10,
        "aa_failed": 0,
        "aa_inconclusive": 0,
        "aa_void": 0,
        "slowdown_found": 1,
        "slowdown_found_by_time": 1,
        "extra_pass_found": 1,
    }
    again, launcher = machinery(tmp_path / "work", slow, lambda n: extra)
    assert again == found and launcher.launched == []


def test_a_regression_named_wrongly_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NTP slowed down too, and passes of NTP: the gates fail, but not for what was planted."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(revisions.secrets, "randbits", lambda bits: 0)
    found, _ = machinery(tmp_path / "a", noisy(RUN, "slow", factor=1.1), lambda n: two_arms(blocks=5))
    assert (found["slowdown_found"], found["extra_pass_found"]) == (0, 0)
    found, _ = machinery(tmp_path / "b", noisy(RUN, "slow"), lambda n: RUN)
    assert (found["slowdown_found"], found["extra_pass_found"]) == (0, 0)


def test_a_regression_found_late_is_not_found(tmp_path: Path) -> None:
    """Counts are to fail on the first pair."""
    cell = {"arm": "SBD k=16 γ=0.1"}
    answer = {"judgements": [{"metric": "passes", "cell": cell, "state": "missed"}]}
    assert gate_real.extra_pass_found(answer, tmp_path)
    (tmp_path / "pair-02").mkdir()
    assert not gate_real.extra_pass_found(answer, tmp_path)


def decoded(module: str, folder: Path) -> Run:
    """A run of the tiny scenario by a real process of this module."""
    scenario = folder / "tiny.yaml"
    scenario.write_text(SCENARIO)
    out = folder / module
    command = [sys.executable, "-m", module, "run", str(scenario), "--no-report", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=gate_real.ROOT, timeout=300)
    assert done.returncode == 0, done.stderr
    return read_run(out)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Nothing planted."""
    return decoded("harness", tmp_path_factory.mktemp("plain"))


def test_the_planted_pass_costs_one_pass_per_block_and_changes_no_output(tmp_path: Path, plain: Run) -> None:
    """In real processes: SBD's passes grow by its blocks (three of 8 in 24 tokens, two prompts), NTP is untouched."""
    extra = decoded("benchmarks.planted.extra_pass", tmp_path)
    before, after = ({metric.key: count.value for metric, count in counted(run).items()} for run in (plain, extra))
    changed = {key: (before[key], after[key]) for key in before if before[key] != after[key]}
    passes = {key: new - old for key, (old, new) in changed.items() if key.startswith("passes:")}  # type: ignore[operator]
    assert len(passes) == 3 and all("sbd" in key and more == 2 * 3 for key, more in passes.items())
    assert {key.partition(":")[0] for key in changed} == {"passes", "final_tokens_per_pass", "modelled_bytes"}


def test_the_slow_sampler_decodes_the_same(tmp_path: Path, plain: Run) -> None:
    """Nothing that is counted changes; that it takes longer is the benchmark's to show."""
    assert counted(decoded("benchmarks.planted.slow_sampler", tmp_path)) == counted(plain)
