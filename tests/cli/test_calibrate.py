"""`sbd calibrate` and --calibrate: a profile is measured, kept, found again by the device's name, and never guessed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from harness.cli import calibrate
from harness.engine import loading
from harness.errors import UserError
from harness.hardware.local_profile import local_profile, save_profile
from harness.hardware.profile import find_local_profile, load_profile
from harness.progress import Progress
from harness.runner import local_machine
from harness.scenario.loading import find_scenario, load_scenario
from tests.helpers.command import Cli, fake_runner
from tests.helpers.fake_bench import GIB
from tests.helpers.surveyed import SurveyedBench, surveyed


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The user's data live in an empty folder, and this machine is the fake one."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(local_machine, "TorchBench", lambda device, dtype, threads, engine: SurveyedBench())
    monkeypatch.setattr(local_machine, "why_not_built", lambda: None)
    monkeypatch.setattr(local_machine, "cpu_name", lambda: "Fake 9000")
    monkeypatch.setattr(local_machine, "total_host_bytes", lambda: 64 * GIB)
    monkeypatch.setattr(calibrate, "OtherLoad", lambda: SimpleNamespace(words=None))
    return tmp_path / "data" / "sbd" / "hardware_profiles"


@pytest.fixture
def measured_times(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str], int | None]]:
    """How often --calibrate measures; the process of its own is replaced by the same survey in this one."""
    times: list[tuple[str, list[str], int | None]] = []

    def measure(device: str, dtypes: Any, threads: int | None) -> None:
        times.append((device, list(dtypes), threads))
        save_profile(local_profile(local_machine.measure_ceilings(device, dtypes, threads, "eager", 60.0, Progress())))

    monkeypatch.setattr(calibrate, "calibrate_in_own_process", measure)
    return times


def test_what_is_written_is_read_back_the_same(home: Path, tmp_path: Path) -> None:
    """Every figure, source and skipped point survives the file, found by path, by name and by the device's name."""
    profile = local_profile(surveyed())
    assert save_profile(profile) == home / "local-fake-9000.yaml"
    assert load_profile("local-fake-9000") == load_profile("Fake 9000") == profile
    other = save_profile(profile, tmp_path / "elsewhere" / "own.yaml")
    assert load_profile(str(other)) == profile
    assert [file.name for file in home.iterdir()] == ["local-fake-9000.yaml"]
    with pytest.raises(UserError, match=r"ends in \.yaml"):
        save_profile(profile, tmp_path / "own.txt")


def test_only_the_very_device_is_found(home: Path) -> None:
    """A name that contains ours, or ours with other memory, is another device."""
    save_profile(local_profile(surveyed()))
    assert find_local_profile("fake 9000", 64 * GIB) is not None
    assert find_local_profile("Fake 9000 Ti", 64 * GIB) is None
    assert find_local_profile("Fake 9000", 32 * GIB) is None


def test_calibrate_prints_and_keeps_the_planted_rates(cli: Cli, home: Path, tmp_path: Path) -> None:
    """The table has the fake machine's rates; later commands find the file and price on it."""
    assert cli("calibrate --device cpu --dtype bfloat16") == 0
    out, err = cli.out, cli.err
    rows = [line.split() for line in out.splitlines()]
    assert ["4,096", "20.0", "10.0"] in rows and ["16", "400.0"] in rows and "samples" in err
    assert f"profile {home / 'local-fake-9000.yaml'}" in out
    assert "local-fake-9000" in cli.output("hardware")
    assert cli.answer("roofline --model llama-250m --hardware", "Fake 9000")["rung"] == "calibrated"
    assert "float32" in cli.refusal("roofline --model llama-250m --dtype float32 --hardware", "Fake 9000")
    times = [case["time"] for case in cli.answer("plan bandwidth_bound --hardware local-fake-9000")["cases"]]
    assert {time["rung"] for time in times if time} == {"calibrated"}
    assert "allowed: bfloat16, float16, float32, float64" in cli.refusal("calibrate --dtype int3")
    assert "graphs does not work on cpu for bfloat16, float32; use native or eager" in cli.refusal(
        "calibrate --device cpu --execution graphs"
    )
    assert "use eager" in cli.refusal("calibrate --device cpu --dtype float16 --execution native")
    out = cli.output("hardware local-fake-9000")
    assert "no published profile describes" in out and ["4,096", "20.0", "10.0"] in [line.split() for line in out.splitlines()]
    target = tmp_path / "own.yaml"
    assert cli.answer(f"calibrate --device cpu --dtype float32 --output {target}")["measured"]["matrix_flops_per_s"].keys() == {
        "float32"
    }
    assert set(load_profile(str(target)).measured.matrix_flops_per_s) == {"float32"}  # type: ignore[union-attr]


