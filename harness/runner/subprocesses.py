"""Fresh processes: each takes a share of a run where a part asks for several, and the processes that share one model.

Shares are taken one after the other, each by its own interpreter: fresh weights, threads, graphs and allocator. The parent
holds no model and opens no device. It lends its lock of the run directory, so that no other run enters. The lock lasts while a
child of a killed parent lives.

The processes that share a model are started as torchrun starts them and ended together. torchrun itself keeps no descriptor
open for its children, and these are lent the lock. The environment gives each its rank (harness.scenario.ranks).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from pydantic import TypeAdapter, ValidationError

from harness.errors import EXIT_INTERRUPTED, EXIT_TOOL_ERROR, EXIT_USER_ERROR, HungError, ProcessEndedError, UserError
from harness.frozen import frozen
from harness.processes.keeper import PR_SET_PDEATHSIG, prctl
from harness.record.store import InheritedLock
from harness.runner.options import RunOptions
from harness.scenario.plan import Share
from harness.scenario.ranks import Ranks

Child = subprocess.Popen[bytes]
STORE = "store"
"""The rendezvous file in the processes' own folder."""
ON_LOOPBACK = dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), "lo0" if sys.platform == "darwin" else "lo")
"""Where gloo and NCCL listen, unless the user's environment says otherwise; else it is the address of the host's name."""


def start(command: Sequence[str], world: int, folder: Path, lent: Sequence[int]) -> list[Child]:
    """Run ``command`` in ``world`` processes with their own ``folder``; the first receives the ``lent`` descriptors."""
    if world == 1:
        return [subprocess.Popen(command, env=ending_with_this(), pass_fds=lent)]
    children = []
    for rank in range(world):
        one = Ranks(rank=rank, local=rank, world=world, rendezvous=(folder / STORE).as_uri())
        environment = threads_shared(world) | ON_LOOPBACK | ending_with_this() | one.environment()
        children.append(subprocess.Popen(command, env=environment, pass_fds=() if rank else lent))
    return children


