"""Runs one command and ends it, with its children, as soon as whoever started this program has ended or says so.

    python supervisor.py LOG COMMAND...

Run by its path, with the standard library alone. Standard input is a pipe that the starter holds open: its end is the signal,
which the kernel gives even for a starter that was killed.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

GRACE_S, LOOK_S = 10.0, 0.1
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def _prctl(option: int, value: int) -> None:
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(option, value)


def _die_with_this() -> None:
    """Where this supervisor itself is killed, at least the command's first process is."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


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


def _end(child: "subprocess.Popen[bytes]") -> None:
    """End the command's group and every process that came from it: politely, then by force."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, sign)
        told: set[int] = set()
        until = time.monotonic() + GRACE_S
        while time.monotonic() < until:
            left = _descendants()
            for pid in told - {child.pid}:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)  # orphans are this process's to reap
            if not left and child.poll() is not None:
                return
            for pid in {*left} - told:
                with contextlib.suppress(ProcessLookupError):
                    if os.getpgid(pid) != child.pid:
                        os.kill(pid, sign)
            told.update(left)
            time.sleep(LOOK_S)


def main() -> int:
    """Exit status of the command; 0 where it was ended on request."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)  # what its first process leaves behind becomes a child of this one
    with open(sys.argv[1], "ab") as log:
        child = subprocess.Popen(
            sys.argv[2:], stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0, preexec_fn=_die_with_this
        )  # in this session, by which the starter finds it where this supervisor was killed
    asked = threading.Event()

    def watch() -> None:
        sys.stdin.buffer.read()
        asked.set()
        _end(child)

    threading.Thread(target=watch, daemon=True).start()
    status = child.wait()
    _end(child)
    return 0 if asked.is_set() else abs(status)


if __name__ == "__main__":
    os._exit(main())  # the thread that watches may still be reading
