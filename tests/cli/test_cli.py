"""The command line: output, exit codes, and a message instead of a traceback for every kind of mistake."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from datetime import datetime
from pathlib import Path

import pytest

from harness.cli.progress import TerminalProgress, format_duration
from harness.errors import RecordError, StorageError
from harness.hardware.profile import Calibration, engine_words
from harness.meters.environment_host import cpu_name
from harness.meters.nvml import GPM_SHORTEST_S
from harness.record.store import read_run
from harness.roofline.paper import published_slowdowns
from tests.helpers import ROOT
from tests.helpers.begun_runs import begun
from tests.helpers.command import Cli, fake_runner


def test_help_and_version(cli: Cli) -> None:
    """Every command is listed with a line of its own, untruncated."""
    text = cli.output("--help")
    measuring = ("plan", "run", "report", "publish", "schema", "calibrate", "check", "hardware", "train")
    for name in (*measuring, "roofline", "verify", "history", "compare", "gate", "noise"):
        assert f"\n  {name} " in text
    assert "..." not in text.partition("Commands:")[2] and "run-process" not in text
    assert cli("--version") == 0 and cli.out.startswith("sbd 0.")


def test_a_bad_scenario_names_file_and_line(cli: Cli, tmp_path: Path) -> None:
    """The path, the line and the key stand in the message."""
    file = tmp_path / "bad.yaml"
    file.write_text("version: 1\nname: x\nparst: []\n")
    assert f"{file}:3: parst: unknown key parst" in cli.refusal(f"plan {file}")


@pytest.mark.parametrize("name", ["claim_llama31_8b", "claim_qwen3_8b"])
def test_plan_prints_the_claim_without_a_gpu(cli: Cli, name: str) -> None:
    """By hand: 3 arms of 16 and of 3 batches with a warm-up each in 3 processes, 15 samples of generate() and NTP in one cell,
    and 3 long ones of 2 arms, which outlast the memory counter even at the full speed of an H200's datasheet; with memory and
    time, the same as versioned JSON; what is assumed is said.
    """
    table = cli.output(f"plan --hardware h100-sxm {name}")
    assert "11 cases, 210 samples" in table and "their distribution is assumed" in table
    plan = cli.answer(f"plan --hardware h100-sxm {name}")
    assert plan["version"] == 1 and len(plan["cases"]) == 11 and plan["total_s"] > 0
    assert {case["execution"] for case in plan["cases"]} == {"compiled"}, "else a slow NTP flatters SBD"
    first = plan["cases"][0]
    assert first["time"]["rung"] == "datasheet" and first["memory"]["total_bytes"] > 16e9
    assert "CUDA graphs and the sampler's float32 copies take up to" in table and first["memory"]["margin_bytes"] > 0
    assert plan["cases"][1]["replayed"]["assumed"] is True
    held = [case for case in cli.answer(f"plan --hardware h200-sxm {name}")["cases"] if case["case_id"].startswith("long/")]
    assert len(held) == 2 and min(case["time"]["total_s"] / case["samples"] for case in held) > GPM_SHORTEST_S


def test_plan_joins_what_repeats(cli: Cli) -> None:
    """268 cases of every_arm in less than 50 lines; counted again from its JSON; --all has a row for every case."""
    lines = cli.output("plan every_arm --hardware h100-sxm").splitlines()
    cases = cli.answer("plan every_arm --hardware h100-sxm")["cases"]
    assert len(cases) == 268 and len(lines) < 50
    (row,) = [line for line in lines if line.startswith("SBD k=16 γ=0.001, 0.003, 0.1 ")]
    labels = {f"SBD k=16 γ={gamma}" for gamma in ("0.001", "0.003", "0.1")}
    assert row.split()[5] == str(sum(case["samples"] for case in cases if case["label"] in labels))
    out = cli.output("plan every_arm --hardware h100-sxm --all")
    assert all(case["case_id"] in out for case in cases)


@pytest.mark.parametrize(
    ("execution", "compiler", "told"),
    [("auto", "/nowhere/g++", True), ("auto", sys.executable, False), ("eager", "/nowhere/g++", False)],
)
def test_plan_says_that_auto_is_eager_without_a_compiler(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, execution: str, compiler: str, told: bool
) -> None:
    """Before a run that would be slow, by the compiler's name; on a GPU, or where eager is asked for, none is needed."""
    monkeypatch.setenv("CXX", compiler)
    text = (ROOT / "scenarios" / "quickstart.yaml").read_text()
    (tmp_path / "quick.yaml").write_text(text.replace("execution: auto", f"execution: {execution}"))
    assert cli(f"plan {tmp_path}/quick.yaml") == 0
    assert (f"without a C++ compiler: {compiler} is not here" in cli.out) == told
    assert cli("plan claim_llama31_8b --hardware h100-sxm") == 0
    assert "compiler" not in cli.out


