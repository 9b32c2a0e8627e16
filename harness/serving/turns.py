"""When the requests of one sample are sent, and how long their answers are: at once, so many at a time, or as they arrive."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from harness.scenario.load import Load
from harness.serving.stream import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """``after_s``: of every request, from the sample's begin; ``at_once``: most of them in flight.

    ``output_tokens``: of every answer, exactly; None: each ends where it ends.
    """

    after_s: Sequence[float]
    at_once: int
    output_tokens: Sequence[int] | None = None


def turns_of(load: Load | None, in_flight: int, requests: int, seed: int) -> Turns:
    """The same for every arm of a sample, which shares its seed. The first arrival is at 0: time before it says nothing.

    Args:
        in_flight: most requests of a closed loop.
        requests: of the sample; those of a warm-up are fewer than the load's.
    """
    if load is None or load.closed:
        return Turns(after_s=[0.0] * requests, at_once=requests if load is None else in_flight)
    if load.requests_per_s is None:
        traced = (load.traced or ())[:requests]
        lengths = [one.output_tokens for one in traced]
        return Turns(after_s=[one.after_s for one in traced], at_once=requests, output_tokens=lengths)
    drawn = random.Random(seed)
    gaps = [0.0, *(drawn.expovariate(load.requests_per_s) for _ in range(requests - 1))]
    return Turns(after_s=list(accumulate(gaps)), at_once=requests)


async def in_turns(turns: Turns, ask: Callable[[int], Awaitable[Answer]]) -> list[Answer]:
    """The answers, in the order of the requests; the first that fails ends all of them.

    Args:
        ask: sends request i and reads its answer.
    """
    free = asyncio.Semaphore(turns.at_once)

    async def in_turn(number: int, after_s: float) -> Answer:
        await asyncio.sleep(after_s)
        async with free:
            return await ask(number)

    asked = [asyncio.ensure_future(in_turn(number, after_s)) for number, after_s in enumerate(turns.after_s)]
    try:
        return list(await asyncio.gather(*asked))
    except BaseException:
        for one in asked:
            one.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        raise
