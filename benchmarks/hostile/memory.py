"""Whether the memory of a command is read as it is, tried on children that touch a known amount."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable

from benchmarks.hostile.cases import LIMIT_S, waited

PLANTED_MB, WITHIN = 700, 0.1


def check_reading() -> float:
    """Whether memory is read as it is: a child touches PLANTED_MB, and another one's own child does.

    Returns: GB of a child that touches nothing, which every child begins with.

    Raises:
        SystemExit: a reading is further from the truth than WITHIN; no figure of memory would be worth anything.
    """
    begun_gb = _peak_of(lambda: None)
    for what, touch in (("a child", _touch), ("a child's own child", lambda: _peak_of(_touch))):
        read_mb = 1000 * (_peak_of(touch) - begun_gb)
        if abs(read_mb - PLANTED_MB) > WITHIN * PLANTED_MB:
            raise SystemExit(f"memory is not read as it is: {what} touched {PLANTED_MB} MB, and {read_mb:.0f} MB were read")
    return begun_gb


def _touch() -> None:
    data = bytearray(PLANTED_MB * 1_000_000)
    for place in range(0, len(data), resource.getpagesize()):
        data[place] = 1


def _peak_of(act: Callable[[], object]) -> float:
    """GB of a child that does so much, read as a command's."""
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            act()
        finally:
            os._exit(0)
    return waited(child, LIMIT_S, {})[2]
