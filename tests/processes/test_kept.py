"""Commands below a keeper: whatever they leave behind ends, however they or their starter end, and their output has a bound."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.processes.keeper import CUT, KEPT_BYTES
from harness.processes.kept import KEEPER, Kept, launch
from tests.helpers import ROOT
from tests.helpers.running import is_running

DAEMON = """
import os, signal, sys, time
from pathlib import Path
if "fork" in sys.argv and os.fork():
    os._exit(0)
os.setsid() if os.getpid() != os.getsid(0) else None
if "fork" in sys.argv and os.fork():
    os._exit(0)
if "deaf" in sys.argv:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
partial = Path(sys.argv[1] + ".partial")
partial.write_text(str(os.getpid()))
partial.rename(sys.argv[1])
time.sleep(600)
"""
LEAVES = {
    "background": "sleep 600 & echo $! > {0}.partial; mv {0}.partial {0}",
    "nohup": "nohup sleep 600 > /dev/null 2>&1 & echo $! > {0}.partial; mv {0}.partial {0}",
    "setsid": "setsid {1} {0} &",
    "twice forked": "{1} {0} fork",
}
"""By what it is, a shell command that leaves a process whose number it writes to a file."""


def waited(found: Callable[[], bool], seconds: float = 40) -> bool:
    """Whether it came true; a hang guard alone."""
    until = time.monotonic() + seconds
    while not (true := found()) and time.monotonic() < until:
        time.sleep(0.02)
    return true


def leaving(kind: str, folder: Path) -> str:
    """The command that leaves it, and ends once it is there."""
    (folder / "daemon.py").write_text(DAEMON)
    command = LEAVES[kind].format(folder / "pid", f"{sys.executable} {folder}/daemon.py")
    return f"{command}\nwhile ! [ -e {folder}/pid ]; do sleep 0.02; done"


REMOVES_FIRST = """
import runpy, shutil, subprocess, sys

class Removing(subprocess.Popen):
    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        shutil.rmtree(folder)

