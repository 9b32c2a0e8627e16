"""Independent pieces of one large piece of work, side by side on this machine's cores.

By fork: a piece reads what is in memory already, a run of a gigabyte among it, and only what it makes is sent back. What is
forked has one thread of the parent's, so where the parent has several, or holds torch, the pieces are taken one by one.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

T = TypeVar("T")
_pieces: Sequence[Callable[[], Any]] = ()
"""Set before the fork: so the pieces are there in the children, and nothing has to be pickled but their numbers."""


def parallel_map(pieces: Sequence[Callable[[], T]], worth_it: bool = True) -> list[T]:
    """What each of ``pieces`` returns, in their order. What one raises is raised; of a child that was killed, memory being
    short, the pieces are done here.

    ``worth_it``: whether they are long enough for processes of their own, which cost some hundredths of a second.
    """
    workers = min(len(pieces), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
    if not worth_it or workers < 2 or not may_fork():
        return [piece() for piece in pieces]
    global _pieces  # the only way into a forked child that is not a pickle
    _pieces = pieces
    try:
        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("fork")) as pool:
            return list(pool.map(_piece, range(len(pieces))))
    except BrokenProcessPool:
        return [piece() for piece in pieces]
    finally:
        _pieces = ()


def may_fork() -> bool:
    """Whether a fork of this process is a whole one: on Linux, with one thread, without torch and its pools of threads."""
    return sys.platform == "linux" and threading.active_count() == 1 and "torch" not in sys.modules


def _piece(number: int) -> Any:
    return _pieces[number]()
