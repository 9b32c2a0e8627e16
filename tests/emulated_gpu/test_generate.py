"""The yardstick of NTP on the emulated GPU: transformers' generate() with a static cache, which transformers compiles there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from harness.record.store import read_run
from tests.helpers.graphed_methods import SMALL

pytestmark = pytest.mark.emulated


def test_it_is_compiled_before_it_is_timed(emulated, tmp_path):
    """Host code alone, from the scenario to the record: inductor's code is captured too, and the sample behind the warm-up
    compiles nothing.
    """
    part = {
        "name": "baseline",
        "model": {"random": SMALL},
        "device": "cuda",
        "dtype": "bfloat16",
        "execution": "graphs",
        "arms": [{"method": "ntp"}],
        "warmup": 1,
        "baseline_check": 2,
        "health": {"kernel": 1.0, "steal": 1.0},
        "workload": {"synthetic": {"prompt_tokens": 24}, "prompts": 2, "max_new_tokens": 12},
    }
    (tmp_path / "s.yaml").write_text(yaml.safe_dump({"version": 1, "name": "s", "parts": [part]}))
    counting = os.pathsep.join(filter(None, [str(Path(__file__).parent / "host_code"), os.environ.get("PYTHONPATH")]))
    done = emulated(
        "-m",
        "harness",
        "run",
        str(tmp_path / "s.yaml"),
        "--out",
        str(tmp_path / "run"),
        "--no-report",
        values=False,
        PYTHONPATH=counting,
        XDG_CACHE_HOME=str(tmp_path / "cache"),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    held = read_run(tmp_path / "run")
    checks = [sample for sample in held.samples if "generate-static-compiled" in sample.case_id]
    warm, *counted = sorted(checks, key=lambda one: not one.warmup)
    assert warm.warmup and len(counted) == 2 and not held.outcomes
    assert warm.meters["compiled_graphs"] > 0 and {one.meters["compiled_graphs"] for one in counted} == {0}
    assert all(len(one.rows[0].output_ids) == 12 == len(one.passes.role) for one in checks)
