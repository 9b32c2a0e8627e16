"""How long captured buffers are: what is needed and a little more, cut evenly into pieces that keep a GPU busy."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.roofline.storage import SMALLEST_PIECE, WANTED_GROUPS, pieces_of, slots_allocated


def test_by_hand() -> None:
    """64 rows are cut into one piece, a row of 8 KV heads into sixteen, a short one into fewer; none is doubled for a token."""
    assert [slots_allocated(64, 8, slots) for slots in (1, 256, 257, 8192, 8193)] == [256, 256, 512, 8192, 8448]
    assert [slots_allocated(1, 8, slots) for slots in (200, 900, 4096, 4097, 8193)] == [256, 1024, 4096, 8192, 12_288]
    assert slots_allocated(4, 8, 8193) == 9216


@given(rows=st.integers(1, 300), groups=st.sampled_from([1, 2, 8, 40]), slots=st.integers(1, 200_000))
def test_every_length_is_cut_evenly_and_nothing_is_doubled(rows: int, groups: int, slots: int) -> None:
    """Room for what is asked; pieces of 256 or more; as many as keep a GPU busy wherever the row is long enough for them; at
    most one slot a piece more than needed to fill its last 256.
    """
    found = slots_allocated(rows, groups, slots)
    pieces = pieces_of(rows * groups, found)
    assert found >= slots and found % pieces == 0 and found // pieces >= SMALLEST_PIECE
    assert rows * groups * pieces >= min(WANTED_GROUPS, rows * groups * slots / (2 * SMALLEST_PIECE))
    assert found - slots < SMALLEST_PIECE * pieces
    assert found <= max(SMALLEST_PIECE, 2 * slots)
