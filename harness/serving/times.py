"""The times of a sample and of each of its requests, by the client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from harness.record.schema import RowTimes
from harness.serving.counts import Arrival
from harness.serving.stream import Answer

DIGITS = 6
"""Decimals of a recorded second: a client's clock over a network knows no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Of one sample. ``forward_s``: from pass to pass; None where requests come at times of their own."""

    prefill_s: float
    decode_s: float
    forward_s: list[float] | None


def batch_times(answers: Sequence[Answer], passes: Sequence[Sequence[Arrival]]) -> Times:
    """Of requests that were sent together: to the first chunk of any, and from there to the last of all."""
    sent_s, first_s = min(one.sent_at_s for one in answers), min(one.chunks[0].at_s for one in answers)
    ends = [first_s, *(max(one.at_s for one in of_pass) for of_pass in passes)]
    gaps = [max(0.0, after - before) for before, after in pairwise(ends)]
    last_s = max(one.chunks[-1].at_s for one in answers)
    return Times(prefill_s=first_s - sent_s, decode_s=last_s - first_s, forward_s=[first_s - sent_s, *gaps])


def own_times(answers: Sequence[Answer]) -> Times:
    """Of requests that came at times of their own: the means of what each one waited for."""
    first_s = fmean(one.chunks[0].at_s - one.sent_at_s for one in answers)
    decode_s = fmean(one.chunks[-1].at_s - one.chunks[0].at_s for one in answers)
    return Times(prefill_s=first_s, decode_s=decode_s, forward_s=None)


def row_times(answers: Sequence[Answer]) -> list[RowTimes]:
    """When each request was sent and answered, as the record keeps it."""
    begun_s = min(one.sent_at_s for one in answers)
    return [
        RowTimes(
            sent_s=round(one.sent_at_s - begun_s, DIGITS),
            first_token_s=round(one.chunks[0].at_s - one.sent_at_s, DIGITS),
            last_token_s=round(one.chunks[-1].at_s - one.sent_at_s, DIGITS),
            gaps_s=[round(max(0.0, after.at_s - before.at_s), DIGITS) for before, after in pairwise(one.chunks)],
        )
        for one in answers
    ]
