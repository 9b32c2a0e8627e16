"""One row's progress through its blocks, hand-worked: what is final when, and what leaves the masked set."""

from __future__ import annotations

from harness.decoding.open_blocks import BlockRow
from harness.decoding.request import StopRule

STOP, MASK = 9, 0


def row(max_new_tokens: int = 10, **rule: object) -> BlockRow:
    """A row with blocks of four, its first one open."""
    opened = BlockRow(StopRule(**({"token_ids": frozenset({STOP})} | rule)), max_new_tokens, 4, MASK)
    opened.open_block()
    return opened


def test_slots_behind_a_stop_leave_the_masked_set_and_the_row_ends_when_all_before_it_is_final() -> None:
    """A stop at slot 1: only slot 0 is still asked for, and with it two tokens become final at once."""
    one = row()
    assert one.decide([-1, STOP, -1, 7]) == 0
    assert one.masked == [True, False, False, False]
    assert one.decide([5, -1, -1, -1]) == 2
    assert (one.output, one.ended, one.stop_reason) == ([5, STOP], True, "stop")
    one.open_block()
    assert one.masked == [False] * 4


def test_an_earlier_stop_wins() -> None:
    """A stop found later, but standing before the first one found, is where the output ends."""
    one = row()
    one.decide([-1, -1, STOP, -1])
    assert one.decide([STOP, -1, -1, -1]) == 1
    assert one.output == [STOP]


def test_the_length_limit_cuts_the_last_block() -> None:
    """Six tokens in blocks of four: the second block asks for two."""
    one = row(max_new_tokens=6)
    assert one.decide([1, 2, 3, 4]) == 4
    one.open_block()
    assert one.masked == [True, True, False, False]
    assert one.decide([-1, 6, -1, -1]) == 0
    assert one.decide([5, -1, -1, -1]) == 2
    assert (one.output, one.stop_reason) == ([1, 2, 3, 4, 5, 6], "length")


def test_a_stop_string_ends_the_row_where_it_is_complete() -> None:
    """The rule sees the known output only; what was decided behind it is not output."""
    one = row(ends_text=lambda ids: list(ids[-2:]) == [2, 3])
    assert one.decide([1, -1, 3, 4]) == 1
    assert one.decide([-1, 2, -1, -1]) == 2
    assert (one.output, one.stop_reason) == ([1, 2, 3], "stop")
