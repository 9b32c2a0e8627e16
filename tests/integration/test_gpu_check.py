"""The GPU check's script with a stand-in for Python: what it runs and in which order, what it packs; the wheels it is sent."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from benchmarks import gpu_carried
from benchmarks.check_scenario import made_small, one_part
from benchmarks.run_table import table
from harness.scenario.loading import find_scenario
from harness.scenario.plan import make_plan
from harness.scenario.scenario import Scenario
from tests.helpers import ROOT
from tests.helpers import synthetic_run as synthetic
from tests.helpers.begun_runs import begun
from tests.helpers.two_runs import stored

SCENARIOS = ("gpu_reference", "claim_llama31_8b", "claim_qwen3_8b")

# Writes down how it was called; begins a run where it is asked to; SAYS is what the probe says, CODES are exit codes.
STAND_IN = """#!{python}
import json, os, pathlib, sys
words = sys.argv[1:]
CACHED = [["XDG_CACHE_HOME", "calibration.json"], ["TRITON_CACHE_DIR", "kernel.cubin"], ["TRITON_CACHE_DIR", "kernel.ptx"],
          ["TORCHINDUCTOR_CACHE_DIR", "graph"]]
with open(os.environ["DIARY"], "a") as diary:
    print(json.dumps([words, {{name: os.environ.get(name) for name in ("PYTHONPATH", "HF_HUB_OFFLINE")}}]), file=diary)
if words[:2] == ["-c", "import pydantic"]:
    sys.exit(not pathlib.Path(os.environ["SITE"]).exists())
if words[:2] == ["-m", "pip"]:
    pathlib.Path(os.environ["SITE"]).touch()
if words[1] == "harness.check.half_precision":
    print(os.environ.get("SAYS", "right"))
    sys.exit(os.environ.get("SAYS") == "WRONG")
if words[1] == "benchmarks.check_scenario":
    pathlib.Path(words[3]).write_text(" ".join(words[4:]))
if words[2:3] == ["run"]:
    for name, file in CACHED:
        folder = pathlib.Path(os.environ[name], "sub")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
