"""When the requests of one sample are sent: all at once, so many at a time, or at the times of a Poisson process."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from harness.scenario.servers import Load


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """``after_s``: of every request, from the sample's begin; ``at_once``: most of them in flight."""

    after_s: Sequence[float]
    at_once: int


def turns_of(load: Load | None, requests: int, seed: int) -> Turns:
    """The same for every arm of a sample, which shares its seed. The first arrival is at 0: time before it says nothing."""
    if load is None or load.requests_per_s is None:
        return Turns(after_s=[0.0] * requests, at_once=load.concurrency if load and load.concurrency else requests)
    drawn = random.Random(seed)
    gaps = [0.0, *(drawn.expovariate(load.requests_per_s) for _ in range(requests - 1))]
    return Turns(after_s=list(accumulate(gaps)), at_once=requests)
