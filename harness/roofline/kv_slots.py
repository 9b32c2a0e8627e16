"""How many slots a captured session's KV buffers have, and into how many pieces attention cuts them.

Axes: B rows, G KV heads, C slots of a row.
"""

from __future__ import annotations

SMALLEST_PIECE = 256
WANTED_GROUPS = 128
"""About the number of multiprocessors of a large GPU: so many (row, KV head, piece) should there be to keep it busy."""


def pieces_of(groups: int, slots: int) -> int:
    """Into how many equal pieces buffers of ``groups`` (row, KV head) and ``slots`` are cut: a power of two, none shorter than
    SMALLEST_PIECE.
    """
    pieces = 1
    while groups * pieces < WANTED_GROUPS and slots % (2 * pieces) == 0 and slots // (2 * pieces) >= SMALLEST_PIECE:
        pieces *= 2
    return pieces


def slots_allocated(rows: int, groups: int, slots: int) -> int:
    """Slots of each of ``rows`` rows of ``groups`` KV heads where ``slots`` are needed: SMALLEST_PIECE in as many pieces as
    keep a GPU busy, or a multiple of that.
    """
    pieces = 1
    while rows * groups * pieces < WANTED_GROUPS and slots >= 2 * pieces * SMALLEST_PIECE:
        pieces *= 2
    return -(-slots // (pieces * SMALLEST_PIECE)) * pieces * SMALLEST_PIECE
