"""A real vLLM, with n-gram speculation and without: counted, timed, judged, and its answers held against its own baseline's.

Needs SBD_VLLM_PYTHON and the model smollm2-135m; `make test-serving` brings both. Three starts of two servers take minutes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from harness.analysis.answer import compare
from harness.analysis.results import ArmResult, Comparison
from harness.record.schema import Run
from harness.record.store import read_run
from tests.helpers import ROOT

pytestmark = [
    pytest.mark.serving,
    pytest.mark.skipif("SBD_VLLM_PYTHON" not in os.environ, reason="no vLLM; run make test-serving"),
]
PROCESSES, PROMPTS = 3, 4
SERVER = "vllm.entrypoints.openai.api_server"


def scenario(folder: Path, processes: int, prompts: int) -> Path:
    """The published scenario with fewer prompts."""
    text = (ROOT / "scenarios" / "served_vllm.yaml").read_text(encoding="utf-8")
    whole = yaml.safe_load(text)
    [part] = whole["parts"]
    part["processes"] = processes
    part["workload"] |= {"prompts": prompts, "max_new_tokens": 48}
    part["workload"]["instructions"]["domains"] = ["rewriting", "lists", "code"]
    file = folder / "served.yaml"
    file.write_text(yaml.safe_dump(whole), encoding="utf-8")
    return file


def servers() -> list[str]:
    """Processes of vLLM that run now."""
    return subprocess.run(["pgrep", "-f", f"{SERVER}|VLLM::"], capture_output=True, text=True, check=False).stdout.split()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Run, Comparison]]:
    """A whole run through the command line, with its record and comparison."""
    folder = tmp_path_factory.mktemp("served")
    command = [sys.executable, "-m", "harness", "run", str(scenario(folder, PROCESSES, PROMPTS)), "--out", str(folder / "run")]
    subprocess.run(command, check=True, cwd=ROOT)
    run = read_run(folder / "run")
    yield folder / "run", run, compare(run)


def arm_of(comparison: Comparison, label: str) -> ArmResult:
    """Of the cell over all domains."""
    return next(arm for cell in comparison.cells if cell.is_summary for arm in cell.arms if arm.label == label)


def test_the_ways_of_counting_agree(finished: tuple[Path, Run, Comparison]) -> None:
    """In 99 of 100 requests; NTP makes a token a pass, and n-gram drafts more; the headline says more than the count."""
    _, _, comparison = finished
    ntp, ngram = (arm_of(comparison, label).served for label in ("NTP", "server ngram"))
    assert ntp is not None and ngram is not None
    for counts in (ntp, ngram):
        assert counts.requests == 3 * PROMPTS * PROCESSES and counts.agreeing >= 0.99 * counts.requests
    assert ntp.tokens_per_pass == 1 and ntp.headline is None
    assert ngram.tokens_per_pass is not None and ngram.headline is not None and ngram.read_bytes is not None
    assert 1 < ngram.tokens_per_pass < ngram.headline
    assert ngram.read_bytes < (ntp.read_bytes or 0), "fewer passes read the weights less often"


def test_speed_passes_and_losslessness_are_judged(finished: tuple[Path, Run, Comparison]) -> None:
    """Over three starts of each; every difference to NTP is classed, and none is an error."""
    directory, run, comparison = finished
    ngram = arm_of(comparison, "server ngram")
    speedup = ngram.wall_speedup
    assert speedup.value is not None and speedup.processes == PROCESSES
    voids = [arm_of(comparison, label).voids.void for label in ("NTP", "server ngram")]
    assert speedup.low is not None or sum(voids) > 0, "a busy machine's samples are void, and too few are left"
    assert ngram.served is not None and ngram.served.partings is not None
    partings = ngram.served.partings
    assert partings.compared == 3 * PROMPTS * PROCESSES and (partings.errors, partings.unclassified) == (0, 0)
    judged = subprocess.run(
        [sys.executable, "-m", "harness", "verify", str(directory), "--claim", "lossless at arm='server ngram'", "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert json.loads(judged.stdout)["version"] and judged.returncode in (0, 3), "too few answers to confirm 99 of 100"
    assert len({one["servers"]["ngram"]["version"] for one in run.events("engine", "vllm")}) == 1
    page = (directory / "report.html").read_text(encoding="utf-8")
    assert "What the servers say of themselves" in page and "headline" in page


def test_no_server_is_left(finished: tuple[Path, Run, Comparison]) -> None:
    """Every start left its log in the run's folder."""
    directory, _, _ = finished
    assert servers() == []
    assert {file.name for file in directory.glob("server-*.log")} == {"server-plain.log", "server-ngram.log"}


def test_a_killed_run_leaves_no_server(tmp_path: Path) -> None:
    """SIGKILL while both servers are up."""
    command = [sys.executable, "-m", "harness", "run", str(scenario(tmp_path, 1, 1)), "--out", str(tmp_path / "run")]
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True) as started:
        until = time.monotonic() + 240
        while len(servers()) < 2 and time.monotonic() < until:
            time.sleep(0.5)
        time.sleep(5)
        os.killpg(started.pid, signal.SIGKILL)
    until = time.monotonic() + 40
    while servers() and time.monotonic() < until:
        time.sleep(0.2)
    assert servers() == []
