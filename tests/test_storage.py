"""How long a row's buffer is where a captured forward reads it: worked by hand, and against the pieces that attention cuts."""

from __future__ import annotations

import pytest

from harness.roofline.storage import SMALLEST_PIECE, WANTED_GROUPS, slots_allocated


@pytest.mark.parametrize(("rows", "groups", "slots", "allocated"), [
    (1, 8, 5001, 8192),  # 16 pieces make 128 groups: multiples of 16 x 256
    (4, 8, 8301, 9216),  # 4 pieces: multiples of 1024
    (64, 8, 8301, 8448),  # 512 groups are enough as they are: multiples of 256, where a power of two would be 16,384
    (16, 8, 673, 768), (1, 8, 673, 1024),  # two pieces fit into 673 slots, four do not
    (1, 8, 1, 256), (1, 8, 256, 256), (1, 8, 257, 512), (1, 128, 257, 512),
])  # fmt: skip
def test_a_row_is_as_long_as_its_pieces_want(rows: int, groups: int, slots: int, allocated: int) -> None:
    """By hand from the rule: twice the pieces while there are too few groups and each would still hold 256 wanted slots."""
    assert slots_allocated(rows, groups, slots) == allocated


def test_attention_cuts_what_is_allocated_into_enough_pieces_and_none_too_short() -> None:
    """Every length up to 9000, one row and several: less than half is to spare, and nothing is cut below 256."""
    pytest.importorskip("torch")
    from harness.modeling.used_kv import pieces_of

    for rows, groups in ((1, 8), (3, 4), (16, 8), (1, 1), (64, 8)):
        for slots in range(1, 9000, 37):
            allocated = slots_allocated(rows, groups, slots)
            pieces = pieces_of(rows * groups, allocated)
            assert slots <= allocated < slots + max(SMALLEST_PIECE, allocated // 2 + 1)
            assert allocated % pieces == 0 and allocated // pieces >= SMALLEST_PIECE
            assert rows * groups * pieces >= WANTED_GROUPS or allocated < 2 * SMALLEST_PIECE * pieces
