"""Where a speedup is gone: by hand, and as a property of the interpolation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.analysis.answer import compare
from harness.analysis.evidence.break_even import break_even, speeds_by_load
from harness.reporting.figures_load import speed_by_load
from harness.reporting.page import render
from tests.helpers import synthetic_run as synthetic
from tests.helpers.simulated_server import Serving, load_run


def test_between_two_sizes_by_hand() -> None:
    """2x at 1 and 0.5x at 4: on logarithmic axes the line passes 1 half way, at 2; order and later sizes do not matter."""
    assert break_even([(4, 0.5), (1, 2.0)]) == pytest.approx(2.0)
    assert break_even([(1, 2.0), (4, 0.5), (8, 3.0)]) == pytest.approx(2.0)
    assert break_even([(1, 2.0), (4, 1.0)]) == pytest.approx(4.0)


@pytest.mark.parametrize("points", [[], [(1, 2.0)], [(1, 2.0), (4, 1.1)], [(1, 0.8), (4, 0.5)], [(1, 0.8), (4, 1.5)]])
def test_where_it_is_not_gone_nothing_is_said(points: list[tuple[float, float]]) -> None:
    """It stays above, began below, or rises."""
    assert break_even(points) is None


@given(st.floats(1.01, 10), st.floats(0.1, 1), st.floats(1.1, 64))
def test_it_lies_between_its_sizes(high: float, low: float, factor: float) -> None:
    """And moves up with the first speed."""
    found = break_even([(1, high), (factor, low)])
    more = break_even([(1, 2 * high), (factor, low)])
    assert 1 <= found <= factor * (1 + 1e-9) and more >= found * (1 - 1e-9)


def test_a_part_of_two_batch_sizes_is_drawn_and_one_of_one_is_not() -> None:
    """The sentence names the arm and what is not gone."""
    one, four = synthetic.Part(batch_size=1), synthetic.Part(batch_size=4)
    cells = [cell for part in (one, four) for cell in compare(synthetic.build(part)).cells if cell.is_summary]
    found = speeds_by_load(cells)
    assert {size for size, _ in found[0].measured} == {1, 4}
    drawing = speed_by_load(found)
    assert "is not gone up to 4 at once" in drawing.caption
    assert speed_by_load(speeds_by_load(cells[:1])) is None


def test_loads_and_arrivals_are_in_one_figure_with_both_break_evens() -> None:
    """1.67x, 1.17x and 0.77x with 1, 2 and 4 in flight cross 1 at 2.6 on logarithmic axes; the roofline sees no such thing."""
    run = load_run(calibration=synthetic.calibration())
    cells = [cell for cell in compare(run).cells if cell.is_summary]
    [found] = speeds_by_load(cells)
    assert [size for size, _ in found.measured] == [1, 2, 4] and found.in_flight
    assert found.measured_break_even == pytest.approx(2.60, abs=0.02)
    assert found.break_even_ends[0] < 2.60 < found.break_even_ends[1]
    assert [size for size, _ in found.predicted] == [1, 2, 4] and found.predicted_break_even is None
    assert found.predicted[0][1] > found.predicted[1][1] > found.predicted[2][1], "priced by the rows in flight, not by all"
    [arrived] = found.arrived
    assert arrived.words == "10 requests/s" and arrived.predicted is not None and arrived.in_flight > 1
    drawing = speed_by_load([found])
    assert ">requests in flight<" in drawing.image
    assert "is gone at about 2.6 in flight (2.6 to 2.6 by the ends of its intervals)" in drawing.caption
    assert "predicted (hollow), it is not gone up to 4 in flight" in drawing.caption and "At 10 requests/s" in drawing.caption
    assert "Speedup by load" in render(run, compare(run))


def test_an_arm_that_never_pays_is_told_so() -> None:
    """Slower from the first load on."""
    slow = Serving(per_pass=1, first_s=0.02, further_s=0.001)
    run = load_run([{"concurrency": [1, 2]}], fast=slow)
    drawing = speed_by_load(speeds_by_load([cell for cell in compare(run).cells if cell.is_summary]))
    assert "is at or below 1 already with 1 in flight" in drawing.caption
