"""The wheel: built, installed into an environment of its own without torch, and used there."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers import ROOT
from tests.helpers.begun_runs import begun

pytestmark = pytest.mark.long

# Left out of the installation: the extra [run], and this project itself, should it be installed here.
ABSENT = ("torch", "transformers", "functorch", "sbd_bench", "sbd-bench", "__editable__", "_sbd_bench")
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Runs a program of an environment that holds the wheel and the base dependencies, but no torch; far from the checkout."""
    home = tmp_path_factory.mktemp("installed")
    venv.create(home / "venv", symlinks=True)
    python = home / "venv" / "bin" / "python"
    dependencies = home / "dependencies"
    dependencies.mkdir()
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in Path(place).iterdir():
            if not entry.name.lower().startswith(ABSENT):
                (dependencies / entry.name).symlink_to(entry)
    (site,) = (home / "venv" / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(f"{dependencies}\n")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "--python", str(python), "install"]
    options = ["--no-build-isolation", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([*pip, *options], check=True, capture_output=True, text=True)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), "PYTHONNOUSERSITE": "1", "MPLCONFIGDIR": str(home / "mpl")}

    def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(home / "venv" / "bin" / program), *arguments]
        return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)

    return run


def test_the_wheel_carries_inputs_tables_and_licence(wheel: Path) -> None:
    """Every scenario and profile of the checkout is inside, byte for byte, with the paper's tables and the licence."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        for kind in ("scenarios", "hardware_profiles"):
            files = list((ROOT / kind).rglob("*.yaml"))
            assert files
            for file in files:
                assert archive.read(f"harness/_data/{file.relative_to(ROOT).as_posix()}") == file.read_bytes()
        assert "harness/_data/scenarios/claims/paper.yaml" in names
        tables = (
            "scenario/paper_table1.csv",
            "roofline/paper_table3.csv",
            "roofline/paper_table4.csv",
            "roofline/anchors.yaml",
            "roofline/anchored.yaml",
        )
        assert {f"harness/{table}" for table in tables} <= names
        assert {f"harness/kernels/{file.name}" for file in (ROOT / "harness" / "kernels").glob("*.[ch]*")} <= names
        assert any(name.endswith("licenses/LICENSE") for name in names)
        assert not any(name.startswith(("tests/", "reports/", "benchmarks/")) for name in names)


def built(folder: Path, umask: int, modified_s: int) -> dict[str, str]:
    """SHA-256 of wheel and sdist by their names, from a copy of the checkout with these modes and times of its files."""
    kept_out = shutil.ignore_patterns(".*", "reports", "dist", "build", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT, folder, ignore=kept_out)
    shutil.copy(ROOT / ".gitignore", folder)
    for path in folder.rglob("*"):
        path.chmod((0o777 if path.is_dir() or path.stat().st_mode & 0o100 else 0o666) & ~umask)
        os.utime(path, (modified_s, modified_s))
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist"]
    without_epoch = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    subprocess.run(command, cwd=folder, umask=umask, env=without_epoch, check=True, capture_output=True, text=True)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (folder / "dist").iterdir()}


def test_two_builds_have_the_same_bytes(tmp_path: Path) -> None:
    """From two folders, with other times and other rights of every file."""
    first = built(tmp_path / "first", umask=0o022, modified_s=1_000_000_000)
    second = built(tmp_path / "deeper" / "second", umask=0o077, modified_s=1_700_000_000)
    assert first == second and {name.rpartition(".")[2] for name in first} == {"whl", "gz"}


def test_the_installation_has_no_torch_and_is_the_wheel(installed: Command) -> None:
    """What the next tests prove, they prove without torch, transformers and the checkout."""
    program = (
        "import importlib.util as u, harness; print([n for n in ('torch', 'transformers') if u.find_spec(n)], harness.__file__)"
    )
    done = installed("python", "-c", program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[] ") and str(ROOT) not in done.stdout


def test_help_plan_and_roofline_run_there(installed: Command) -> None:
    """The shipped scenarios and profiles are found by name."""
    assert "Commands:" in installed("sbd", "--help").stdout
    plan = installed("sbd", "plan", "quickstart")
    assert plan.returncode == 0 and "part reference, batch 1: reference sbd" in plan.stdout, plan.stderr
    claim = installed("sbd", "plan", "claim_llama31_8b", "--hardware", "h100-sxm", "--json")
    assert claim.returncode == 0 and json.loads(claim.stdout)["total_s"] > 0, claim.stderr
    paper = installed("sbd", "roofline", "--paper", "--json")
    assert paper.returncode == 0 and len(json.loads(paper.stdout)["rows"]) == 512, paper.stderr
    assert installed("sbd", "roofline", "--paper", "--explain").returncode == 0


def test_report_runs_there(installed: Command, tmp_path: Path) -> None:
    """An old run is rendered on a laptop without torch."""
    run = begun(tmp_path / "run", samples=2)
    done = installed("sbd", "report", str(run))
    assert done.returncode == 0, done.stderr
    assert (run / "report.html").stat().st_size > 1000


def test_run_there_names_the_extra(installed: Command) -> None:
    """Measuring needs torch: exit code 2, the extra, no traceback."""
    done = installed("sbd", "run", "quickstart")
    assert done.returncode == 2 and "sbd-bench[run]" in done.stderr and "Traceback" not in done.stderr