def test_plan_without_a_calibration_says_so(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No time is guessed: it is null, beside its reason."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    plan = cli.answer("plan claim_qwen3_8b")
    assert all(case["time"] is None and "not calibrated" in case["time_reason"] for case in plan["cases"])
    assert plan["total_s"] is None and plan["total_reason"] == "11 of 11 cases have no estimate"


def test_plan_tells_time_and_memory_of_a_run_that_was_taken(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Within 25 % of the published run of real_model's arms, on its calibration; a newer one of another way does not count,
    nor one of compiled forwards, which no CPU has any more. That run compiled its own, which took 410 s, and packed no weights.
    """
    folder = ROOT / "reports" / "real_model"
    run = read_run(folder)
    (told,) = (Calibration.model_validate(one) for one in run.header.calibration.values())
    kept = told.model_copy(update={"device_name": cpu_name(), "engine": engine_words("static", "native")})
    slow = {"fixed_s_per_layer": 1.0, "threads": 1, "created_at": "2099-01-01T00:00:00Z"}
    slow |= {"engine": engine_words("static", "eager")}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "sbd").mkdir()
    older = kept.model_copy(update=slow | {"engine": engine_words("static", "compiled"), "threads": 64})
    for name, one in (("a", kept), ("b", kept.model_copy(update=slow)), ("c", older)):
        (tmp_path / "sbd" / f"calibration-{name}.json").write_text(one.model_dump_json())
    shipped = (ROOT / "scenarios" / "real_model.yaml").read_text()  # the run was taken with fewer arms
    file = tmp_path / "as_published.yaml"
    shared = re.sub(r"processes: 6.*", "processes: 3\n    own_prompts: false", shipped).replace("prompts: 1\n", "prompts: 2\n")
    published = shared.replace("[2, 3, 4, 5, 6, auto]", "[4, 5, 6]")
    file.write_text(published.replace("adapters/smollm2", f"{ROOT}/scenarios/adapters/smollm2"))
    plan = cli.answer(f"plan {file}")
    began, ended = (datetime.fromisoformat(at) for at in (run.header.created_at, run.samples[-1].ended_at))
    assert plan["total_s"] == pytest.approx(sum(one.prefill_s + one.decode_s for one in run.samples), rel=0.25)
    assert plan["run_s"] > 1.25 * plan["total_s"], "calibration and measured passes come on top"
    assert "the whole run: about" in cli.output(f"plan {file}")
    assert plan["run_s"] + 410 == pytest.approx((ended - began).total_seconds(), rel=0.25)
    most = max(one.meters["peak_memory_bytes"] for one in run.samples)
    needed = [case["memory"]["process_bytes"] - case["memory"]["weight_bytes"] for case in plan["cases"]]
    assert max(needed) == pytest.approx(most, rel=0.25)


def test_paper_tables_agree_with_the_published_figures(cli: Cli) -> None:
    """`sbd roofline --paper --json` holds all 512 cells; tests/roofline/test_paper.py holds each to the paper."""
    rows = cli.answer("roofline --paper --mode as_printed")["rows"]
    found = {(one["batch_size"], one["kv_length"], one["block_size"]): one["slowdown"] for one in rows if "slowdown" in one}
    assert len(rows) == 512 and found == pytest.approx(published_slowdowns(), abs=1e-3)


def test_paper_tables_as_text_have_both_modes_side_by_side(cli: Cli) -> None:
    """Without --mode the printed and the corrected figure stand in one row: B=1, k=64 at KV 65,536 is 1.016 against 1.41."""
    assert cli("roofline --paper") == 0
    rows = [line.split() for line in cli.out.splitlines()]
    printed, corrected = next(map(float, row[3:]) for row in rows if row[:3] == ["1", "65536", "64"])
    assert printed == pytest.approx(1.016, abs=1e-3) and corrected == pytest.approx(1.41, abs=0.01)


def test_what_if_is_labelled(cli: Cli) -> None:
    """A prediction stays below its pass reduction. A batch is named; in lockstep rows wait, and it says what it assumes."""
    arguments = "roofline --model llama-3.1-8b --hardware h100-sxm --nfe-speedup 3"
    one = cli.answer(arguments)
    assert 1 < one["wall_speedup"] < 3 and one["assumed"] is None and one["rung"] == "anchored"
    ragged = cli.output(f"{arguments} --batch 8")
    assert "ragged batch, phases mixed" in ragged and "assumed" not in ragged
    lockstep = cli.output(f"{arguments} --batch 8 --batching lockstep")
    assert "rows wait for the slowest" in lockstep and "passes per block of a row: 1 + binomial" in lockstep


def test_schema_prints_json(cli: Cli) -> None:
    """It is machine-readable."""
    assert cli("schema") == 0 and "parts" in json.loads(cli.out)["properties"]


def test_publish(cli: Cli, tmp_path: Path) -> None:
    """The target is printed."""
    begun(tmp_path / "run", samples=1)
    assert cli.output(f"publish {tmp_path}/run {tmp_path}/kept") == f"{tmp_path}/kept\n"


@pytest.mark.parametrize(
    ("raised", "code", "words"),
    [
        (KeyboardInterrupt(), 130, "finished samples are kept; the same command continues"),
        (StorageError("disk full; free space"), 5, "disk full"),
        (RecordError("damaged"), 5, "damaged"),
        (RuntimeError("odd\nsecond line"), 5, "a fault in sbd, please report it: RuntimeError: odd (sbd --debug"),
    ],
)
def test_run_ends_with_a_message_and_its_code(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, raised: BaseException, code: int, words: str
) -> None:
    """Ctrl-C, a full disk and a fault of ours each end with one message and no traceback."""
    fake_runner(monkeypatch, raised)
    assert words in cli.refusal("run quickstart", code=code)


def test_run_prints_where_the_record_is(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run directory is on stdout, for scripts."""
    fake_runner(monkeypatch, ROOT / "reports" / "quickstart")
    assert cli("run quickstart --no-report") == 0
    assert cli.out == f"record  {ROOT / 'reports' / 'quickstart'}\n"


def test_run_without_torch_names_the_extra(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A base install says what to install; a mistake in the file is said first all the same."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'sbd-bench[run]'" in cli.refusal("run quickstart")
    assert "no such scenario" in cli.refusal("run nothing.yaml")


def test_progress_prints_lines_in_a_pipe() -> None:
    """One every 15 s in place of carriage returns."""
    clock = iter([0.0, 10.0, 20.0, 30.0])
    pipe = io.StringIO()
    progress = TerminalProgress(pipe, clock=lambda: next(clock))
    progress.start(["a"] * 4)
    for _ in range(3):
        progress.advance("a")
    progress.end_line()
    assert pipe.getvalue().splitlines() == ["4 samples to take", "2/4 samples, about 20 s left (a)"]


def test_time_left_is_not_guessed_from_the_sample_before_which_the_model_was_loaded() -> None:
    """The first of 518 took 16 s: that is not 2 hours."""
    clock = iter([0.0, *(16.0 + i for i in range(16))])
    pipe = io.StringIO()
    progress = TerminalProgress(pipe, clock=lambda: next(clock))
    progress.start(["a"] * 500, ["a"] * 18)
    for _ in range(16):
        progress.advance("a")
    said = ["1/518 samples, time left not known yet (a)", "16/518 samples, about 8 min 22 s left (a)"]
    assert pipe.getvalue().splitlines() == ["518 samples to take, 18 of them in later processes", *said]
    clock, pipe = iter([0.0, 16.0]), io.StringIO()
    progress = TerminalProgress(pipe, clock=lambda: next(clock))
    progress.start(["a"])
    progress.advance("a")
    assert pipe.getvalue().endswith("1/1 samples, about 0.0 s left (a)\n")


def test_durations() -> None:
    """Each length in the unit a reader expects."""
    assert [format_duration(s) for s in (0.42, 9.4, 45.2, 200, 7500)] == ["0.4 s", "9.4 s", "45 s", "3 min 20 s", "2 h 05 min"]


def test_doctor_names_every_figure_with_a_value_or_a_reason(cli: Cli) -> None:
    """On a machine without a GPU the GPU's figures are there too, with reason and remedy."""
    pytest.importorskip("torch")
    found = cli.answer("doctor --device cpu")
    by_name = {one["figure"]: one for one in found["figures"]}
    assert found["version"] == 2 and by_name["kernel_before_s"]["value"] > 0
    for name in ("energy_j", "dram_bandwidth_pct", "throttle_power_cap_s", "peak_device_memory_bytes"):
        assert by_name[name]["value"] is None and by_name[name]["reason"] and by_name[name]["remedy"]
    text = cli.output("doctor --device cpu")
    assert all(name in text for name in by_name) and "to change that" in text
    *_, can, cannot = text.splitlines()
    assert can.startswith("you can measure: passes, accuracy, times and speedups by the clock") and "energy" not in can
    assert cannot.startswith("not here: ") and "energy per token, memory bandwidth by a counter" in cannot and "GPU" in cannot
    assert found["bandwidth_scale"] is None and found["bandwidth_scale_reason"] in text
    assert (found["kernels"] or found["kernels_reason"]) in text and "every pass slower" in text
    asked = [(one["query_tokens"], one["masked"]) for one in found["attention"]]
    assert asked == [(1, False), (1, True), (16, False), (16, True)]
    for one in found["attention"]:
        how = "with a mask" if one["masked"] else "without a mask"
        assert one["backend"] and f"{one['query_tokens']:3} tokens {how:16}{one['backend']}" in text
    for name, reason in found["environment"]["reasons"].items():
        assert any(line.strip().startswith(name) and reason in line for line in text.splitlines()), name


def test_doctor_says_why_there_are_no_kernels(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a compiler, or with one that fails: its own words and the remedy. With one: its version and instruction sets."""
    pytest.importorskip("torch")
    from harness.kernels import library

    for compiler in ("/nowhere/g++", "false"):
        monkeypatch.setenv("CXX", compiler)
        monkeypatch.setattr(library, "library", library.library.__wrapped__)
        monkeypatch.setattr(library, "why_not_built", library.why_not_built.__wrapped__)
        assert "install g++, or name one in CXX" in cli.output("doctor --device cpu")
        monkeypatch.undo()


def test_doctor_says_what_a_percent_is_worth_and_what_the_driver_refuses() -> None:
    """Rendered from plain values of a GPU machine: scale, disagreement, a GPU's own reasons."""
    pytest.importorskip("torch")
    from harness.cli.doctor import render

    streamed = {"kernel": "copy", "bytes_": 4_000_000_000_000, "seconds": 2.0, "percent": 50.0}
    interface = {"clock_hz": 1e9, "bus_bits": 8000, "source": "torch"}
    scale = {"taken_at": "2026-11-20T09:00:00Z", "counter": "NVML GPM metric 10", "copied": streamed, "interface": interface}
    text = render(
        {
            "device": "cuda",
            "figures": [],
            "bandwidth_scale": scale,
            "bandwidth_scale_reason": None,
            "kernels": None,
            "kernels_reason": "they are for CPUs",
            "attention": [
                {
                    "model": "m",
                    "dtype": "bfloat16",
                    "context_tokens": 9,
                    "query_tokens": 1,
                    "masked": True,
                    "backend": None,
                    "reason": "torch does not say",
                }
            ],
            "environment": {
                "cpu_model": "X",
                "logical_cores": 2,
                "gpus": None,
                "governor": None,
                "pynvml_from": ["pynvml"],
                "nvidia_gpus": [{"vbios": "96", "reasons": {"ecc": "NVML: Not Supported"}}],
                "reasons": {"governor": "no governor", "pynvml_from": "warning: wrong", "gpus": "no CUDA"},
            },
        }
    )
    assert "40 GB/s by a copy of known bytes; by memory clock and bus: 20 GB/s" in text and "disagree" in text
    assert "torch does not say" in text and "none: no governor" in text and "  they are for CPUs" in text
    assert '["pynvml"] (warning: wrong)' in text and '{"vbios": "96", "reasons": {"ecc": "NVML: Not Supported"}}' in text


def test_a_program_is_taken_from_absolute_places_alone(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty entry of PATH is the folder of somebody's record, and his ssh-keygen would be run to check his signature."""
    folder = begun(tmp_path / "run", samples=1)
    (folder / "seal.json.sig").write_text("none")
    for place in (folder, folder / "bin"):
        place.mkdir(exist_ok=True)
        for name in ("ssh-keygen", "git"):
            (place / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
            (place / name).chmod(0o755)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f":.:bin:{os.pathsep.join(os.get_exec_path())}:")
    assert cli("verify .") == 4
    assert not (tmp_path / "ran").exists()
