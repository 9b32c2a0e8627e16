"""Pieces of work in forked processes: the same results in the same order, and what happens when one of them breaks.

In processes of their own: a test's process has threads and torch, and is never parallel.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading

import pytest

from harness.analysis import parallel

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pieces are forked on Linux only")


def told(code):
    """What a process that runs ``code`` prints, line by line."""
    begin = "import os, signal, threading\nfrom harness.analysis import parallel\nos.sched_getaffinity = lambda _: {0, 1}\n"
    done = subprocess.run(
        [sys.executable, "-c", begin + textwrap.dedent(code)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_pieces_keep_their_order_and_run_elsewhere():
    """Every result at the place of its piece, each from another process than this one, which the pieces need not reach."""
    found = told("""
        here = os.getpid()
        found = parallel.parallel_map([lambda i=i: (i, os.getpid() != here) for i in range(9)])
        print(*[f"{i}:{away}" for i, away in found])
    """)
    assert found == [f"{i}:True" for i in range(9)]


@pytest.mark.parametrize("alone", ["worth_it=False", "pieces[:1]", "a thread"])
def test_what_is_not_worth_it_or_not_safe_stays_here(alone):
    """Few samples, one piece, or a second thread, which a fork would leave behind with whatever it holds."""
    found = told(f"""
        pieces = [os.getpid] * 3
        if {alone!r} == "a thread":
            threading.Thread(target=threading.Event().wait, daemon=True).start()
        given = pieces[:1] if {alone!r} == "pieces[:1]" else pieces
        print(set(parallel.parallel_map(given, {alone!r} != "worth_it=False")) == {{os.getpid()}})
    """)
    assert found == ["True"]


def test_a_process_with_torch_is_not_forked(monkeypatch):
    """Its pools of threads do not survive."""
    pytest.importorskip("torch")
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    assert not parallel.may_fork()


def test_what_a_piece_raises_is_raised():
    """With its own kind and words."""
    found = told("""
        from harness.errors import UserError
        def wrong():
            raise UserError("no-such-part")
        try:
            parallel.parallel_map([lambda: 1, wrong])
        except UserError as error:
            print(error)
    """)
    assert found == ["no-such-part"]


def test_a_killed_child_loses_nothing():
    """As where memory runs out: what it should have done is done here."""
    found = told("""
        here = os.getpid()
        def fragile():
            if os.getpid() != here:
                os.kill(os.getpid(), signal.SIGKILL)
            return "done"
        print(*parallel.parallel_map([fragile, fragile, lambda: "too"]))
    """)
    assert found == ["done", "done", "too"]


@pytest.mark.long
def test_a_report_is_the_same_to_the_byte():
    """Comparison and page of a run of two parts, one piece after the other and side by side."""
    found = told("""
        from harness.analysis import answer as compare, parallel
        from harness.reporting import page
        from tests.helpers import synthetic_run as synthetic
        sbd = synthetic.Arm(label="SBD k=16 γ=0.35", gamma=0.35, passes_per_block=4)
        parts = [synthetic.Part(name=name, arms=(synthetic.NTP, sbd), batch_size=size) for name in "ab" for size in (1, 2)]
        run = synthetic.build(*parts, calibration=synthetic.calibration())
        pages, counted = [], []
        whole = parallel.parallel_map
        def counting(pieces, worth_it):
            counted.append(len(pieces))
            return whole(pieces, least == 0)
        for module in (compare, page):
            module.parallel_map = counting
        for least in (10**9, 0):
            held = compare.compare(run)
            pages.append((compare.to_json(held), page.render(run, held)))
        print(pages[0] == pages[1], len(pages[0][1]) > 100_000, counted)
    """)
    assert found == ["True", "True", "[4,", "4,", "4,", "4]"]
