"""The times of a sample: when its requests are sent, at once, so many at a time or as they arrive; and when answers came, by
the client.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate, pairwise
from statistics import fmean

from harness.frozen import frozen
from harness.record.schema import RowTimes
from harness.scenario.load import Load
from harness.serving.counts import Arrival
from harness.serving.stream import ServedAnswer

DIGITS = 6
"""Decimals of a recorded second: a client's clock over a network knows no more."""


@frozen
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
        lengths = [request.output_tokens for request in traced]
        return Turns(after_s=[request.after_s for request in traced], at_once=requests, output_tokens=lengths)
    drawn = random.Random(seed)
    gaps = [0.0, *(drawn.expovariate(load.requests_per_s) for _ in range(requests - 1))]
    return Turns(after_s=list(accumulate(gaps)), at_once=requests)


async def in_turns(turns: Turns, ask: Callable[[int], Awaitable[ServedAnswer]]) -> list[ServedAnswer]:
    """The answers, in the order of the requests; the first that fails ends all of them.

    Args:
        ask: sends request i and reads its answer.
    """
    free = asyncio.Semaphore(turns.at_once)

    async def in_turn(number: int, after_s: float) -> ServedAnswer:
        await asyncio.sleep(after_s)
        async with free:
            return await ask(number)

    asked = [asyncio.ensure_future(in_turn(number, after_s)) for number, after_s in enumerate(turns.after_s)]
    try:
        return list(await asyncio.gather(*asked))
    except BaseException:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        raise


@frozen
class Times:
    """Of one sample. ``forward_s``: from pass to pass; None where requests come at times of their own."""

    prefill_s: float
    decode_s: float
    forward_s: list[float] | None


def batch_times(answers: Sequence[ServedAnswer], passes: Sequence[Sequence[Arrival]]) -> Times:
    """Of requests that were sent together: to the first chunk of any, and from there to the last of all."""
    sent_s, first_s = min(answer.sent_at_s for answer in answers), min(answer.chunks[0].at_s for answer in answers)
    ends = [first_s, *(max(arrival.at_s for arrival in of_pass) for of_pass in passes)]
    gaps = [max(0.0, after - before) for before, after in pairwise(ends)]
    last_s = max(answer.chunks[-1].at_s for answer in answers)
    return Times(prefill_s=first_s - sent_s, decode_s=last_s - first_s, forward_s=[first_s - sent_s, *gaps])


def own_times(answers: Sequence[ServedAnswer]) -> Times:
    """Of requests that came at times of their own: the means of what each one waited for."""
    first_s = fmean(answer.chunks[0].at_s - answer.sent_at_s for answer in answers)
    decode_s = fmean(answer.chunks[-1].at_s - answer.chunks[0].at_s for answer in answers)
    return Times(prefill_s=first_s, decode_s=decode_s, forward_s=None)


def row_times(answers: Sequence[ServedAnswer]) -> list[RowTimes]:
    """When each request was sent and answered, as the record keeps it."""
    begun_s = min(answer.sent_at_s for answer in answers)
    return [
        RowTimes(
            sent_s=round(answer.sent_at_s - begun_s, DIGITS),
            first_token_s=round(answer.chunks[0].at_s - answer.sent_at_s, DIGITS),
            last_token_s=round(answer.chunks[-1].at_s - answer.sent_at_s, DIGITS),
            gaps_s=[round(max(0.0, after.at_s - before.at_s), DIGITS) for before, after in pairwise(answer.chunks)],
        )
        for answer in answers
    ]
