"""The requests of a served sample: which of them count under their load, and what each one waited for.

A load is *steady* while as many requests are there as it says. Only then do requests count; the others are left out and told.

* Closed loop of N: steady from when the N-th request was sent until a slot stays empty because no request waits. All requests
  count but the first and the last N, by their place: so they are the same ones in every arm. To count those answered in that
  time leaves out long ones: the 95th percentile of 48 requests, four in flight, was 8 % too low, by place 5 %
  (benchmarks/simulated_load).
* Arrivals, Poisson's or a trace's: steady after LEAD_IN median times of the sample's own requests, at most a quarter of the
  time of arrivals. A request counts if it was sent then, however long it took. To drop those answered late would flatter a
  server that falls behind.
* All at once: every request counts.

SGLang's benchmark has such a window for closed loops (python/sglang/benchmark/steady_state.py, all requests running).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, median, stdev

import numpy as np

from harness.frozen import frozen
from harness.record.schema import REQUEST_S, RowTimes, Sample
from harness.scenario.load import Load
from harness.stats.quantity import t_reach

ROUNDED_S = 2e-6
"""A request that made room for the last one was answered before it was sent, but for the rounding of recorded times."""
LEAD_IN = 5.0
"""Median request times before the steady part of arrivals: a server is empty when the first one comes.

