"""`sbd run --engines` with a server that speaks vLLM's protocol: its samples, its line, and what a later run is told."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harness.record.store import read_run
from tests.helpers import ROOT
from tests.helpers.command import Cli
from tests.helpers.fake_machine import uncalibrated

SCENARIO = """
version: 1
name: beside
parts:
  - name: one
    model: {reference: sbd}
    dtype: float32
    arms: [{method: ntp}, {method: sbd, block_size: 16, gamma: 0.1}]
    workload: {tasks: [word_problems], prompts: 2, max_new_tokens: 8}
    baseline_check: 2
    warmup: 1
    health: {kernel: 1000, steal: 1}
"""
PROGRAM = """#!/bin/sh
while [ "$1" != --port ]; do shift; done
exec {python} {server} "$2" none
"""


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The scenario as a file; a vLLM that decodes nothing is installed, llama.cpp is not, and nothing is kept yet."""
    python = tmp_path / "python"
    python.write_text(PROGRAM.format(python=sys.executable, server=ROOT / "tests" / "helpers" / "protocol_server.py"))
    python.chmod(0o755)
    monkeypatch.setenv("SBD_VLLM_PYTHON", str(python))
    monkeypatch.delenv("SBD_LLAMA_SERVER", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("harness.runner.runner.machine_here", lambda logs: uncalibrated())
    monkeypatch.setattr("harness.analysis.trust.health.MOST_TOGETHER", 1.0)  # a busy machine reads pieces late
    monkeypatch.setenv("COLUMNS", "400")
    file = tmp_path / "beside.yaml"
    file.write_text(SCENARIO)
    return file


def test_ntp_is_held_against_what_is_installed_and_the_result_is_kept(cli: Cli, scenario: Path, tmp_path: Path) -> None:
    """The tokens of that server are not NTP's, which voids nothing; the next run of the part is told its figure."""
    assert cli(f"run {scenario} --engines --out {tmp_path}/first") == 0
    assert "the best engine here (" in cli.out and "of the best NTP" in cli.out, cli.out
    held = read_run(tmp_path / "first")
    of_it = [one for one in held.samples if one.case_id.endswith("engine-vllm") and not one.warmup]
    assert len(of_it) == 2 and all(one.decode_s and one.rows[0].output_tokens == 8 for one in of_it)
    [outcome] = held.outcomes
    assert outcome.case_id.endswith("engine-llama_cpp") and "set SBD_LLAMA_SERVER" in outcome.reason
    [event] = held.events("beside", "one")
    assert event["servers"]["vllm"]["version"] == "0-protocol-only"
    assert cli(f"run {scenario} --no-report --out {tmp_path}/second") == 0
    [remark] = read_run(tmp_path / "second").events("remark", "one")
    assert remark["remark"].startswith(f"on {datetime.now(UTC):%Y-%m-%d} NTP was ")
    assert "this run asked none" in remark["remark"]
