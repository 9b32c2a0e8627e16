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

GRACE_S = 10.0
PR_SET_PDEATHSIG = 1


def _die_with_this() -> None:
    """Where this supervisor itself is killed, at least the command's first process is."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _end(child: "subprocess.Popen[bytes]") -> None:
    """End the whole group: politely, then by force."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, sign)
        except ProcessLookupError:
            return
        try:
            child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            continue
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)  # children that outlived the first process


def main() -> int:
    """Exit status of the command; 0 where it was ended on request."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open(sys.argv[1], "ab") as log:
        child = subprocess.Popen(
            sys.argv[2:], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, preexec_fn=_die_with_this
        )
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
