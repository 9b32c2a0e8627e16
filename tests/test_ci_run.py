"""What continuous integration runs: each step once, whatever fails; its table; every test but the full counts is in one."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import ROOT
from tests.helpers.running import is_running

BESIDE = ["serving-ready", "docs", "test-peft", "test-ray", "gpu-emulated-ready", "test-gpu-short"]
BEHIND = [".venv/dev.stamp", "test", "test-long", "test-serving"]
"""Targets of make in their order."""
READY = {"serving-ready": "vLLM or its model", "gpu-emulated-ready": "the emulated GPU's environment"}
"""Those that fetch what the last of their kind tests, in the words of a run that cannot have it."""

# Writes down its target, its cache and how it takes Ctrl-C; fails where it is told to; `make test` leaves a process behind.
STAND_IN = f"""#!{sys.executable}
import os, signal, subprocess, sys
target = sys.argv[1]
heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
with open("diary", "a") as diary:
    print(target, "hears" if heard else "deaf", os.environ.get("XDG_CACHE_HOME", "-"), file=diary)
print("said by", target)
if target == "test":
    with open("left", "w") as left:
        print(subprocess.Popen(["sleep", "600"]).pid, file=left)
failed = target in os.environ["FAILS"].split()
if target.startswith("test"):
    print("1 failed, " * failed + f"{{len(target)}} passed, 2 skipped in 61.50s (0:01:01)")
sys.exit(2 * failed)
"""


class Ran:
    """The script in a folder of its own, with a stand-in for make."""

    def __init__(self, folder: Path, *fails: str) -> None:
        programs = folder / "bin"
        programs.mkdir()
        for name, text in {"make": STAND_IN, "initdb": "#!/bin/sh", "chromium": "#!/bin/sh"}.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        (folder / ".ci").mkdir()
        script = shutil.copy(ROOT / ".ci" / "run", folder / ".ci")
        environment = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(folder), "FAILS": " ".join(fails)}
        # Into files: a pipe would be held open by what a step leaves behind.
        with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
            self.code = subprocess.run([script], env=environment, stdout=out, stderr=err, check=False).returncode
        self.out, self.err = (folder / "out").read_text(), (folder / "err").read_text()
        self.left_running = False
        if (folder / "left").exists():
            left = int((folder / "left").read_text())
            self.left_running = is_running(left)
            os.kill(left, signal.SIGKILL)
        diary = [line.split() for line in (folder / "diary").read_text().splitlines()]
        self.targets = [target for target, _, _ in diary]
        self.deaf = [target for target, heard, _ in diary if heard != "hears"]
        self.caches = {target: cache for target, _, cache in diary}
        table = self.out.partition("==== step ")[2].splitlines()[1:]
        self.table = {line.split()[0]: line.split(maxsplit=4)[3:] for line in table}


def test_every_step_is_run_and_counted(tmp_path: Path) -> None:
    """Once each, what is timed behind all others; a process that a step leaves behind is not waited for."""
    ran = Ran(tmp_path)
    assert (ran.code, ran.err, ran.deaf) == (0, "", [])
    assert sorted(ran.targets) == sorted([*BESIDE, *BEHIND])
    assert [one for one in ran.targets if one in BESIDE] == BESIDE and [one for one in ran.targets if one in BEHIND] == BEHIND
    assert ran.targets[0] == BEHIND[0] and ran.targets[-1] == BEHIND[-1]
    assert all(f"said by {one}\n" in ran.out for one in ran.targets)
    counts = {one: ["0", f"{len(one)} passed, 2 skipped"] for one in ran.targets if one.startswith("test")}
    uncounted = {one: ["0"] for one in ("installing", "docs", *READY)}
    assert ran.table == {**uncounted, **counts, "the": ran.table["the"]}
    own = str(tmp_path / "build" / "cache")
    assert {one for one, cache in ran.caches.items() if cache == own} == {"serving-ready", "test-serving"}
    assert ran.left_running


TRIED = [one for one in [*BEHIND[1:], *BESIDE] if one not in READY]


@pytest.mark.parametrize("fails", TRIED)
def test_a_step_that_fails_fails_the_run_and_no_other_is_left_out(fails: str, tmp_path: Path) -> None:
    """It is named behind all output, with what it said."""
    ran = Ran(tmp_path, fails)
    assert ran.code == 1 and sorted(ran.targets) == sorted([*BESIDE, *BEHIND])
    told = ran.out.rpartition(" failed; its last lines:\n")
    assert told[0].endswith(f"==== {fails}") and told[2].startswith(f"said by {fails}\n")
    assert ran.out.count("failed; its last lines") == 1
    assert {name for name, (code, *_) in ran.table.items() if code == "2"} == {fails}


def test_without_an_environment_nothing_is_tried(tmp_path: Path) -> None:
    """Each step that is missing is named."""
    ran = Ran(tmp_path, ".venv/dev.stamp")
    assert ran.code == 1 and ran.targets == [".venv/dev.stamp"]
    assert sorted(re.findall(r"^==== (\S+) was not tried$", ran.out, re.MULTILINE)) == sorted(TRIED)


@pytest.mark.parametrize(("absent", "tests"), [("serving-ready", "test-serving"), ("gpu-emulated-ready", "test-gpu-short")])
def test_what_cannot_be_had_is_skipped_and_the_rest_decides(absent: str, tests: str, tmp_path: Path) -> None:
    """It is said."""
    ran = Ran(tmp_path, absent)
    assert (ran.code, tests in ran.targets) == (0, False) and f"{READY[absent]} could not be had" in ran.err
    (tmp_path / "other").mkdir()
    assert Ran(tmp_path / "other", absent, "docs").code == 1


def commands_of(target: str) -> list[list[str]]:
    """What make would run for it, as words; options of a make that runs this test are not its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "--dry-run", "--always-make", target]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return [shlex.split(line) for line in done.stdout.replace("\\\n", " ").splitlines()]


