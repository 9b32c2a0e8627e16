"""When requests are sent, and what the times of a sample and of its rows are, by hand and against a simulated queue."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from harness.errors import RequestError
from harness.scenario.load import Load
from harness.serving.counts import arrivals, merged
from harness.serving.stream import Chunk, ServedAnswer
from harness.serving.times import Turns, batch_times, in_turns, own_times, row_times, turns_of


def answer(sent_at_s: float, *at_s: float) -> ServedAnswer:
    """One token a chunk."""
    chunks = tuple(Chunk(at_s=one, ids=(7,)) for one in at_s)
    return ServedAnswer(sent_at_s=sent_at_s, chunks=chunks, stop_reason="length", prompt_tokens=5)


def test_turns_of_a_burst_a_closed_loop_and_poisson_arrivals() -> None:
    """The same for equal seeds; over 4,000 arrivals the mean gap is 1 / rate within 5 %, a fifth below a quarter."""
    assert turns_of(None, 3, 3, 1).after_s == [0, 0, 0] and turns_of(None, 3, 3, 1).at_once == 3
    assert turns_of(Load(concurrency=(1, 2)), 2, 3, 1).at_once == 2
    load = Load(requests_per_s=4.0)
    found = turns_of(load, 4000, 4000, 7)
    assert found.after_s == turns_of(load, 4000, 4000, 7).after_s != turns_of(load, 4000, 4000, 8).after_s
    gaps = [after - before for before, after in pairwise(found.after_s)]
    assert fmean(gaps) == pytest.approx(0.25, rel=0.05)
    assert fmean(gap < 0.0625 for gap in gaps) == pytest.approx(0.2212, abs=0.03), "1 - exp(-1/4)"


def test_times_of_a_batch_and_of_requests_of_their_own() -> None:
    """Two requests: 1 and 2 s to the first token, 3 and 1 s of decoding; the second one is sent 10 s later."""
    answers = [answer(5.0, 6.0, 7.0, 9.0), answer(15.0, 17.0, 18.0)]
    passes = merged([arrivals(row, one, 5, one_by_one=True) for row, one in enumerate(answers)])
    assert [[one.row for one in of_pass] for of_pass in passes] == [[0], [0], [1]]
    whole = batch_times(answers, passes)
    assert (whole.prefill_s, whole.decode_s, whole.forward_s) == (1.0, 12.0, [1.0, 1.0, 2.0, 9.0])
    own = own_times(answers)
    assert (own.prefill_s, own.decode_s, own.forward_s) == (1.5, 2.0, None)
    first, second = row_times(answers)
    assert (first.sent_s, first.first_token_s, first.last_token_s, first.gaps_s) == (0.0, 1.0, 4.0, [1.0, 2.0])
    assert (second.sent_s, second.first_token_s, second.last_token_s, second.gaps_s) == (10.0, 2.0, 3.0, [1.0])


class SkippingLoop(asyncio.SelectorEventLoop):
    """Asyncio's own loop on a clock that jumps to whatever comes next, so that no test waits."""

    def __init__(self) -> None:
        loop = self

        class Selector(selectors.SelectSelector):
            def select(self, timeout: float | None = None) -> Any:
                loop.now_s += timeout or 0.0
                return super().select(0)

        self.now_s = 0.0
        super().__init__(Selector())

    def time(self) -> float:
        return self.now_s


def served_in_turn(turns: Turns, service_s: float, servers: int = 1) -> list[ServedAnswer]:
    """A queue with one or several servers of a fixed service time (M/D/c under Poisson arrivals), asked through in_turns."""
    loop = SkippingLoop()
    asyncio.set_event_loop(loop)
    free = asyncio.Semaphore(servers)

    async def ask(number: int) -> ServedAnswer:
        sent_at_s = loop.time()
        async with free:
            await asyncio.sleep(service_s)
        return answer(sent_at_s, loop.time())

    try:
        return loop.run_until_complete(in_turns(turns, ask))
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def waits(arrived_s: Sequence[float], service_s: float) -> list[float]:
    """Lindley's recursion: the wait of a request is what its predecessor left of its own wait and service, or nothing."""
    found = [0.0]
    for before, after in pairwise(arrived_s):
        found.append(max(0.0, found[-1] + service_s - (after - before)))
    return [wait + service_s for wait in found]


def test_poisson_arrivals_at_a_queue_wait_as_queueing_theory_says() -> None:
    """M/D/1 at 70 %: every first token as by Lindley's recursion, and their mean within 10 % of Pollaczek and Khinchine's."""
    rate, service_s = 7.0, 0.1
    turns = turns_of(Load(requests_per_s=rate), 4000, 4000, 3)
    told = row_times(served_in_turn(turns, service_s))
    wanted = waits(turns.after_s, service_s)
    assert [one.first_token_s for one in told] == pytest.approx(wanted, abs=1e-5)
    assert [one.sent_s for one in told] == pytest.approx(list(turns.after_s), abs=1e-5)
    busy = rate * service_s
    assert fmean(wanted) == pytest.approx(service_s + busy * service_s / (2 * (1 - busy)), rel=0.1)
    assert float(np.percentile(wanted, 95)) > 3 * service_s, "a tail that the mean does not show"


def test_a_closed_loop_keeps_its_slots_full_and_no_fuller() -> None:
    """Three in flight at a server of two: the third always waits, and ten requests take five services."""
    told = row_times(served_in_turn(turns_of(Load(concurrency=3), 3, 10, 1), 1.0, servers=2))
    spans = [(one.sent_s, one.sent_s + one.last_token_s) for one in told]
    for begun, _ in spans:
        assert sum(start <= begun < end for start, end in spans) <= 3
    assert max(end for _, end in spans) == pytest.approx(5.0, abs=1e-3)


def test_one_failure_ends_all_of_a_sample() -> None:
    """The others are not sent, but for one that took its slot before it was known."""
    asked = []

    async def ask(number: int) -> ServedAnswer:
        asked.append(number)
        await asyncio.sleep(0)
        raise RequestError("planted")

    loop = SkippingLoop()
    with pytest.raises(RequestError, match="planted"):
        loop.run_until_complete(in_turns(Turns(after_s=[0.0] * 5, at_once=1), ask))
    loop.close()
    assert asked == [0, 1]
