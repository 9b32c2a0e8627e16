"""The load of other programs: worked by hand from pretended readings, and seen from a real program beside this one."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from harness.meters.environment_host import OtherLoad, busy_s, own_s


def load(busy: tuple[float | None, float | None], own: tuple[float, float], wall: tuple[float, float]) -> OtherLoad:
    """One with these readings, first and last."""
    readings = [iter(pair) for pair in (busy, own, wall)]
    return OtherLoad(*(lambda one=one: next(one) for one in readings))


def test_what_this_process_did_is_not_others() -> None:
    """20 s of all cores in 10 s, 9 of them ours: 1.1 cores; the busy time is read before the clock."""
    assert load((100.0, 120.0), (5.0, 14.0), (0.0, 10.0)).cores == pytest.approx(1.1)
    assert load((100.0, 120.0), (5.0, 14.0), (0.0, 10.0)).words == (
        "other programs used 1.1 cores meanwhile (at most 0.25 are let pass)"
    )
    assert load((100.0, 111.0), (5.0, 14.0), (0.0, 10.0)).words is None


def test_what_is_not_known_disturbs_nothing() -> None:
    """No /proc/stat, or too short a time for its ticks."""
    assert load((None, None), (0.0, 0.0), (0.0, 10.0)).cores is None
    assert load((0.0, 5.0), (0.0, 0.0), (0.0, 0.5)).words is None


@pytest.mark.skipif(busy_s() is None, reason="no /proc/stat here")
def test_a_program_beside_this_one_is_seen() -> None:
    """The seconds of the processor that a busy program took are counted, and they are not this process's own."""
    before, own = busy_s(), own_s()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        until = time.monotonic() + 60
        while (busy_s() or 0.0) - (before or 0.0) < 1.0 and time.monotonic() < until:
            time.sleep(0.1)
        seen, mine = (busy_s() or 0.0) - (before or 0.0), own_s() - own
        other.kill()
    assert seen - mine >= 0.5
