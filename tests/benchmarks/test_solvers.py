"""The figures of the solver bench, from runs whose truth is known."""

from __future__ import annotations

import pytest

from benchmarks.solvers import GREEDY, best, figures, rows_of, table
from harness.analysis.answer import compare
from tests.helpers.lossless import outputs_changed


def test_mismatches_are_counted_and_the_best_of_each_kind_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Eight prompts of two SBD arms; the slower one, called lossless, writes something else on two. The faster one is lossy and
    wrong three times more than NTP, so no lossy arm is as accurate as NTP.
    """
    run = outputs_changed("SBD k=16 γ=0.1", {"p2", "p5"}, lossless=GREEDY)
    rows = rows_of(compare(run).cells)
    found = figures(rows)
    assert (found["lossless_prompts"], found["lossless_mismatches"]) == (8, 2)
    # 64 decode tokens in four blocks of four passes.
    assert found["best_lossless_nfe_speedup"] == found["best_lossless_nfe_speedup_word_problems"] == 4
    assert "best_lossy_nfe_speedup_word_problems" not in found
    fastest = best(rows)
    assert fastest is not None and fastest.arm.label == "SBD k=16 γ=0.6" and not fastest.lossless
    # Two passes a block: one of 16, one of 32 tokens but for the first block, of four, for 16 tokens each.
    assert fastest.arm.query_tokens_per_token == pytest.approx((4 * 32 + 3 * 16) / 64)
    lines = table(rows).splitlines()
    assert len(lines) == 4 and GREEDY in next(line for line in lines if "γ=0.1" in line)


def test_a_run_that_nobody_timed_has_figures_of_its_own() -> None:
    """The same run without its times: counted figures under their own names, and nothing by the clock."""
    run = outputs_changed("SBD k=16 γ=0.1", {"p2", "p5"}, timed=False, lossless=GREEDY)
    found = figures(rows_of(compare(run).cells))
    assert (found["untimed_lossless_prompts"], found["untimed_lossless_mismatches"]) == (8, 2)
    assert found["untimed_best_lossless_nfe_speedup_word_problems"] == 4
    assert found["lossless_prompts"] == 0 and not any("wall" in name for name in found)