def test_ceilings_beside_other_programs_are_taken_again_and_not_kept(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, home: Path, tmp_path: Path
) -> None:
    """Loaded once: measured twice and kept. Loaded twice: refused, or kept where the user names the file."""
    loads = ["busy", None, "busy", "busy", "busy", "busy"]
    monkeypatch.setattr(calibrate, "OtherLoad", lambda: SimpleNamespace(words=loads.pop(0)))
    command = "calibrate --device cpu --dtype bfloat16"
    assert cli(command) == 0 and len(loads) == 4
    assert "warning: busy; the ceilings are measured again" in cli.err
    (kept,) = home.iterdir()
    kept.unlink()
    assert cli(command) == 2 and not list(home.iterdir())
    assert "busy: nothing was kept" in cli.err
    assert cli(f"{command} --output {tmp_path}/own.yaml") == 0 and (tmp_path / "own.yaml").is_file()


def test_run_calibrates_once(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, measured_times: list[Any]) -> None:
    """The first `sbd run --calibrate` measures the part's device, dtypes and threads; the second finds the profile.

    In one process, that is: a run in several is calibrated by the process that begins it.
    """
    fake_runner(monkeypatch, tmp_path)
    monkeypatch.setattr(
        "harness.cli.run.read_run", lambda directory: SimpleNamespace(unmeasured=None, header=SimpleNamespace(cases=[]))
    )
    alone = tmp_path / "alone.yaml"
    alone.write_text(re.sub(r"    processes: 6.*\n", "", find_scenario("quickstart").read_text()))
    scenario = load_scenario(alone)
    assert local_machine._profile(scenario)[0] is None
    for _ in range(2):
        assert cli(f"run {alone} --calibrate --no-report") == 0 and cli.out == f"record  {tmp_path}\n"
    dtypes = {part.dtype for part in scenario.parts}
    assert [(device, set(found)) for device, found, _ in measured_times] == [("cpu", dtypes)]
    hardware, reason = local_machine._profile(scenario)
    assert reason is None and hardware["name"] == "local-fake-9000"


def test_predictions_calibrate_where_asked(cli: Cli, monkeypatch: pytest.MonkeyPatch, measured_times: list[Any]) -> None:
    """roofline measures what it needs; a dtype that is missing is measured together with those that are there already."""
    monkeypatch.setattr(loading, "device_here", lambda: "cpu")
    what_if = "roofline --model llama-250m --calibrate --json"
    assert cli(what_if) == 0 and json.loads(cli.out)["hardware"] == "local-fake-9000"
    assert cli(what_if) == 0 and measured_times == [("cpu", ["bfloat16"], None)]
    assert cli(f"{what_if} --dtype float32") == 0
    assert measured_times[1:] == [("cpu", ["bfloat16", "float32"], None)]
    assert cli("plan quickstart --calibrate") == 0 and len(measured_times) == 2
    assert "give one" in cli.refusal(f"{what_if} --hardware h100-sxm")


def test_an_unknown_gpu_is_refused_with_the_list_until_it_is_calibrated(monkeypatch: pytest.MonkeyPatch) -> None:
    """No datasheet share of a device that nobody published; with a local profile the run has one, still without a datasheet."""
    properties = SimpleNamespace(name="NVIDIA X9000", total_memory=64 * GIB, multi_processor_count=99)
    monkeypatch.setattr(local_machine.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(local_machine.torch.cuda, "get_device_properties", lambda device: properties)
    found, reason = local_machine.profile_of("cuda")
    assert found is None and reason is not None
    assert "'NVIDIA X9000'" in reason and "a100-80-sxm" in reason and "rtx-4090" in reason and "sbd run --calibrate" in reason
    bench = SurveyedBench()
    bench.device_name, bench.device = "NVIDIA X9000", "cuda"
    save_profile(local_profile(surveyed(bench)))
    found, reason = local_machine.profile_of("cuda")
    assert reason is None and found.bandwidth_bytes_per_s.value is None


def test_an_unknown_cpu_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run on a CPU needs no profile: its own calibration supplies the ceilings, and the record says so."""
    found, reason = local_machine.profile_of("cpu")
    assert found is None and reason is not None and "the calibration supplies the ceilings" in reason


def test_a_calibration_that_fails_is_the_users_to_mend() -> None:
    """The real command in its own process: this machine has no CUDA device number 99."""
    with pytest.raises(UserError, match="could not be calibrated"):
        calibrate.calibrate_in_own_process("cuda:99", ["bfloat16"], None)


def test_a_damaged_local_profile_is_named(home: Path) -> None:
    """It is refused, not passed over: a run would otherwise have other ceilings than the user thinks."""
    file = save_profile(local_profile(surveyed()))
    file.write_text(file.read_text(encoding="utf-8").replace("grade: R", "grade: V", 1).replace("copy_bytes_per_s", "copy"))
    with pytest.raises(UserError, match=r"local-fake-9000\.yaml"):
        local_machine.profile_of("cpu")
