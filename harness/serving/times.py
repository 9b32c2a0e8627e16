"""The times of a sample by the client, and the percentiles of its requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

import numpy as np

from harness.scenario.servers import Load
from harness.serving.counts import Arrival
from harness.serving.stream import Answer

PERCENTILES = (50, 95)


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
    first_s, decode_s = fmean(map(first_token_s, answers)), fmean(one.chunks[-1].at_s - one.chunks[0].at_s for one in answers)
    return Times(prefill_s=first_s, decode_s=decode_s, forward_s=None)


def first_token_s(answer: Answer) -> float:
    """From sending to the first chunk."""
    return answer.chunks[0].at_s - answer.sent_at_s


def time_per_token_s(answer: Answer) -> float:
    """Mean over the tokens behind the first chunk; 0 where there is none."""
    behind = len(answer.ids) - answer.sizes[0]
    return (answer.chunks[-1].at_s - answer.chunks[0].at_s) / behind if behind else 0.0


def request_figures(answers: Sequence[Answer], load: Load | None) -> dict[str, float]:
    """Percentiles over the requests of a sample, its rates, and the rate of the requests within the limits of the load."""
    each = {
        "first_token": [*map(first_token_s, answers)],
        "time_per_token": [*map(time_per_token_s, answers)],
        "request": [one.chunks[-1].at_s - one.sent_at_s for one in answers],
    }
    found = {
        f"served_{name}_p{percent}_s": float(np.percentile(values, percent))
        for name, values in each.items() for percent in PERCENTILES
    }  # fmt: skip
    wall_s = max(one.chunks[-1].at_s for one in answers) - min(one.sent_at_s for one in answers)
    found |= {
        "served_requests_per_s": len(answers) / wall_s,
        "served_tokens_per_s": sum(len(one.ids) for one in answers) / wall_s,
    }
    if load is not None and (load.first_token_s or load.time_per_token_s):
        good = sum(_good(first, token, load) for first, token in zip(each["first_token"], each["time_per_token"], strict=True))
        found["served_goodput_per_s"] = good / wall_s
    return found


def _good(first_s: float, token_s: float, load: Load) -> bool:
    return first_s <= (load.first_token_s or first_s) and token_s <= (load.time_per_token_s or token_s)