In 1,000 simulated starts (benchmarks/simulated_load, 4 and 16 slots) the mean request time is within 2 % of its lasting value
from there on at 70 % of what a server can answer; the wait for a slot, which settles last, within 12 %. At 90 % no lead-in that
a run can afford is enough: after 5 it is 30 % too low. Found as by Welch's procedure (A. Law, Simulation Modeling and Analysis,
2015, section 9.5.1; A. Law and W. D. Kelton before): averages over starts, by time from the begin.
"""
MOST_LEAD_IN = 1 / 4
"""Share of the time of arrivals: a lead-in that would be longer leaves no steady part, and the sample is not settled."""
UNSETTLED = 0.05
"""Probability with which a load that settles is found not to, by the t test. In 60 to 200 simulated runs each of 3 and 6 starts
with 4 slots (benchmarks/simulated_load), the t test or a sample without a steady part found it not to, with 200 requests: at 50
and 70 % of what the server can answer in 2 to 3 %; at 90 % in 23 and 35 %; above 100 % always. With 48 requests: at 50 % in 19
and 32 %; at 70 % in 91 and 99 %.
"""
MOST_R = 0.999
"""A correlation of 1 has no finite z."""


@frozen
class Window:
    """The steady part of a sample. ``answered``: requests that were so within it; ``came``: arrivals within it, and of a closed
    loop again the answered ones, each of which made room for another. ``tokens`` that came within it, those of an answer spread
    evenly from its first to its last; ``waited_s``: of all unanswered requests, within it. ``seed``: of the sample, which its
    arrivals and the order of its prompts were drawn from. ``growth``: as ``growth_of``, of arrivals of no trace;
    ``short``: their lead-in would be longer than MOST_LEAD_IN.
    """

    length_s: float
    came: int
    answered: int
    tokens: float
    waited_s: float
    left_out: int
    seed: int | None
    growth: float | None
    short: bool


@frozen
class TalliedRequest:
    """One request, by its client. ``time_per_token_s``: mean over the tokens after the first piece, None where there is none.

    ``gaps_s``: between the pieces of its answer. ``good``: within the limits of its load; None: it has none. All but the whole
    request are absent where its stream does not tell them.
    """

    window: Window
    counted: bool
    request_s: float
    first_token_s: float | None = None
    time_per_token_s: float | None = None
    gaps_s: tuple[float, ...] = ()
    good: bool | None = None


def requests_of(sample: Sample, load: Load | None, in_flight: int, first_tokens: Sequence[int]) -> tuple[TalliedRequest, ...]:
    """The requests of a sample, row by row; none where its rows have no times, or its times are void.

    Args:
        in_flight: most requests at a time.
        first_tokens: in the first piece of every answer.
    """
    times = [row.times for row in sample.rows if row.times is not None]
    clock = sample.decode_s is not None
    if len(times) < len(sample.rows) or not times or not (clock or REQUEST_S in sample.meters):
        return ()
    begin_s, end_s, counted = _steady(times, load, in_flight)
    tokens, length_s = [row.output_tokens for row in sample.rows], end_s - begin_s
    answered = sum(begin_s < _ended(one) <= end_s for one in times)
    together, growth = load is None or load.closed, None
    if load is not None and load.requests_per_s is not None:
        growth = growth_of(times, begin_s)
    window = Window(
        length_s=length_s,
        answered=answered,
        came=answered if together else sum(begin_s <= one.sent_s <= end_s for one in times),
        tokens=sum(
            count * _share(one.sent_s + one.first_token_s, _ended(one), begin_s, end_s)
            for one, count in zip(times, tokens, strict=True)
        ),
        waited_s=sum(_overlap_s(one.sent_s, _ended(one), begin_s, end_s) for one in times),
        left_out=len(times) - sum(counted),
        seed=sample.seed,
        growth=growth,
        short=growth is not None and length_s <= (1 - MOST_LEAD_IN) * end_s,
    )
    return tuple(
        _request(one, window, counts, count - first if clock else None, load)
        for one, counts, count, first in zip(times, counted, tokens, first_tokens, strict=True)
    )


def _request(times: RowTimes, window: Window, counted: bool, after: int | None, load: Load | None) -> TalliedRequest:
    """``after``: tokens after the first piece; None: its stream tells no times of them."""
    whole = TalliedRequest(window=window, counted=counted, request_s=times.last_token_s)
    if after is None:
        return whole
    per_token, first_s = (times.last_token_s - times.first_token_s) / after if after > 0 else None, times.first_token_s
    good = None
    if load is not None and (load.first_token_s or load.time_per_token_s):
        each_s = per_token or 0.0
        good = first_s <= (load.first_token_s or first_s) and each_s <= (load.time_per_token_s or each_s)
    return replace(whole, first_token_s=first_s, time_per_token_s=per_token, gaps_s=tuple(times.gaps_s or ()), good=good)


def _steady(times: Sequence[RowTimes], load: Load | None, in_flight: int) -> tuple[float, float, list[bool]]:
    """Begin and end of the steady part, and which requests count."""
    sent = sorted(one.sent_s for one in times)
    if load is None:
        return sent[0], max(map(_ended, times)), [True] * len(times)
    if not load.closed:
        lead_in_s = LEAD_IN * median(one.last_token_s for one in times)
        begin_s = sent[0] + min(lead_in_s, MOST_LEAD_IN * (sent[-1] - sent[0]))
        return begin_s, sent[-1], [one.sent_s >= begin_s for one in times]
    begin_s = sent[min(in_flight, len(sent)) - 1]
    end_s = min((_ended(one) for one in times if _ended(one) > sent[-1] + ROUNDED_S), default=sent[-1])
    return begin_s, end_s, [in_flight <= place < len(times) - in_flight for place in range(len(times))]


def growth_of(times: Sequence[RowTimes], begin_s: float) -> float:
    """Fisher's z, half of log((1 + r) / (1 - r)), of the correlation r between when a request was sent and how many were
    unanswered then, from ``begin_s`` on: about 0 where a load settles, more where a queue grows.
    """
    sent, ended = np.sort([one.sent_s for one in times]), np.sort([_ended(one) for one in times])
    in_flight = np.arange(len(sent)) - np.searchsorted(ended, sent, side="right")
    kept = sent >= begin_s
    if np.ptp(in_flight[kept]) == 0:
        return 0.0
    return math.atanh(np.clip(np.corrcoef(sent[kept], in_flight[kept])[0, 1], -MOST_R, MOST_R))


def why_unsettled(windows: Sequence[Window]) -> str | None:
    """Why the arrivals of an arm, each sample a draw of its own, never were a steady load; None where nothing shows that.

    A t test over samples that their growth is above 0, one-sided at UNSETTLED. Inside a sample requests that follow each other
    are alike, so its own scatter would call nearly every load unsettled.
    """
    grown = [one.growth for one in windows if one.growth is not None]
    free, short = len(grown) - 1, sum(one.short for one in windows)
    if free < 1 or fmean(grown) <= t_reach(free, 1 - 2 * UNSETTLED) * stdev(grown) / math.sqrt(len(grown)):
        lasts = f"arrivals last less than {LEAD_IN / MOST_LEAD_IN:g} median request times in {short} of {len(windows)}"
        return f"the load did not settle: {lasts} processes; it takes more requests, or fewer a second" if short else None
    length_s = sum(one.length_s for one in windows)
    came, answered = (sum(getattr(one, name) for one in windows) / length_s for name in ("came", "answered"))
    return f"the load did not settle: more and more requests were in flight, {came:.3g} came a second and {answered:.3g} left"


def _ended(times: RowTimes) -> float:
    return times.sent_s + times.last_token_s


def _share(begin_s: float, end_s: float, window_begin_s: float, window_end_s: float) -> float:
    """Of a span, the share within a window; a span of no length is within or without."""
    if end_s <= begin_s:
        return float(window_begin_s < begin_s <= window_end_s)
    return _overlap_s(begin_s, end_s, window_begin_s, window_end_s) / (end_s - begin_s)


def _overlap_s(begin_s: float, end_s: float, window_begin_s: float, window_end_s: float) -> float:
    return max(0.0, min(end_s, window_end_s) - max(begin_s, window_begin_s))