MARKS = ("long", "full", "ray", "serving", "emulated")


def rules(lines: list[list[str]]) -> list[str]:
    """Which marks each command of pytest among them chooses, by expression."""
    behind = [words[words.index("pytest") :] for words in lines if "pytest" in words]
    return [words[words.index("-m") + 1] for words in behind if "-m" in words]


def by(chosen: dict[str, str], *marks: str) -> list[str]:
    """The targets whose rule takes a test with these marks."""
    return [target for target, rule in chosen.items() if eval(rule, {name: name in marks for name in MARKS})]


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("target", ["verify", "test-gpu-emulated"])
def test_all_of_the_emulated_gpu_is_run_on_it(target: str) -> None:
    """Full counts too, by the environment that has a GPU, which is made first."""
    lines = commands_of(target)
    [place] = [i for i, words in enumerate(lines) if "tests/emulated_gpu" in words]
    rule = dict.fromkeys([target], *rules(lines[place : place + 1]))
    assert by(rule, "emulated", "full") == by(rule, "emulated") == [target]
    assert lines[place][:2] == ["build/gpu-emulated/bin/python", "tests/emulated_gpu/on_gpu.py"]
    assert any("gpu-emulated-requirements.txt" in words[-1] for words in lines[:place])


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_every_test_is_chosen_by_one_step() -> None:
    """By its marks: each of a step's own, and none; full counts by none. Style, types, the manual and peft are checked too."""
    commands = {target: commands_of(target) for target in [*BESIDE, *BEHIND]}
    chosen = {target: rule for target, lines in commands.items() for rule in rules(lines)}
    assert {mark: by(chosen, mark) for mark in MARKS} | {"": by(chosen)} == {
        "": ["test"],
        "long": ["test-long"],
        "ray": ["test-ray"],
        "serving": ["test-serving"],
        "full": [],
        "emulated": ["test-gpu-short"],
    }
    assert by(chosen, "emulated", "full") == []
    run = {" ".join(words) for lines in commands.values() for words in lines}
    others = ("ruff check harness tests", "mypy --strict harness", "mkdocs build --strict", "test_adapter_files.py")
    assert [other for other in others if not any(other in one for one in run)] == []
