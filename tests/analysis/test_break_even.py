"""Where a speedup is gone: by hand, and as a property of the interpolation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.analysis.break_even import break_even, speeds_by_load
from harness.analysis.comparison import compare
from harness.reporting.figures_load import speed_by_load
from tests.helpers import synthetic_run as synthetic


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
    assert found is not None and more is not None and 1 <= found <= factor * (1 + 1e-9) and more >= found * (1 - 1e-9)


def test_a_part_of_two_batch_sizes_is_drawn_and_one_of_one_is_not() -> None:
    """The sentence names the arm and what is not gone."""
    one, four = synthetic.Part(batch_size=1), synthetic.Part(batch_size=4)
    cells = [cell for part in (one, four) for cell in compare(synthetic.build(part)).cells if cell.is_summary]
    found = speeds_by_load(cells)
    assert {size for size, _ in found[0].measured} == {1, 4}
    drawing = speed_by_load(found, "load")
    assert drawing is not None and "is not gone from batch 1 to 4" in drawing.caption
    assert speed_by_load(speeds_by_load(cells[:1]), "load") is None
