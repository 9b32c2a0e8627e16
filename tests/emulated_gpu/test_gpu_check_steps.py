"""The commands of benchmarks/gpu_check.sh on the emulated GPU, each from the unpacked archive of the one before.

A with values, bounded to what the reference model needs; B, C and D host code alone, at the full shape of an 8B model, whose
16 GB of weights are never touched.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tarfile
from pathlib import Path

import pytest

from harness.record.store import read_run

pytestmark = [pytest.mark.emulated, pytest.mark.full]
STEP = """
import resource, subprocess, sys
code = subprocess.run(["bash", "benchmarks/gpu_check.sh", sys.argv[1]]).returncode
print("KiB:", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""
MOST_BYTES = 6e9
"""Of one process, of which Inductor takes most; two of them run at a time."""
OF_VALUES = "16000000"
"""Numbers of the largest tensor that has values: those of the probe and the reference model are smaller, the meters' larger."""


@pytest.fixture
def step(emulated, tmp_path):
    """Runs one command where nothing is but what the archive of the one before holds; gives its output and the folder."""
    gather, archives = tmp_path / "gpu-check", tmp_path / "archives"

    def run(name, limit_s, codes=(0,), sound=True, **more):
        packed = archives / f"gpu-check-{name}.tgz"
        packed.unlink(missing_ok=True)
        done = emulated(
            "-c",
            STEP,
            name,
            seconds=limit_s + 300,
            PYTHON=sys.executable,
            GATHER=str(gather),
            OUT=str(archives),
            LIMIT_S=str(limit_s),
            HOME=str(tmp_path / "home"),
            **more,
        )
        assert done.returncode in codes, done.stdout[-2000:] + done.stderr[-4000:]
        assert not sound or "fault in sbd" not in done.stderr, done.stderr[-4000:]
        *_, peak = done.stdout.split("KiB:")
        assert 1024 * int(peak) < MOST_BYTES
        shutil.rmtree(gather)
        with tarfile.open(packed) as archive:
            archive.extractall(tmp_path, filter="data")
        return gather

    return run


def host_code(**more):
    """Variables of a command without values: generate() counts its tokens itself."""
    ours = Path(__file__).parent / "host_code"
    return {"values": False, "PYTHONPATH": os.pathsep.join(filter(None, [str(ours), os.environ.get("PYTHONPATH")])), **more}


def timed(run):
    """The record, with samples that count."""
    held = read_run(run)
    samples = [sample for sample in held.samples if not sample.warmup]
    assert samples and all(sample.decode_s and sample.passes for sample in samples)
    # A part is calibrated when its first sample is due, and keeps that; a run may end before the sample.
    assert held.header.calibration.keys() >= {case.part for case in held.header.cases} & {
        sample.case_id.partition("/")[0] for sample in held.samples
    }
    return held


def test_a_with_values(step):
    """The probe says right, the engines are exact, and the reference model has decoded by graphs what it decodes without."""
    folder = step("A", 900, values=True, EMULATED_GPU_MOST_VALUES=OF_VALUES)
    assert (folder / "half_precision.txt").read_text().splitlines()[-1] == "right"
    found = json.loads((folder / "check/exactness.json").read_text())
    assert all(found["exact"].values()) and all(one["right"] for one in found["half_precision"])
    assert "dram_bandwidth_pct" in {one["figure"] for one in json.loads((folder / "doctor.json").read_text())["figures"]}
    held = timed(folder / "gpu_reference")
    assert any(row.correct for sample in held.samples for row in sample.rows)


def test_a_where_no_captured_pass_is_right(step):
    """Without values the probe is not right. What is not captured is tried, and packed, all the same. Here no token that comes
    of it is one, so the eager decodes end by themselves: by their time, or because the tokenizer has no such token (5).
    """
    folder = step("A", 300, codes=(1, 5), sound=False, **host_code())
    assert (folder / "half_precision.txt").read_text().splitlines()[-1] == "WRONG"
    assert "energy_j" in (folder / "doctor.json").read_text() and "flex" in (folder / "attention.md").read_text()
    held = read_run(folder / "gpu_identity")
    assert {case.execution for case in held.header.cases} == {"eager"}


def test_b_c_and_d_at_full_shape(step):
    """Every archive holds samples, and a second call takes up where the first one ended, on a machine that has nothing else."""
    for limit_s in (60, 90, 130, 200, 300):  # a fast machine takes all samples in 130 s: the first command is to end before
        run = step("B", limit_s, **host_code()) / "claim_llama31_8b"
        if (run / "run.json").exists() and not all(sample.warmup for sample in read_run(run).samples):
            break
    first = timed(run)
    again = timed(step("B", 360, **host_code()) / "claim_llama31_8b")
    assert len(again.samples) > len(first.samples) and again.samples[: len(first.samples)] == first.samples
    assert again.header.run_id == first.header.run_id
    assert again.header.calibration | first.header.calibration == again.header.calibration
    assert {case.model.name for case in again.header.cases} == {"llama-3.1-8b"}
    others = timed(step("C", 360, **host_code()) / "claim_qwen3_8b")
    assert {case.model.name for case in others.header.cases} == {"qwen3-8b"}
    folder = step("D", 420, codes=(1,), **host_code())  # without values no engine is exact, and it says so
    measured = timed(folder / "check/run")
    assert {case.model.name for case in measured.header.cases} == {"llama-3.1-8b"}
    assert json.loads((folder / "check/cells.json").read_text())["widths"]
    assert read_run(folder / "claim_llama31_8b").samples == again.samples, "every archive holds all there is so far"
