"""Runs whose fresh processes are this one, and a calibration that needs no measuring."""

from __future__ import annotations

import json
import os

import pytest
import yaml

from harness.progress import Progress
from harness.runner.runner import run_errand
from harness.scenario.plan import make_plan
from harness.scenario.scenario import Scenario
from tests.helpers import synthetic_run as synthetic
from tests.helpers.fake_machine import FakeEngine, fake_machine


class InThisProcess:
    """A Spawner that runs errands here, on the journals lent; after so many decodes in all an error comes."""

    def __init__(self, shape, fail_at=None, error=None):
        self.shape, self.errands, self.engines, self.fail_at, self.error = shape, [], [], fail_at, error

    def __call__(self, errand):
        """Each errand with an engine of its own."""
        self.errands.append(errand)
        done = sum(len(engine.decoded) for engine in self.engines)
        at = None if self.fail_at is None else self.fail_at - done
        self.engines.append(FakeEngine(self.shape, fail_at=at, error=self.error))
        run_errand(errand, Progress(), fake_machine(self.engines[-1]))
        return 0


REAL = """
version: 1
name: real
parts:
  - name: one
    model: {random: {name: tiny, layers: 1, hidden: 16, intermediate: 16, heads: 2, kv_heads: 1, head_dim: 8, vocab: 64}}
    dtype: float32
    threads: 1
    processes: 2
    warmup: 2
    baseline_check: 0
    arms: [{method: ntp}, {method: sbd, block_size: 4, gamma: 0.5}]
    workload: {synthetic: {prompt_tokens: 4}, prompts: 16, max_new_tokens: 12}
"""


@pytest.fixture
def calibrated(tmp_path):
    """An environment whose cache holds a calibration of this machine for the tiny model, so that none is measured."""
    from harness.engine.sessions import stepping
    from harness.meters.calibration import _path
    from harness.meters.torch_bench import TorchBench

    shape = make_plan(Scenario.model_validate(yaml.safe_load(REAL))).cases[0].shape
    assert shape is not None
    size = shape.streamed_params * 4  # bytes in float32
    with TorchBench("cpu", "float32", 1, stepping("static", "sdpa", "eager")) as bench:
        known = synthetic.calibration() | {"model_bytes": size, "threads": 1, "device_name": bench.device_name}
        known["rates"] = {"float32": known["rates"]["bfloat16"]}
        file = _path(bench, "float32", size, tmp_path / "cache" / "sbd")
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(known))
    return {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
