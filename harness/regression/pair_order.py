"""Which side of a pair of fresh processes runs first, and how the estimate is freed of the effect of a pair's place.

The order is random, so that no periodic effect of the machine favours a side for long. It is balanced in blocks of four pairs:
one odd and one even pair start with BASE, the others with NEW. Each side then takes each of the four places of four processes
once, and effects of these places cancel in a block.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

PairStage = Literal["pair", "rerun"]
Term = tuple[float, ...]
"""One number per pair: the weight of an effect of the pair's place in its d."""
BLOCK = 4
"""Pairs."""
FEWEST_FOR_ONE_TERM = 4
FEWEST_FOR_TWO_TERMS = 8
"""With fewer pairs a term takes too many of the degrees of freedom that the bounds rest on."""


@dataclass(frozen=True, slots=True)
class PairOrder:
    """The order of all pairs of one gate, by the ``seed`` that was drawn for it.

    None: BASE first in odd pairs, NEW first in even ones, as in unfinished work folders of older gates.
    """

    seed: int | None

    def base_first(self, stage: PairStage, number: int) -> bool:
        """Whether BASE runs first in this pair, from 1."""
        if self.seed is None:
            return number % 2 == 1
        block, place = divmod(number - 1, BLOCK)
        drawn = random.Random(f"{self.seed}/{stage}/{block}")
        coins = (drawn.random() < 0.5, drawn.random() < 0.5)
        return coins[place % 2] == (place < 2)

    def signs(self, stage: PairStage, count: int, first: int = 1) -> tuple[int, ...]:
        """Of ``count`` pairs from ``first`` on: +1 where BASE runs first, -1 where NEW does."""
        return tuple(1 if self.base_first(stage, number) else -1 for number in range(first, first + count))


@lru_cache(maxsize=1024)
def place_terms(signs: tuple[int, ...]) -> tuple[Term, ...]:
    """The terms that are removed from a mean over these pairs: one column per term, one number per pair.

    A process slower for running second, and any steady drift, adds c to d where BASE ran first and subtracts it where NEW did.
    From eight pairs on odd and even pairs have a c each, which also removes an effect with a period of four processes. No term
    exists with fewer than four pairs, or where all had one order: it cannot be told from a change.

    Source: Hills and Armitage, Br. J. Clin. Pharmacol. 8 (1979) 7: the period effect of a two-period crossover trial.
    """
    odd = tuple(float(sign) * (place % 2 == 0) for place, sign in enumerate(signs))
    even = tuple(float(sign) * (place % 2 == 1) for place, sign in enumerate(signs))
    both = tuple(float(sign) for sign in signs)
    for terms, fewest in (((odd, even), FEWEST_FOR_TWO_TERMS), ((both,), FEWEST_FOR_ONE_TERM)):
        if len(signs) >= fewest and _independent(terms):
            return terms
    return ()


def _independent(terms: Sequence[Term]) -> bool:
    """Whether no term, and no sum of them, is the same in every pair."""
    columns = np.array([[1.0] * len(terms[0]), *terms])
    return bool(np.linalg.matrix_rank(columns) == len(columns))
