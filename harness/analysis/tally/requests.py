"""The requests of a served sample: which of them count under their load, and what each one waited for.

A load is *steady* while as many requests are there as it says. Only then do requests count; the others are left out and told.

* Closed loop of N: steady from when the N-th request was sent until a slot stays empty because no request waits. A request
  counts if it took the place of an answered one and was answered in that time. So the first N and up to N - 1 at the end are
  left out.
* Arrivals, Poisson's or a trace's: steady behind the first tenth of the time from the first to the last arrival. A request
  counts if it was sent then, however long it took. To drop those answered late would flatter a server that falls behind.
* All at once: every request counts.

SGLang's benchmark has such a window for closed loops (python/sglang/benchmark/steady_state.py, all requests running).
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.frozen import frozen
from harness.record.schema import REQUEST_S, RowTimes, Sample
from harness.scenario.load import Load

ROUNDED_S = 2e-6
"""A request that made room for the last one was answered before it was sent, but for the rounding of recorded times."""
WARM_IN = 0.1
"""Share of the time of arrivals that comes before the steady part: a server is empty when the first one comes."""


@frozen
class Window:
    """The steady part of a sample. ``answered``: requests that were so within it; ``came``: arrivals within it, and of a closed
    loop again the answered ones, each of which made room for another. ``tokens`` that came within it, those of an answer spread
    evenly from its first to its last; ``in_flight``: mean number of unanswered requests.
    """

    length_s: float
    came: int
    answered: int
    tokens: float
    in_flight: float
    left_out: int


@frozen
class TalliedRequest:
    """One request, by its client. ``time_per_token_s``: mean over the tokens behind the first piece, None where there is none.

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
    waited_s = sum(max(0.0, min(_ended(one), end_s) - max(one.sent_s, begin_s)) for one in times)
    answered = sum(begin_s < _ended(one) <= end_s for one in times)
    together = load is None or load.closed
    window = Window(
        length_s=length_s,
        answered=answered,
        came=answered if together else sum(begin_s <= one.sent_s <= end_s for one in times),
        tokens=sum(
            count * _share(one.sent_s + one.first_token_s, _ended(one), begin_s, end_s)
            for one, count in zip(times, tokens, strict=True)
        ),
        in_flight=waited_s / length_s if length_s > 0 else 0.0,
        left_out=len(times) - sum(counted),
    )
    return tuple(
        _request(one, window, counts, count - first if clock else None, load)
        for one, counts, count, first in zip(times, counted, tokens, first_tokens, strict=True)
    )


def _request(times: RowTimes, window: Window, counted: bool, behind: int | None, load: Load | None) -> TalliedRequest:
    """``behind``: tokens behind the first piece; None: its stream tells no times of them."""
    if behind is None:
        return TalliedRequest(window=window, counted=counted, request_s=times.last_token_s)
    per_token, first_s = (times.last_token_s - times.first_token_s) / behind if behind > 0 else None, times.first_token_s
    good = None
    if load is not None and (load.first_token_s or load.time_per_token_s):
        each_s = per_token or 0.0
        good = first_s <= (load.first_token_s or first_s) and each_s <= (load.time_per_token_s or each_s)
    return TalliedRequest(
        window=window,
        counted=counted,
        first_token_s=first_s,
        time_per_token_s=per_token,
        request_s=times.last_token_s,
        gaps_s=tuple(times.gaps_s or ()),
        good=good,
    )


def _steady(times: Sequence[RowTimes], load: Load | None, in_flight: int) -> tuple[float, float, list[bool]]:
    """Begin and end of the steady part, and which requests count."""
    sent = sorted(one.sent_s for one in times)
    if load is None:
        return sent[0], max(map(_ended, times)), [True] * len(times)
    if not load.closed:
        begin_s = sent[0] + WARM_IN * (sent[-1] - sent[0])
        return begin_s, sent[-1], [one.sent_s >= begin_s for one in times]
    begin_s = sent[min(in_flight, len(sent)) - 1]
    end_s = min((_ended(one) for one in times if _ended(one) > sent[-1] + ROUNDED_S), default=sent[-1])
    return begin_s, end_s, [one.sent_s > begin_s and _ended(one) <= end_s for one in times]


def _ended(times: RowTimes) -> float:
    return times.sent_s + times.last_token_s


def _share(begin_s: float, end_s: float, window_begin_s: float, window_end_s: float) -> float:
    """Of a span, the share within a window; a span of no length is within or without."""
    if end_s <= begin_s:
        return float(window_begin_s < begin_s <= window_end_s)
    return max(0.0, min(end_s, window_end_s) - max(begin_s, window_begin_s)) / (end_s - begin_s)