_, keeper, folder = sys.argv
subprocess.Popen, sys.argv = Removing, [keeper, folder + "/out", folder + "/err", "echo", "said"]
runpy.run_path(keeper, run_name="__main__")
"""


def test_a_command_may_remove_the_folder_of_its_output(tmp_path: Path) -> None:
    """However early: the keeper says nothing, and has the command's status."""
    (tmp_path / "work").mkdir()
    words = [sys.executable, "-c", REMOVES_FIRST, str(KEEPER), str(tmp_path / "work")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as kept:
        assert (kept.wait(60), kept.stdout.read(), kept.stderr.read()) == (0, b"", b"")


def test_the_launcher_runs_a_shell_command(tmp_path: Path) -> None:
    """Its exit status or its signal as a shell shows it, and its two streams in two files of their own, written anew."""
    (tmp_path / "o").write_text("of an earlier call")
    assert launch("echo out; echo err >&2; exit 3", tmp_path / "o", tmp_path / "e") == 3
    assert ((tmp_path / "o").read_text(), (tmp_path / "e").read_text()) == ("out\n", "err\n")
    assert launch("kill -9 $$", tmp_path / "o", tmp_path / "e") == 128 + signal.SIGKILL


@pytest.mark.parametrize("kind", LEAVES)
def test_what_a_command_leaves_behind_ends_with_it(kind: str, tmp_path: Path) -> None:
    """The command ends well and its daemon is gone, in whatever session or under whatever parent it is."""
    assert launch(leaving(kind, tmp_path), tmp_path / "o", tmp_path / "e") == 0
    assert not is_running(int((tmp_path / "pid").read_text()))


def heeding() -> None:
    """Take signals that a background job or nohup ignores, and hands down."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def starter(folder: Path, command: str) -> subprocess.Popen[bytes]:
    """A program that launches the command."""
    program = (
        "import sys; from pathlib import Path; from harness.processes.kept import launch; "
        f"launch({command!r}, Path({str(folder / 'o')!r}), Path({str(folder / 'e')!r}))"
    )
    return subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.DEVNULL, preexec_fn=heeding)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
@pytest.mark.parametrize("kind", ["background", "twice forked"])
def test_a_stopped_starter_leaves_nothing_running(tmp_path: Path, kind: str, number: signal.Signals) -> None:
    """Neither Ctrl-C, a cancelled CI job, a closed terminal nor kill -9 leaves the command behind, nor what it started."""
    with starter(tmp_path, f"{leaving(kind, tmp_path)}\necho $$ > {tmp_path}/first\nsleep 600") as child:
        try:
            assert waited(lambda: (tmp_path / "first").exists() and bool((tmp_path / "first").read_text()))
            child.send_signal(number)
            assert child.wait(60) != 0
        finally:
            child.kill()  # else a failure here fails the test that is under way when the child is forgotten
    pids = [int((tmp_path / name).read_text()) for name in ("pid", "first")]
    assert waited(lambda: not any(map(is_running, pids)))


def test_an_interrupted_command_may_write_its_record(tmp_path: Path) -> None:
    """It is told by SIGINT first, and what it writes then is whole before the starter has ended."""
    program = (
        "import time\nfrom pathlib import Path\n"
        f"try:\n    Path({str(tmp_path / 'begun')!r}).touch(); time.sleep(600)\n"
        f"except KeyboardInterrupt:\n    time.sleep(0.3); Path({str(tmp_path / 'record')!r}).write_text('whole')"
    )
    (tmp_path / "measure.py").write_text(program)
    with starter(tmp_path, f"{sys.executable} {tmp_path}/measure.py") as child:
        assert waited((tmp_path / "begun").exists)
        child.send_signal(signal.SIGTERM)
        child.wait(60)
    assert (tmp_path / "record").read_text() == "whole"


def test_a_signal_while_a_command_starts_ends_it_too(tmp_path: Path) -> None:
    """It comes when the keeper runs and the call that starts it has not returned."""
    program = (
        "import signal, subprocess, sys\nfrom pathlib import Path\nfrom harness.processes import kept\n"
        "begin = subprocess.Popen.__init__\n"
        "def interrupted(self, *words, **options):\n"
        "    begin(self, *words, **options)\n"
        f"    Path({str(tmp_path / 'pid')!r}).write_text(str(self.pid))\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "subprocess.Popen.__init__ = interrupted\n"
        f"kept.launch('sleep 600', Path({str(tmp_path / 'o')!r}), Path({str(tmp_path / 'e')!r}))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert b"KeyboardInterrupt" in done.stderr
    assert waited(lambda: not is_running(int((tmp_path / "pid").read_text())))


@pytest.mark.parametrize("kind", ["background", "twice forked"])
def test_where_the_keeper_is_killed_the_starter_ends_the_rest(kind: str, tmp_path: Path) -> None:
    """As by a kernel that is out of memory; a daemon in a session of its own is known by its environment."""
    command = f"{leaving(kind, tmp_path)}\nsleep 600"
    kept = Kept(["/bin/sh", "-c", command], os.environ, tmp_path / "o", tmp_path / "o")
    assert waited((tmp_path / "pid").exists)
    os.kill(kept.pid, signal.SIGKILL)
    kept.wait(60)
    kept.end()
    kept.end()
    assert waited(lambda: not is_running(int((tmp_path / "pid").read_text())))


@pytest.mark.long
def test_a_daemon_that_heeds_no_signal_is_killed(tmp_path: Path) -> None:
    """After the grace, ten seconds."""
    LEAVES["deaf"] = "{1} {0} fork deaf"
    assert launch(leaving("deaf", tmp_path), tmp_path / "o", tmp_path / "e") == 0
    assert not is_running(int((tmp_path / "pid").read_text()))


def test_output_without_end_is_kept_at_both_ends(tmp_path: Path) -> None:
    """One line of 40 MB that is no text: neither blocked nor broken off, its first and last MiB are there."""
    program = (
        "import os\nos.write(2, b'first')\nfor _ in range(40): os.write(2, b'\\xff\\0\\x1b' * 350_000)\nos.write(2, b'last')"
    )
    (tmp_path / "speak.py").write_text(program)
    assert launch(f"{sys.executable} {tmp_path}/speak.py", tmp_path / "o", tmp_path / "e") == 0
    said = (tmp_path / "e").read_bytes()
    assert said.startswith(b"first\xff\0") and said.endswith(b"\x1blast") and CUT in said
    assert 2 * KEPT_BYTES < len(said) <= 3 * KEPT_BYTES + len(CUT) and len(said.partition(CUT)[0]) == KEPT_BYTES


def test_several_commands_add_to_one_file(tmp_path: Path) -> None:
    """Both streams in their order, as a server that is started again does."""
    for number in (1, 2):
        log = tmp_path / "log"
        kept = Kept(["/bin/sh", "-c", f"echo {number}; echo err >&2"], os.environ, log, log)
        assert kept.wait(60) == 0
        kept.end()
    assert (tmp_path / "log").read_text() == "1\nerr\n2\nerr\n"
