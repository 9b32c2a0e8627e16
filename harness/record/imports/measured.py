"""What any tool's file says, in our units: one value for all formats, and the figures that follow from its requests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from statistics import fmean, median
from typing import Literal

from harness.frozen import frozen

Rule = Literal["per_request", "per_token"]
"""How a tool takes medians and means over requests. *per_request*: each counts the same, and percentiles are interpolated.
*per_token*: the mean time per token weighs by its tokens, and a percentile is the smallest value that so much does not exceed.
"""
MOST_REQUESTS = 1 << 17
"""Of all files of a command together."""
ROUNDING = 1e-9
FIGURES = ("first_token_s", "time_per_token_s", "gap_s", "request_s")
"""Figures of one request, or of one gap between two pieces of its stream (``gap_s``)."""


@frozen
class MeasuredRequest:
    """One answered request.

    ``place``: among all requests of its file, in the order they were made, from 0. ``first_token_s``: from sending to the first
    piece of the answer; ``last_token_s``: to the last; ``request_s``: to the end of the stream, by the tool. ``gaps_s``:
    between the pieces of the stream; None where the file has none.
    ``pieces``: of the stream, where its gaps are unknown. ``before_s``: from its first piece of any kind to the first token.
    ``prompt``: a digest of the prompt's text; None where the file does not hold it. ``begun_at``: ISO 8601, or None.
    """

    place: int
    prompt_tokens: int
    output_tokens: int
    first_token_s: float
    last_token_s: float
    request_s: float
    gaps_s: Sequence[float] | None = None
    prompt: str | None = None
    begun_at: str | None = None
    pieces: int | None = None
    before_s: float = 0.0

    @property
    def time_per_token_s(self) -> float | None:
        """Mean time of the tokens after the first; None without any. All four tools call it so, under several names."""
        later = self.output_tokens - 1
        return (self.last_token_s - self.first_token_s) / later if later > 0 else None


@frozen
class ResultFile:
    """One file: one run of a tool. ``name``: without folders. What the file does not tell is None or empty.

    ``sent``: all requests, failed ones included. ``concurrency``: most requests in flight; None: no limit is given.
    ``requests_per_s``: the rate that was asked for; None: none. ``printed``: the tool's own figures, by the names of
    ``figures`` and TOTALS, and ``rule`` how it takes them. ``counted``: its counts of drafts over all requests. ``lacks``: what
    this file does not tell, and why, by names of harness.record.schema.Imported. ``measured_at``: the file's own date (ISO
    8601); its requests may have their own.
    """

    format: str
    tool: str
    requests: tuple[MeasuredRequest, ...]
    sent: int
    printed: Mapping[str, float]
    lacks: Mapping[str, str]
    counted: Mapping[str, float] = field(default_factory=dict)
    tool_version: str | None = None
    model: str | None = None
    duration_s: float | None = None
    concurrency: int | None = None
    requests_per_s: float | None = None
    measured_at: str | None = None
    rule: Rule = "per_request"
    name: str = ""
    sha256: str = ""

    @property
    def failed(self) -> int:
        """Requests without an answer."""
        return self.sent - len(self.requests)

    @property
    def figures(self) -> dict[str, float]:
        """Figures and totals of the requests, by the tool's rule."""
        return figures(self.requests, self.rule) | totals(self.requests, self.duration_s)


Weighted = Sequence[tuple[float, float]]
"""Values, each with its weight."""


def figures(requests: Sequence[MeasuredRequest], rule: Rule = "per_request") -> dict[str, float]:
    """``median_first_token_s``, ``mean_...`` and ``p99_...`` of every figure that the requests have, by the tool's ``rule``."""
    values = {
        "first_token_s": [one.first_token_s for one in requests],
        "time_per_token_s": [time for one in requests if (time := one.time_per_token_s) is not None],
        "gap_s": [gap for one in requests for gap in one.gaps_s or ()],
        "request_s": [one.request_s for one in requests],
    }
    later = [one.output_tokens - 1.0 for one in requests if one.output_tokens > 1]
    found = dict[str, float]()
    for figure, known in values.items():
        if not known:
            continue
        weights = later if figure == "time_per_token_s" else [1.0] * len(known)
        told = _by_request(known) if rule == "per_request" else _by_token(list(zip(known, weights, strict=True)))
        found |= {f"{name}_{figure}": one for name, one in told.items()}
    return found


def _by_request(values: list[float]) -> dict[str, float]:
    return {"median": median(values), "mean": fmean(values), "p99": percentile(values, 99)}


def _by_token(values: Weighted) -> dict[str, float]:
    mean = fmean([value for value, _ in values], [weight for _, weight in values])
    return {"median": weighted_percentile(values, 50), "mean": mean, "p99": weighted_percentile(values, 99)}


def percentile(values: Sequence[float], percent: float) -> float:
    """By linear interpolation between the two nearest of the ``values``, which are not empty."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def weighted_percentile(values: Weighted, percent: float) -> float:
    """The smallest value such that it and those below hold so much of the weight; ``values`` are not empty."""
    ordered = sorted(values)
    wanted = math.fsum(weight for _, weight in ordered) * percent / 100
    held = 0.0
    for value, weight in ordered:
        held += weight
        if held >= wanted * (1 - ROUNDING):
            return value
    return ordered[-1][0]


TOTALS = ("output_tokens", "prompt_tokens", "requests", "output_tokens_per_s", "requests_per_s")


def totals(requests: Sequence[MeasuredRequest], duration_s: float | None) -> dict[str, float]:
    """Sums over the answered requests, and rates where the duration of all is known."""
    found = {
        "output_tokens": float(sum(one.output_tokens for one in requests)),
        "prompt_tokens": float(sum(one.prompt_tokens for one in requests)),
        "requests": float(len(requests)),
    }
    if duration_s:
        found |= {"output_tokens_per_s": found["output_tokens"] / duration_s, "requests_per_s": found["requests"] / duration_s}
    return found
