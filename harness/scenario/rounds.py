"""The order of the arms in each round of a cell, and the seeds of samples.

Each arm of a cell comes about equally often in each position, and after each other arm. So a machine that slows down within a
group, or an arm that disturbs a cache or a clock, affects all arms alike. A shuffle balances in expectation only. A fixed
rotation balances exactly, but a disturbance of the same period would always affect one arm. So rounds come in Latin squares,
with the rows' order and the arms' letters drawn at random.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from typing import TypeVar

_T = TypeVar("_T")


def balanced_order(arms: Sequence[_T], turn: int, seed_of: Callable[..., int]) -> list[_T]:
    """The order of the arms in round ``turn`` (from 0) of a run.

    Rounds are rows of Williams squares of n arms. Over rounds 0..t any two arms come in a position equally often, or one of
    them once more. Over n rounds (2n for an odd n) each arm follows each other one directly equally often. The order across
    two rounds is not balanced. Source: Williams, Australian J. Sci. Res. A 2 (1949) 149.

    Args:
        seed_of: a seed from values, the same in every interpreter.
    """
    n = len(arms)
    if n < 2:
        return list(arms)
    square, row = divmod(turn, n)
    pair, mirrored = divmod(square, 2) if n % 2 else (square, 0)  # an odd n needs two squares to balance who follows whom
    rows, letters = list(range(n)), list(arms)
    random.Random(seed_of("rows", square)).shuffle(rows)
    random.Random(seed_of("letters", pair)).shuffle(letters)
    # 0, 1, n-1, 2, n-2, …: the steps between neighbours, modulo n, are all different
    first = [(place + 1) // 2 if place % 2 else (n - place // 2) % n for place in range(n)]
    order = [letters[(one + rows[row]) % n] for one in first]
    return order[::-1] if mirrored else order


def sample_seed(seed: int, part: str, task: str, batch_size: int, group: int, repeat: int, process: int = 0) -> int:
    """Seed of one sample, from its part's seed and its place; its arrivals and the order of its prompts are drawn from it."""
    return seed_from(seed, part, task, batch_size, group, repeat, *([process] if process else []))


def seed_from(*parts: object) -> int:
    """A 63-bit seed from values; unlike hash() the same in every process."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big") >> 1
