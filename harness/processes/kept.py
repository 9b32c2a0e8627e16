"""A command below a keeper, a program of its own that ends with it all that the command started."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

KEEPER = Path(__file__).with_name("keeper.py")
END_S = 40.0
"""Longer than the keeper's three graces: to an interrupt, to SIGTERM, and after SIGKILL."""


class Kept(subprocess.Popen[bytes]):
    """Run ``command``; its output is added to ``out`` and ``err``, the first and the last MiB of it at least.

    ``pid`` is the keeper's. It ends after the command, with its exit status, as soon as nothing of it runs any more.
    Whatever it started has SBD_KEPT in its environment, by which it is found where the keeper was killed.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], out: Path, err: Path) -> None:
        self._killed, self._mark = False, secrets.token_hex(16).encode()
        super().__init__(
            [sys.executable, "-IS", str(KEEPER), str(out), str(err), *command],
            stdin=subprocess.PIPE,
            env={**environment, "SBD_KEPT": self._mark.decode()},
            start_new_session=True,
        )

    def end(self) -> None:
        """End it with all that it started; safe to call again."""
        with suppress(subprocess.TimeoutExpired):
            self.communicate(timeout=END_S)  # closes the pipe
        self.kill()  # no effect on an ended process
        self.wait()
        if self.returncode < 0 and not self._killed:
            self._killed = True  # as by a kernel out of memory; once seen, its session's number may become another's
            for entry in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    if os.getsid(pid := int(entry.name)) == self.pid or self._mark in (entry / "environ").read_bytes():
                        os.kill(pid, signal.SIGKILL)


Launcher = Callable[[str, Path, Path], int]
"""Runs a shell command to its end, with its output in two files (stdout, stderr); returns its exit status."""


def launch(command: str, stdout: Path, stderr: Path) -> int:
    """Run ``command`` by the shell; an interrupt, SIGTERM and SIGHUP end it, which has a grace to write its record."""
    for file in (stdout, stderr):
        file.unlink(missing_ok=True)
    with ExitStack() as after:
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                after.callback(signal.signal, number, signal.signal(number, signal.default_int_handler))
        kept = Kept(["/bin/sh", "-c", command], os.environ, stdout, stderr)
        after.callback(kept.end)
        return kept.wait()