if "--out" in words:
    folder = pathlib.Path(words[words.index("--out") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").touch()
if words[1] == "benchmarks.run_table":
    print("the table of", *words[2:])
sys.exit(json.loads(os.environ.get("CODES", "{{}}")).get(words[2] if words[1] == "harness" else words[1], 0))
"""


class Machine:
    """A machine on which Python is a stand-in and nothing is installed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.diary = folder, folder / "diary"
        self.python = folder / "python"
        self.python.write_text(STAND_IN.format(python=sys.executable))
        self.python.chmod(0o755)

    def step(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """One command of the check."""
        told = {"PYTHON": self.python, "DIARY": self.diary, "SITE": self.folder / "site"}
        told |= {"GATHER": self.folder / "gathered", "OUT": self.folder / "out"}
        environment = os.environ | {name: str(path) for name, path in told.items()} | more
        script = [str(ROOT / "benchmarks" / "gpu_check.sh"), *words]
        return subprocess.run(["bash", *script], env=environment, capture_output=True, text=True, cwd="/", check=False)

    def calls(self) -> list[list[str]]:
        """Words of every call since the last look."""
        found = [json.loads(line) for line in self.diary.read_text().splitlines()]
        self.diary.write_text("")
        assert all(said["HF_HUB_OFFLINE"] == "1" for _, said in found)
        assert all(said["PYTHONPATH"].split(":")[:2] == [f"{ROOT}/.site", str(ROOT)] for _, said in found)
        return [words for words, _ in found]

    def packed(self, step: str) -> set[str]:
        """What the archive of a step holds."""
        with tarfile.open(self.folder / "out" / f"gpu-check-{step}.tgz") as archive:
            return {name.partition("/")[2] for name in archive.getnames()} - {""}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A fresh one."""
    return Machine(tmp_path)


def commands(calls: list[list[str]]) -> list[str]:
    """What was run, by name: the command of ours, or the module."""
    return [words[2] if words[1] == "harness" else words[1] for words in calls if words[0] == "-m"]


@pytest.mark.parametrize("words", [(), ("E",), ("A", "--wet"), ("AB",), ("--dry-run",)])
def test_a_step_that_there_is_not_prints_the_steps(machine: Machine, words: tuple[str, ...]) -> None:
    """Exit code 2, nothing run, nothing packed."""
    done = machine.step(*words)
    assert done.returncode == 2 and "gpu_check.sh A" in done.stderr and "gpu_check.sh D" in done.stderr
    assert not machine.diary.exists() and not (machine.folder / "out").exists()


def test_a_asks_what_can_be_read_then_whether_captured_passes_are_right(machine: Machine) -> None:
    """pydantic from the wheels once, then the doctor, the probe, the check, the reference model, a table, an archive."""
    done = machine.step("A")
    assert done.returncode == 0, done.stderr
    calls = machine.calls()
    pip = next(words for words in calls if words[1] == "pip")
    assert {"--no-index", "--no-deps", ".site", "pydantic", "pydantic-core"} <= set(pip)
    assert pip[pip.index("--find-links") + 1] == ".whl"
    order = ["pip", "doctor", "harness.check.half_precision", "check", "run", "report", "verify", "benchmarks.run_table"]
    assert commands(calls) == order
    assert ["-m", "harness.check.half_precision", "cuda"] in calls
    [run] = [words for words in calls if words[1:3] == ["harness", "run"]]
    assert run[3] == "scenarios/gpu_reference.yaml" and "--no-report" in run
    assert "the table of" in done.stdout and (machine.folder / "gathered" / "A.md").read_text().startswith("the table of")
    assert {"half_precision.txt", "doctor.json", "check/run.json", "gpu_reference/run.json", "A.md"} <= machine.packed("A")
    machine.step("A")
    assert "pip" not in commands(machine.calls())


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_where_the_probe_says_wrong_only_what_is_not_captured_is_run(machine: Machine, dry: tuple[str, ...]) -> None:
    """The eager part of the reference model and the ways of attending, packed with what the probe said; exit code 1."""
    done = machine.step("A", *dry, SAYS="WRONG")
    assert done.returncode == 1 and "WRONG" in done.stdout and "nothing else counts" in done.stderr
    calls = machine.calls()
    ways, made, run = "benchmarks.attention_table", "benchmarks.check_scenario", ["run", "report", "verify"]
    wanted = ["pip", "doctor", "harness.check.half_precision", ways, made, *run, "benchmarks.run_table"]
    assert commands(calls) == wanted
    [made_by] = [words[2:] for words in calls if words[1] == made]
    file = f"{machine.folder}/gathered/gpu_reference.yaml"
    assert made_by == ["gpu_reference", file, "--part", "identity", *dry]
    [ran] = [words for words in calls if words[1:3] == ["harness", "run"]]
    assert ran[3] == file and ran[ran.index("--out") + 1] == f"{machine.folder}/gathered/gpu_identity"
    assert (machine.folder / "gathered" / "half_precision.txt").read_text().splitlines()[-1] == "WRONG"
    packed = {"half_precision.txt", "doctor.json", "attention.md", "gpu_identity/run.json", "gpu_identity/verdict.txt", "A.md"}
    assert packed <= machine.packed("A")


def test_a_step_goes_on_from_the_archive_of_the_one_before(machine: Machine) -> None:
    """On a machine with nothing else, at the same place: its runs, calibrations and compilers' caches; a page is made again."""
    for step, before in (("A", set()), ("B", {"gpu_reference/run.json", "A.md"}), ("B", {"B.md"}), ("D", {"B.md"})):
        gathered = machine.folder / "gathered"
        had = machine.packed(step) if (machine.folder / "out" / f"gpu-check-{step}.tgz").exists() else set()
        shutil.rmtree(gathered, ignore_errors=True)
        if before:
            newest = max((machine.folder / "out").iterdir(), key=lambda file: file.stat().st_mtime_ns)
            subprocess.run(["tar", "-xzf", newest, "-C", machine.folder], check=True)
            (gathered / "report.html").touch()
        assert machine.step(step).returncode == 0
        packed = machine.packed(step)
        assert packed >= before | had | {f"{step}.md", "doctor.json"}
        assert {"cache/sub/calibration.json", "cache/triton/sub/kernel.cubin", "cache/inductor/sub/graph"} <= packed
        assert not {"cache/triton/sub/kernel.ptx", "report.html"} & packed


def test_an_archive_that_is_too_large_leaves_out_what_compilers_made(machine: Machine) -> None:
    """It says so; calibrations, which take longer than they weigh, stay."""
    done = machine.step("B", MOST_MIB="0")
    assert done.returncode == 0 and "leaves out the compilers' caches" in done.stderr
    packed = machine.packed("B")
    assert "cache/sub/calibration.json" in packed and not {"cache/triton", "cache/inductor"} & packed
    assert "leaves out" not in machine.step("B").stderr


@pytest.mark.parametrize(("step", "name"), [("B", "claim_llama31_8b"), ("C", "claim_qwen3_8b")])
def test_b_and_c_go_on_with_one_run(machine: Machine, step: str, name: str) -> None:
    """The same directory every time; its page, its verdict and its table after each; a claim that is refuted is a result."""
    for _ in range(2):
        done = machine.step(step, CODES='{"verify": 1}')
        assert done.returncode == 0, done.stderr
        calls = machine.calls()
        assert commands(calls)[-4:] == ["run", "report", "verify", "benchmarks.run_table"]
        [run] = [words for words in calls if words[1:3] == ["harness", "run"]]
        assert run[3] == f"scenarios/{name}.yaml" and run[run.index("--out") + 1] == f"{machine.folder}/gathered/{name}"
        assert {f"{name}/run.json", f"{name}/verdict.txt", f"{step}.md"} <= machine.packed(step)


def test_d_goes_on_with_the_check_that_a_began(machine: Machine) -> None:
    """One folder for both, more time; a check that fails is told, after its table and archive."""
    machine.step("A")
    [of_a] = [words for words in machine.calls() if words[1:3] == ["harness", "check"]]
    done = machine.step("D", CODES='{"check": 1}')
    calls = machine.calls()
    [of_d] = [words for words in calls if words[1:3] == ["harness", "check"]]
    assert of_a[of_a.index("--out") + 1] == of_d[of_d.index("--out") + 1] and "--dry-run" not in of_d
    assert (of_a[of_a.index("--minutes") + 1], of_d[of_d.index("--minutes") + 1]) == ("1.6", "6.5")
    assert done.returncode == 1 and commands(calls)[-1] == "benchmarks.run_table"
    assert {"check.txt", "D.md", "half_precision.txt"} <= machine.packed("D")


def test_n_counts_the_bytes_of_three_passes(machine: Machine) -> None:
    """By a module that asks ncu and says where there is none; it gets a folder of its own, and on a CPU it counts nothing."""
    for dry, device in ((), "cuda"), (("--dry-run",), "cpu"):
        done = machine.step("N", *dry)
        assert done.returncode == 0 and {"N.md", "graph_bytes/run.json"} <= machine.packed("N")
        folder = f"{machine.folder}/gathered/graph_bytes"
        assert ["-m", "benchmarks.graph_bytes", "--device", device, "--out", folder] in machine.calls()


def test_time_that_is_up_is_no_failure(machine: Machine) -> None:
    """A command that never ends by itself is interrupted; the table and the archive still come."""
    machine.python.write_text(
        machine.python.read_text().replace(
            'if words[1] == "benchmarks.run_table":',
            "\n".join(
                ["if words[2:3] == ['run']:", "    import time", "    time.sleep(60)", 'if words[1] == "benchmarks.run_table":']
            ),
        )
    )
    done = machine.step("B", LIMIT_S="46")
    assert done.returncode == 0 and "goes on where this one ended" in done.stderr, done.stderr
    assert "B.md" in machine.packed("B")


def test_in_a_dry_run_scenarios_are_made_small_and_the_device_is_the_cpu(machine: Machine) -> None:
    """Nothing names a GPU."""
    for step in "ABCDN":
        assert machine.step(step, "--dry-run").returncode == 0
        calls = machine.calls()
        assert not any("cuda" in words for words in calls)
        assert all("--dry-run" in words for words in calls if words[1:3] == ["harness", "check"])
        runs = [words[3] for words in calls if words[1:3] == ["harness", "run"]]
        assert all(Path(name).parent == machine.folder / "gathered" for name in runs)


@pytest.mark.full
def test_a_dry_run_of_one_command_from_end_to_end(machine: Machine) -> None:
    """D for real, with no time for a run: exactness is checked, the rest is listed as not reached, all of it is packed."""
    pytest.importorskip("transformers")
    done = machine.step("D", "--dry-run", PYTHON=sys.executable, LIMIT_S="0")
    assert done.returncode == 0, done.stderr
    assert "no run was begun" in done.stdout
    files = {"cells.json", "cells.md", "attention.json", "exactness.json", "doctor.json", "scenario.yaml"}
    assert {f"check/{name}" for name in files} | {"check.txt", "D.md"} <= machine.packed("D")
    exact = (machine.folder / "gathered" / "check" / "exactness.json").read_text()
    assert "true" in exact and "false" not in exact


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_has_a_dry_form(name: str) -> None:
    """On a CPU, the same arms in as many processes, tiny shapes, both a single row and a batch where there was one."""
    document = yaml.safe_load(find_scenario(name).read_text())
    real, dry = (make_plan(Scenario.model_validate(one)) for one in (document, made_small(document)))
    for before, after in zip(real.scenario.parts, dry.scenario.parts, strict=True):
        assert (before.arms, before.processes, before.baseline_check) == (after.arms, after.processes, after.baseline_check)
        assert before.device == "cuda" and after.device == "cpu" and len(before.batch_sizes) == len(after.batch_sizes)
    shapes = [case.shape for case in dry.cases]
    assert all(shape is not None and shape.params < 30_000_000 for shape in shapes)


def test_one_part_of_a_scenario_is_a_scenario() -> None:
    """The eager part of the reference model by itself, under another name; a part that is not there is told."""
    document = yaml.safe_load(find_scenario("gpu_reference").read_text())
    [part] = make_plan(Scenario.model_validate(one_part(document, "identity"))).scenario.parts
    assert (part.name, part.execution, part.dtype) == ("identity", "eager", "float32")
    with pytest.raises(ValueError, match="part other: not in gpu_reference, which has identity, time"):
        one_part(document, "other")


def test_claims_at_full_size_can_be_judged() -> None:
    """Three processes of NTP and two replays, captured, at one row and sixteen; generate() in one cell of one process; and
    decodes that outlast the memory counter.
    """
    for name in SCENARIOS[1:]:
        plan = make_plan(Scenario.model_validate(yaml.safe_load(find_scenario(name).read_text())))
        [full, baseline, batched, long] = plan.scenario.parts
        assert (full.processes, full.batch_sizes, full.workload.prompts, full.execution) == (3, (1,), 16, "compiled")
        assert (batched.processes, batched.batch_sizes, batched.workload.prompts) == (3, (16,), 48), "three batches"
        assert [case.arm.method for case in plan.cases if case.batch_size == 16] == ["ntp", "sbd", "sbd"]
        assert {case.cell for case in plan.cases if case.is_check} == {("baseline", "synthetic", 1)}
        assert baseline.processes == 1 and baseline.execution == "compiled"
        assert long.execution == full.execution and long.warmup == 1


def test_the_table_of_a_run_tells_what_is_missing(tmp_path: Path) -> None:
    """One that was begun lists its arms, one that was not says so."""
    assert "no run was begun" in table(tmp_path / "nothing")
    told = table(begun(tmp_path / "run"))
    assert "not run: not reached yet" in told and "t(q)/t(1)" in told


WITHOUT = ("sqlalchemy", "ruptures", "httpx", "prometheus_client", "accelerate", "ray", "datasets", "lm_eval", "psycopg")


@pytest.mark.long
def test_what_a_gpu_machine_runs_wants_no_package_that_it_lacks(tmp_path: Path) -> None:
    """A page, and the imports of run, check, verify and doctor, where each of these packages is missing."""
    run = begun(tmp_path / "run", samples=2)
    program = f"""
import sys
sys.modules.update(dict.fromkeys({WITHOUT!r}))
from harness.cli import main
import benchmarks.run_table, benchmarks.check_scenario, benchmarks.attention_table, harness.cli.doctor, harness.runner.runner
import harness.runner.worker, harness.runner.local_machine
import harness.cli.judged, harness.analysis.judge.verdict
for words in (["report", {str(run)!r}],):
    sys.argv = ["sbd", *words]
    try:
        main()
    except SystemExit as ended:
        assert ended.code in (None, 0, 1, 3, 4), (words, ended.code)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert (run / "report.html").exists()


def wheel(folder: Path, name: str, files: dict[str, str], **listed: str) -> Path:
    """A wheel of these files, whose list says so, or what is ``listed`` instead."""
    info = "-".join(name.split("-")[:2]) + ".dist-info"
    files = {f"{info}/METADATA": "Name: x\n"} | files
    lines = [f"{path},{listed.get(path, digest(text))},{len(text)}" for path, text in files.items()]
    lines += [f"{path},{what}," for path, what in listed.items() if path not in files]
    with zipfile.ZipFile(folder / name, "w") as made:
        for path, text in files.items():
            made.writestr(path, text)
        made.writestr(f"{info}/RECORD", "\n".join([*lines, f"{info}/RECORD,,"]))
    return folder / name


def digest(text: str) -> str:
    """Of a file in a wheel's list."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


LINUX = "manylinux_2_17_x86_64.manylinux2014_x86_64"
CORE = "pydantic_core/_pydantic_core.cpython-312-x86_64-linux-gnu.so"


def wheels(folder: Path, core: str = f"pydantic_core-2.5-cp312-cp312-{LINUX}.whl", **files: str) -> Path:
    """A complete set for Python 3.12."""
    folder.mkdir()
    for name in ("annotated_types-1", "typing_extensions-4", "typing_inspection-2"):
        wheel(folder, f"{name}-py3-none-any.whl", {"a.py": "1"})
    wants = {"pydantic-3.dist-info/METADATA": "Name: pydantic\nRequires-Dist: pydantic-core==2.5\n"}
    wheel(folder, "pydantic-3-py3-none-any.whl", wants)
    wheel(folder, core, files or {CORE: "library"})
    return folder


def test_a_complete_set_of_wheels_is_right_for_one_version_alone(tmp_path: Path) -> None:
    """The core brings a library for one Python; one for another beside it does no harm."""
    folder = wheels(tmp_path / "whl")
    assert gpu_carried.faults(folder, "3.12") == []
    assert gpu_carried.faults(folder, "3.11") == ["pydantic_core: 0 wheels for Python 3.11, one is needed"]
    wheel(folder, f"pydantic_core-2.5-cp311-cp311-{LINUX}.whl", {CORE.replace("312", "311"): "library"})
    assert gpu_carried.faults(folder, "3.12") == gpu_carried.faults(folder, "3.11") == []


@pytest.mark.parametrize(
    "name",
    [
        "pydantic_core-2.5-cp312-cp312-macosx_11_0_arm64.whl",
        "pydantic_core-2.5-cp312-cp312-manylinux_2_17_aarch64.whl",
        f"pydantic_core-2.5-cp312-cp312t-{LINUX}.whl",
        "pydantic_core-2.5-cp312-cp312-musllinux_1_1_x86_64.whl",
        f"pydantic_core-2.5-cp313-cp313-{LINUX}.whl",
        "pydantic_core-2.5-py2-none-any.whl",
    ],
)
def test_a_wheel_of_another_tag_is_none(tmp_path: Path, name: str) -> None:
    """Another system, processor, C library or build of Python."""
    assert gpu_carried.faults(wheels(tmp_path / "whl", name), "3.12") == [
        "pydantic_core: 0 wheels for Python 3.12, one is needed"
    ]


def test_a_wheel_is_held_against_its_own_list_of_files(tmp_path: Path) -> None:
    """What is missing, unlisted or changed is named; so is a core without its library, or of another version."""
    folder = wheels(tmp_path / "whl")
    name = "annotated_types-1-py3-none-any.whl"
    wheel(folder, name, {"a.py": "1", "b.py": "2"}, **{"a.py": digest("other"), "c.py": digest("3")})
    assert gpu_carried.faults(folder, "3.12") == [f"{name}: c.py is missing", f"{name}: a.py is not what was listed"]
    with zipfile.ZipFile(folder / name, "a") as made:
        made.writestr("d.py", "4")
    assert f"{name}: d.py is not listed" in gpu_carried.faults(folder, "3.12")
    [no_library] = gpu_carried.faults(wheels(tmp_path / "bare", **{"pydantic_core/__init__.py": ""}), "3.12")
    assert no_library.endswith(f"{CORE} is missing")
    older = wheels(tmp_path / "older", f"pydantic_core-2.4-cp312-cp312-{LINUX}.whl")
    assert gpu_carried.faults(older, "3.12") == ["pydantic wants pydantic_core 2.5, here is 2.4"]


def test_what_is_sent_weighs_little_enough(tmp_path: Path) -> None:
    """The checkout without reports/ leaves room for the wheels."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    assert gpu_carried.carried_bytes(tmp_path) < gpu_carried.MOST_BYTES - 8 * 2**20


def test_both_ways_to_a_machine_without_pydantic_name_the_same_packages() -> None:
    """What the script installs is what is fetched."""
    script = (ROOT / "benchmarks" / "gpu_check.sh").read_text()
    assert all(name.replace("_", "-") in script for name in gpu_carried.WANTED)


def test_predictions_of_a_run_stand_in_its_table(tmp_path: Path) -> None:
    """The file that the script writes is the table of `sbd check`, for any run."""
    held = synthetic.build(synthetic.Part(), calibration=synthetic.calibration(True))
    told = table(stored(held, tmp_path / "run"))
    assert "error, calibrated" in told and "SBD k=16 γ=0.1" in told and "%" in told
