"""A run on the emulated GPU that ends early, travels as an archive, and goes on elsewhere. Host code alone."""

from __future__ import annotations

import shutil
import tarfile

import pytest
import yaml

from harness.record.store import read_run
from tests.helpers.graphed_methods import SMALL

pytestmark = pytest.mark.emulated
UNTIL_A_SAMPLE = """
import os, signal, subprocess, sys, time
from pathlib import Path
run = subprocess.Popen([sys.executable, "-m", "harness", "run", sys.argv[1], "--out", sys.argv[2], "--no-report"])
samples = Path(sys.argv[2], "samples.jsonl")
while run.poll() is None and not (samples.exists() and samples.read_bytes().count(b"\\n") > 1):
    time.sleep(0.05)
run.send_signal(signal.SIGINT)
sys.exit(run.wait())
"""


def part(name, **more):
    """NTP and replayed SBD on random weights, captured."""
    replayed = {"method": "sbd", "block_size": 8, "acceptance": {"replay": {"nfe_speedup": 3.0}}}
    return {
        "name": name,
        "model": {"random": SMALL},
        "device": "cuda",
        "dtype": "bfloat16",
        "execution": "graphs",
        "arms": [{"method": "ntp"}, replayed],
        "warmup": 1,
        "baseline_check": 0,
        "health": {"kernel": 1.0, "steal": 1.0},
        "workload": {"synthetic": {"prompt_tokens": 24}, "prompts": 4, "max_new_tokens": 16},
    } | more


def travelled(folder, to):
    """Packed, gone, and unpacked elsewhere."""
    with tarfile.open(to.with_suffix(".tgz"), "w:gz") as archive:
        archive.add(folder, arcname="run")
    shutil.rmtree(folder)
    with tarfile.open(to.with_suffix(".tgz")) as archive:
        archive.extractall(to, filter="data")
    return to / "run"


def test_a_part_is_calibrated_when_its_first_sample_is_due_and_never_again(emulated, tmp_path):
    """A first call that ends with its first samples has calibrated their part alone. A second one, on a machine that has cached
    nothing, keeps that, also for a part that is alike, and measures what is new.
    """
    file, out = tmp_path / "three.yaml", tmp_path / "run"
    first = part("first", workload=part("")["workload"] | {"prompts": 20})
    parts = [first, part("alike"), part("other", dtype="float32")]
    file.write_text(yaml.safe_dump({"version": 1, "name": "three", "parts": parts}))
    began = emulated("-c", UNTIL_A_SAMPLE, str(file), str(out), values=False, XDG_CACHE_HOME=str(tmp_path / "one"))
    held = read_run(out)
    assert {sample.case_id.split("/")[0] for sample in held.samples} == {"first"}, began.stderr[-2000:]
    assert held.header.calibration.keys() == {"first"}
    out = travelled(out, tmp_path / "elsewhere")
    ended = emulated(
        "-m", "harness", "run", str(file), "--out", str(out), "--no-report", values=False, XDG_CACHE_HOME=str(tmp_path / "two")
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    whole = read_run(out)
    assert whole.samples[: len(held.samples)] == held.samples and whole.seal.state == "sealed"
    taken = [sample.key for sample in whole.samples if not sample.warmup]
    assert len(taken) == len({*taken}) == 2 * (20 + 4 + 4)
    found = whole.header.calibration
    assert found.keys() == {"first", "alike", "other"} and found["first"] == held.header.calibration["first"] == found["alike"]
    assert found["other"]["created_at"] > found["first"]["created_at"]
