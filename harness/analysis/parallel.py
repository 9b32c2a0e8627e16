"""Runs independent pieces of work in parallel on this machine's cores, by fork.

A piece reads the parent's memory (a run can take a gigabyte), and only its result is sent back. A fork keeps one thread only,
so the pieces run one by one where the parent has several threads or has loaded torch.
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
MANY_SAMPLES = 2000
"""From this number of samples on a run is derived and shown in parallel."""
_pieces: Sequence[Callable[[], Any]] = ()
"""Set before the fork: the children inherit the pieces, and only their numbers are pickled."""


def parallel_map(pieces: Sequence[Callable[[], T]], worth_it: bool = True) -> list[T]:
    """The result of each of ``pieces``, in their order. An exception of a piece is raised. Pieces of a child that was killed,
    as when memory is short, run here.

    ``worth_it``: whether they take longer than starting processes, which costs some hundredths of a second.
    """
    workers = min(len(pieces), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
    if not worth_it or workers < 2 or not may_fork():
        return [piece() for piece in pieces]
    global _pieces  # reaches a forked child without pickling
    _pieces = pieces
    try:
        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("fork")) as pool:
            return list(pool.map(_piece, range(len(pieces))))
    except BrokenProcessPool:
        return [piece() for piece in pieces]
    finally:
        _pieces = ()


def may_fork() -> bool:
    """Whether forking this process is safe: on Linux, with one thread, without torch and its thread pools."""
    return sys.platform == "linux" and threading.active_count() == 1 and "torch" not in sys.modules


def _piece(number: int) -> Any:
    return _pieces[number]()
