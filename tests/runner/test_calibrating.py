"""When a machine is calibrated: once for all parts alike, as the first sample of one is due, and not again by a second call."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

import pytest
import yaml

from harness.hardware.profile import Calibration
from harness.meters.torch_bench import TorchBench
from harness.progress import Progress
from harness.record.store import HEADER, RunStore, read_header, read_run
from harness.runner import local_machine
from harness.runner.job import Job, make_header
from harness.runner.runner import run
from harness.scenario.plan import make_plan
from harness.scenario.scenario import Scenario
from tests.helpers import synthetic_run as synthetic
from tests.helpers.fake_machine import SCENARIO, fake_machine

TWO = yaml.safe_load(SCENARIO)
TWO["parts"].append(TWO["parts"][0] | {"name": "two", "dtype": "float32"})


class Calibrated:
    """A fake machine that keeps count of what it was asked, and of the samples there were then."""

    def __init__(self, scenario, out, interrupted_at=None):
        self.asked, self.scenario, self.out, self.interrupted_at = [], scenario, out, interrupted_at
        self.machine = replace(fake_machine(), calibrate=self.calibrate)

    def calibrate(self, part, shape, progress, known):
        """The name of the part."""
        self.asked.append((part.name, known, len(read_run(self.out).samples)))
        if part.name == self.interrupted_at:
            raise KeyboardInterrupt
        return {"of": part.name}

    def run(self):
        """The record."""
        return read_run(run(self.scenario, self.out, machine=self.machine))


@pytest.fixture
def scenario(tmp_path):
    """Two parts of different dtypes."""
    file = tmp_path / "two.yaml"
    file.write_text(yaml.safe_dump(TWO))
    return file


def test_what_was_measured_before_a_part_was_calibrated_is_kept(scenario, tmp_path):
    """The second part is calibrated after the samples of the first; a run that ended there calibrates no part twice."""
    out = tmp_path / "out"
    first = Calibrated(scenario, out, interrupted_at="two")
    with pytest.raises(KeyboardInterrupt):
        first.run()
    kept = len(read_run(out).samples)
    assert kept > 0 and first.asked == [("one", [], 0), ("two", [{"of": "one"}], kept)]
    assert read_run(out).header.calibration == {"one": {"of": "one"}}
    again = Calibrated(scenario, out)
    held = again.run()
    assert again.asked == [("two", [{"of": "one"}], kept)] and len(held.samples) == 2 * kept
    assert held.header.calibration == {"one": {"of": "one"}, "two": {"of": "two"}}
    assert read_header(out / HEADER)[0].calibration is None, "it was written before any part was calibrated"
    assert Calibrated(scenario, out).run().header.calibration == held.header.calibration


@pytest.mark.parametrize("recorded", [{"one": {"of": "old"}, "two": {"of": "old"}}, {"read_bandwidth": []}])
def test_a_record_with_calibrations_in_its_header_is_gone_on_with(scenario, tmp_path, recorded):
    """Older ones have them there, by part or one for the whole run: nothing is measured anew."""
    ours = Calibrated(scenario, tmp_path / "out")
    header = make_header(Job.of(scenario), ours.machine, Progress())
    with RunStore(ours.out) as store:
        store.create(header.model_copy(update={"calibration": recorded}))
    assert ours.run().header.calibration == recorded and ours.asked == []


class Here:
    """An executor that does here what it is given."""

    def __init__(self, *_):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def submit(self, function, *arguments):
        """At once."""
        found = Future()
        found.set_result(function(*arguments))
        return found


def test_what_a_busy_machine_was_measured_to_reach_serves_every_part_like_it(monkeypatch, tmp_path):
    """It is cached nowhere, so the record alone has it; another dtype or size is measured."""
    measured = []

    def measure(device, dtype, threads, model_bytes, how):
        bench = TorchBench(device, dtype, threads, how)
        rates = {dtype: synthetic.calibration()["rates"]["bfloat16"]}
        known = synthetic.calibration() | {"model_bytes": model_bytes, "rates": rates, "disturbed": "others"}
        known |= {key: getattr(bench, key) for key in ("device", "device_name", "engine", "threads", "torch_version")}
        measured.append(dtype)
        return Calibration.model_validate(known)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(local_machine, "ProcessPoolExecutor", Here)
    monkeypatch.setattr(local_machine, "load_or_calibrate", measure)
    said, progress = [], Progress()
    progress.note = said.append
    one, two = (case.part for case in make_plan(Scenario.model_validate(TWO)).cases[::4])
    shape = make_plan(Scenario.model_validate(TWO)).cases[0].shape
    calibrate = local_machine.this_machine().calibrate
    first = calibrate(one, shape, progress, [])
    like_it = one.model_copy(update={"name": "three", "batch_sizes": (64,)})
    assert calibrate(like_it, shape, progress, [{"read_bandwidth": "damaged"}, first]) == first
    assert measured == ["bfloat16"] and said[-1] == f"part three: calibration for bfloat16 of {first['created_at']}, kept"
    calibrate(two, shape, progress, [first])
    calibrate(one, shape.model_copy(update={"layers": 2}), progress, [first])
    assert measured == ["bfloat16", "float32", "bfloat16"]
