"""One row's progress through its blocks, hand-worked."""

from __future__ import annotations

from harness.decoding.open_blocks import BlockRow
from harness.decoding.request import StopRule


def test_a_stop_string_ends_the_row_where_it_is_complete() -> None:
    """The rule sees the known output only; what was decided behind it is not output."""
    one = BlockRow(StopRule(ends_text=lambda ids: list(ids[-2:]) == [2, 3]), 10, 4, mask_id=0)
    one.open_block()
    assert one.decide([1, -1, 3, 4]) == 1
    assert one.decide([-1, 2, -1, -1]) == 2
    assert (one.output, one.stop_reason) == ([1, 2, 3], "stop")
