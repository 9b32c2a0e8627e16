"""A method and a solver from a package of their own, through the whole program with nothing in harness/ changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import ROOT

pytestmark = pytest.mark.long

pytest.importorskip("transformers")
EXAMPLE = ROOT / "examples" / "my_method"
SCENARIO = """
version: 1
name: my_method
parts:
  - name: part
    model: {reference: sbd}
    dtype: float64
    timed: false
    arms:
      - {method: ntp}
      - {method: repetition, draft_tokens: [1, 3]}
      - {method: sbd, block_size: 4, solver: leftmost, tokens: 2}
    workload: {tasks: [word_problems], prompts: 6, max_new_tokens: 48}
claims:
  - {metric: nfe_speedup, min: 1.2, where: {arm: "SBD k=4 leftmost tokens=2"}}
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the example as its wheel installs it."""
    folder = tmp_path_factory.mktemp("example")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "install", "--no-build-isolation", "--no-deps"]
    subprocess.run([*pip, "--no-index", "--target", str(folder), str(EXAMPLE)], check=True, capture_output=True, text=True)
    return folder


def sbd(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The program beside what ``folder`` holds."""
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "harness", *arguments]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)


def test_plan_run_report_and_verify_know_it(installed: Path, tmp_path: Path) -> None:
    """The toy writes what NTP writes, in no more passes; the solver's blocks of 4 take two passes, two tokens each."""
    file, run = tmp_path / "scenario.yaml", tmp_path / "run"
    file.write_text(SCENARIO, encoding="utf-8")
    plan = sbd(installed, "plan", "--all", str(file))
    assert plan.returncode == 0 and "part/word_problems/b1/repetition-n3" in plan.stdout, plan.stderr
    done = sbd(installed, "run", str(file), "--out", str(run))
    assert done.returncode == 0, done.stderr
    cell = json.loads((run / "report.json").read_text(encoding="utf-8"))["cells"][0]
    arms = {arm["label"]: arm for arm in cell["arms"]}
    for n in (1, 3):
        found = arms[f"repetition n={n}"]
        assert found["identical_to_ntp"]["value"] == 1 and 1 <= found["nfe_speedup"]["value"] <= n + 1
    assert arms["SBD k=4 leftmost tokens=2"]["nfe_speedup"]["value"] == pytest.approx(2, abs=0.3)
    assert "repetition n=3" in (run / "report.html").read_text(encoding="utf-8")
    judged = sbd(installed, "verify", str(run))
    assert judged.returncode == 0 and "confirmed" in judged.stdout, judged.stdout + judged.stderr


def test_without_it_the_run_is_still_shown_and_the_scenario_refused(installed: Path, tmp_path: Path) -> None:
    """A record needs no plug-in; a scenario that names an unknown method is told which there are."""
    file = tmp_path / "scenario.yaml"
    file.write_text(SCENARIO, encoding="utf-8")
    refused = sbd(tmp_path, "plan", str(file))
    assert refused.returncode == 2 and "'repetition'" in refused.stderr and "self_speculation" in refused.stderr


def test_a_broken_plug_in_is_named(installed: Path, tmp_path: Path) -> None:
    """Which package, which entry point, what to do; no traceback."""
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[sbd.methods]\nnothing = no_such_module:METHOD\n")
    refused = sbd(tmp_path, "plan", "quickstart")
    assert refused.returncode == 2 and "Traceback" not in refused.stderr
    assert all(word in refused.stderr for word in ("nothing = no_such_module:METHOD", "broken", "uninstall"))
