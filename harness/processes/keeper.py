"""Runs one command; ends all that it started when it ends, and it too when whoever started this program ends or says so.

    python keeper.py SIGNAL OUT ERR COMMAND...

SIGNAL: what the command is told first. Run by its path, with the standard library alone. Standard input is a pipe that the
starter holds open: its end is the request, which the kernel gives even for a starter that was killed.

Not held: what another program starts on request (systemd-run, docker), and orphans where Linux' prctl or /proc is missing.
"""

import contextlib
import ctypes
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import typing

GRACE_S, LOOK_S = 10.0, 0.1
KEPT_BYTES = 2**20
CUT = b"\n... output left out here ...\n"
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def _prctl(option: int, value: int) -> None:
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(option, value)


def _copy(pipe: "typing.IO[bytes]", path: str) -> None:
    """Add what comes to the file: the first and the last KEPT_BYTES at least, thrice as many at most. A full disk loses it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    head = os.fstat(file).st_size + KEPT_BYTES
    while data := os.read(pipe.fileno(), 2**16):
        with contextlib.suppress(OSError):
            os.write(file, data)
            if (end := os.fstat(file).st_size) > head + 2 * KEPT_BYTES - len(data):
                last = os.pread(file, KEPT_BYTES, end - KEPT_BYTES)
                os.ftruncate(file, head)
                os.write(file, CUT + last)


def _descendants() -> "list[int]":
    """Live processes below this one, whatever group or session they put themselves into. Empty where there is no /proc."""
    parent_of = {}
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():
        with contextlib.suppress(OSError, ValueError):
            if entry.isdigit():
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as stat:
                    state, parent = stat.read().rpartition(")")[2].split()[:2]
                if state != "Z":
                    parent_of[int(entry)] = int(parent)
    found = [os.getpid()]
    for one in found:
        found += [pid for pid, parent in parent_of.items() if parent == one]
    return found[1:]


def _tell(first: int, sign: int, until: threading.Event) -> None:
    """Tell the command's group and, but for an interrupt, every process that came from it; wait until they have ended."""
    with contextlib.suppress(OSError):
        os.killpg(first, sign)
    told: set[int] = set()
    end = time.monotonic() + GRACE_S
    while not until.wait(LOOK_S) and time.monotonic() < end:
        left = {*_descendants()} if sign != signal.SIGINT else set()
        for pid in left - told:
            with contextlib.suppress(OSError):
                if os.getpgid(pid) != first:
                    os.kill(pid, sign)
        told |= left


def main() -> int:
    """Exit status of the command, 128 and more for a signal; 0 where it was ended on request."""
    polite, out, err, *command = sys.argv[1:]
    happened: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    ended, gone = threading.Event(), threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # else one that comes before the command's program has begun is lost
    _prctl(PR_SET_CHILD_SUBREAPER, 1)  # what its first process leaves behind becomes a child of this one
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT if err == out else subprocess.PIPE,
        process_group=0, preexec_fn=lambda: _prctl(PR_SET_PDEATHSIG, signal.SIGKILL),  # where this keeper itself is killed
    )  # fmt: skip  # in this session, by which the starter finds it then

    def reap() -> None:
        with contextlib.suppress(ChildProcessError):  # none is left, orphans included
            while True:
                pid, status = os.wait()
                if pid == child.pid:
                    ended.set()
                    happened.put(os.waitstatus_to_exitcode(status))
        gone.set()

    def watch() -> None:
        sys.stdin.buffer.read()
        happened.put(None)

    copies = [
        threading.Thread(target=_copy, args=(pipe, path), daemon=True)
        for pipe, path in ((child.stdout, out), (child.stderr, err)) if pipe is not None
    ]  # fmt: skip
    for thread in (*copies, *(threading.Thread(target=one, daemon=True) for one in (reap, watch))):
        thread.start()
    status = happened.get()
    if status is None:
        _tell(child.pid, int(polite), ended)
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if not gone.is_set():
            _tell(child.pid, sign, gone)
    for thread in copies:
        thread.join(1.0)
    return 128 - status if (status := status or 0) < 0 else status


if __name__ == "__main__":
    os._exit(main())  # the threads may still be reading