def threads_shared(world: int) -> dict[str, str]:
    """The environment with one OpenMP thread per core over all processes, where the number is not set."""
    return {"OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // world))}


def first_end(children: Sequence[Child], look_s: float | None = None, look: Callable[[], None] = lambda: None) -> int:
    """Wait for the first process to end, or another to fail; returns its exit status, negative for a signal.

    ``look`` is called every ``look_s`` seconds meanwhile, and may raise.
    """
    ended: SimpleQueue[tuple[int, int]] = SimpleQueue()
    for rank, child in enumerate(children):
        Thread(target=lambda rank, child: ended.put((rank, child.wait())), args=(rank, child), daemon=True).start()
    while True:
        try:
            rank, status = ended.get(timeout=look_s)
        except Empty:
            look()
            continue
        if rank == 0 or status:
            return status


def end_all(children: Sequence[Child], grace_s: float) -> None:
    """End the running processes; one that waits for another of its group would wait for hours."""
    for child in children:
        child.terminate()  # no effect on an ended process
    for child in children:
        try:
            child.wait(grace_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


COMMAND = "run-process"
"""The hidden command that runs a ChildTask."""
GRACE_S = 5.0
"""Time that a child has to end by itself after Ctrl-C, which a terminal sends to both."""
KEPT = "finished samples are kept, and the same command takes exactly the missing ones"
LOOK_S = 1.0
"""Interval between checks of a child with a deadline; a check costs less than a millisecond."""
PARENT = "SBD_PARENT"
"""The variable that names the process to end with; read before anything heavy is loaded."""
# Use this process's module path only: python -m looks into the working directory first.
PROGRAM = f"import sys; sys.path[:] = sys.argv.pop(1).split({os.pathsep!r}); from harness.cli import main; main()"


@frozen
class ChildTask:
    """The task of one fresh process: take ``share`` of the run in ``directory``, or (None) begin that run.

    ``lent``: the directory's journals, locked by the sender. ``deadline_s``: the longest time without an entry; None: no limit.
    ``ranks``: so many processes share the model, and the first of them does the task. ``options``: of sbd run.
    """

    scenario: Path
    directory: Path
    share: Share | None
    lent: InheritedLock
    deadline_s: float | None = None
    ranks: int = 1
    options: RunOptions = field(default_factory=RunOptions)

    @classmethod
    def read(cls, text: str) -> ChildTask:
        """The task that a parent wrote. Raises UserError: it is none."""
        try:
            return _TASK.validate_json(text)
        except ValidationError as error:
            raise UserError(f"{COMMAND} is started by sbd run, with its task as JSON; use sbd run") from error


_TASK = TypeAdapter(ChildTask)
Spawner = Callable[[ChildTask], int]
"""Runs a fresh process to its end; returns its exit status, negative for a signal.

Raises HungError: it exceeded its deadline and was ended.
"""


@frozen
class FreshInterpreter:
    """The Spawner of the command line: `sbd run-process` in another Python, with this one's stderr.

    ``debug``: errors show their traceback.
    """

    debug: bool = False

    def __call__(self, errand: ChildTask) -> int:
        """As a Spawner. Ctrl-C is passed to the child, which is waited for; a second Ctrl-C ends it."""
        with tempfile.TemporaryDirectory(prefix="sbd-") as folder:
            children = start(self.command(errand), errand.ranks, Path(folder), errand.lent)
            try:
                if errand.deadline_s is None:
                    return first_end(children)
                patience = Watchdog(errand.directory, errand.deadline_s)
                return first_end(children, min(LOOK_S, errand.deadline_s / 4), patience.look)
            except KeyboardInterrupt:
                _interrupt(children[0])
                raise
            finally:
                end_all(children, GRACE_S)

    def command(self, errand: ChildTask) -> Sequence[str]:
        """The command line of the child."""
        words = [sys.executable, "-c", PROGRAM, os.pathsep.join(sys.path), *(["--debug"] if self.debug else [])]
        return [*words, COMMAND, _TASK.dump_json(errand).decode()]


@dataclass
class Watchdog:
    """Raises HungError when a child changes no file in its directory for so many seconds."""

    _directory: Path
    _deadline_s: float

    def __post_init__(self) -> None:
        self._seen, self._since_s = _traces(self._directory), time.monotonic()

    def look(self) -> None:
        now = _traces(self._directory)
        if now != self._seen:
            self._seen, self._since_s = now, time.monotonic()
        elif time.monotonic() - self._since_s > self._deadline_s:
            raise HungError(f"nothing came for {self._deadline_s:g} s (deadline_s), so its process was ended")


def _traces(directory: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of every file there."""
    return sorted((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in directory.glob("*") if file.exists())


def _interrupt(child: subprocess.Popen[bytes]) -> None:
    try:
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGINT)
        child.wait()


def ending_with_this() -> dict[str, str]:
    """The environment of an `sbd` that ends with this process: a killed command leaves no process."""
    return {**os.environ, PARENT: str(os.getpid())}


def end_with_parent(parent: int) -> None:
    """Ask the kernel to end this process with its parent; ends it now where that has ended already."""
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(EXIT_INTERRUPTED)


def was_killed(status: int) -> bool:
    """Whether a signal other than an interrupt ended a process."""
    return status < 0 and status not in {-signal.SIGINT, -signal.SIGTERM}


def expect_success(status: int, who: str) -> None:
    """Check that a fresh process (``who``, in words) ended with exit status 0.

    Raises:
        ProcessEndedError: it did not; its own message, if any, is on stderr.
        KeyboardInterrupt: it was interrupted.
    """
    if status == 0:
        return
    if status in (EXIT_INTERRUPTED, -signal.SIGINT):
        raise KeyboardInterrupt
    raise ProcessEndedError(
        f"{who}: ended with exit status {status} ({why_ended(status)}); {KEPT}",
        EXIT_USER_ERROR if status == EXIT_USER_ERROR else EXIT_TOOL_ERROR,
    )


def why_ended(status: int) -> str:
    """An exit status in words."""
    if status > 0:
        return "its message stands above"
    names = {one.value: one.name for one in signal.Signals}
    killed = names.get(-status, f"signal {-status}")
    return f"{killed}; Linux kills so what asks for more memory than there is" if killed == "SIGKILL" else killed
