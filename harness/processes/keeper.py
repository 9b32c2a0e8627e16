"""Runs one command; ends all that it started when it ends, and it too when whoever started this program ends or says so.

    python keeper.py OUT ERR COMMAND...

The command is told by SIGINT first, then by SIGTERM, then killed. Run by its path, with the standard library alone. Standard
input is a pipe that the starter holds open: its end is the request, which the kernel gives even for a starter that was killed.

Not held: what another program starts on request (systemd-run, docker), and orphans where Linux' prctl or /proc is missing.
"""

import contextlib
import ctypes
import glob
import os
import signal
import subprocess
import sys
import threading
import time
import typing

LOOKS, LOOK_S = 100, 0.1
KEPT_BYTES = 2**20
CUT = b"\n... output left out here ...\n"
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def prctl(option: int, value: int) -> None:
    """Of this process, where the system has it."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(option, value)


def _copy(pipe: "typing.IO[bytes]", file: int) -> None:
    """Add what comes to the file: the first and the last KEPT_BYTES at least, thrice as many at most. A full disk loses it."""
    head = os.fstat(file).st_size + KEPT_BYTES
    while data := os.read(pipe.fileno(), 2**16):
        with contextlib.suppress(OSError):
            os.write(file, data)
            if (end := os.fstat(file).st_size) > head + 2 * KEPT_BYTES - len(data):
                last = os.pread(file, KEPT_BYTES, end - KEPT_BYTES)
                os.ftruncate(file, head)
                os.write(file, CUT + last)


def _children() -> "list[int]":
    """The first process and the adopted; what is below them follows when they have ended. Empty where there is no /proc."""
    pids = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError), open(path, errors="replace") as stat:
            if stat.read().rpartition(")")[2].split()[1] == str(os.getpid()):
                pids.append(int(path.split("/")[2]))
    return pids


def main() -> int:
    """Exit status of the command, 128 and more for a signal, once nothing is left of it."""
    out, err, *command = sys.argv[1:]
    # Before the command, which may remove their folder.
    files = [os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666) for path in (out, err)]
    ended = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # else one that comes before the command's program has begun is lost
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # what its first process leaves behind becomes a child of this one
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if err == out else subprocess.PIPE,
        process_group=0,
        preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL),  # where this keeper itself is killed
    )  # in this session, by which the starter finds it then

    def watch() -> None:
        sys.stdin.buffer.read()
        end()

    def end() -> None:
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGINT)
        ended.wait(LOOKS * LOOK_S)
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(OSError):
                os.killpg(child.pid, sign)
            asked = {child.pid}
            for _ in range(LOOKS):
                for pid in {*_children()} - asked:
                    asked.add(pid)
                    with contextlib.suppress(OSError):
                        os.kill(pid, sign)
                time.sleep(LOOK_S)
        os._exit(1)  # something heeds no signal

    copies = [
        threading.Thread(target=_copy, args=one) for one in zip((child.stdout, child.stderr), files, strict=True) if one[0]
    ]
    for thread in (*copies, threading.Thread(target=watch)):
        thread.start()
    status = 0
    with contextlib.suppress(ChildProcessError):  # none is left, orphans included
        while True:
            pid, state = os.wait()
            if pid == child.pid:
                status = os.waitstatus_to_exitcode(state)
                ended.set()
                threading.Thread(target=end).start()
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)  # where orphans are not adopted
    for thread in copies:
        thread.join(1.0)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    os._exit(main())  # the threads may still be reading
