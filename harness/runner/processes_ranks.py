"""The processes that share one model on this machine: started as torchrun would start them, and ended together.

torchrun itself is for users and clusters: it keeps no descriptor open for its children, and these are lent the lock of the
run directory. For the processes it is the same: the environment says which one it is (harness.scenario.ranks).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from harness.scenario.ranks import Ranks

Child = subprocess.Popen[bytes]
STORE = "store"
"""The file in their own folder where the processes meet."""


def start(command: Sequence[str], world: int, folder: Path, lent: Sequence[int]) -> list[Child]:
    """``command`` in ``world`` processes, of which the first is handed the ``lent`` descriptors; ``folder`` is theirs alone."""
    if world == 1:
        return [subprocess.Popen(command, pass_fds=lent)]
    children = []
    for rank in range(world):
        one = Ranks(rank=rank, local=rank, world=world, rendezvous=(folder / STORE).as_uri())
        environment = threads_shared(world) | os.environ | one.environment()
        children.append(subprocess.Popen(command, env=environment, pass_fds=() if rank else lent))
    return children


def threads_shared(world: int) -> dict[str, str]:
    """So many OpenMP threads that all processes together have one a core, where nobody said how many."""
    return {"OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // world))}


def first_end(children: Sequence[Child], look_s: float | None = None, look: Callable[[], None] = lambda: None) -> int:
    """Wait for the first process to end, or another one to fail; its exit status, negative for the signal that ended it.

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
    """End what still runs: a process that waits for another one of its group would do so for hours."""
    for child in children:
        child.terminate()  # nothing where it has ended
    for child in children:
        try:
            child.wait(grace_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
