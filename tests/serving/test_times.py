"""When requests are sent, and what a sample's times are, by hand."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean

import pytest

from harness.scenario.servers import Load
from harness.serving.counts import arrivals, merged
from harness.serving.stream import Answer, Chunk
from harness.serving.times import batch_times, own_times, request_figures
from harness.serving.turns import turns_of


def answer(sent_at_s: float, *at_s: float) -> Answer:
    """One token a chunk."""
    chunks = tuple(Chunk(at_s=one, ids=(7,)) for one in at_s)
    return Answer(sent_at_s=sent_at_s, chunks=chunks, stop_reason="length", prompt_tokens=5)


def test_turns_of_a_burst_a_closed_loop_and_poisson_arrivals() -> None:
    """The same for equal seeds; over 4,000 arrivals the mean gap is 1 / rate within 5 %, a fifth below a quarter."""
    assert turns_of(None, 3, 1).after_s == [0, 0, 0] and turns_of(None, 3, 1).at_once == 3
    assert turns_of(Load(concurrency=2), 3, 1).at_once == 2
    load = Load(requests_per_s=4.0)
    found = turns_of(load, 4000, 7)
    assert found.after_s == turns_of(load, 4000, 7).after_s != turns_of(load, 4000, 8).after_s
    gaps = [after - before for before, after in pairwise(found.after_s)]
    assert fmean(gaps) == pytest.approx(0.25, rel=0.05)
    assert fmean(gap < 0.0625 for gap in gaps) == pytest.approx(0.2212, abs=0.03), "1 - exp(-1/4)"


@pytest.mark.parametrize("keys", [{}, {"concurrency": 2, "requests_per_s": 1.0}, {"requests_per_s": 0}])
def test_a_load_is_one_of_two(keys: dict[str, float]) -> None:
    """And no rate of 0."""
    with pytest.raises(ValueError, match=r"one of the two|greater than 0"):
        Load.model_validate(keys)


def test_times_of_a_batch_and_of_requests_of_their_own() -> None:
    """Two requests: 1 and 2 s to the first token, 3 and 1 s of decoding; the second one is sent 10 s later."""
    answers = [answer(0.0, 1.0, 2.0, 4.0), answer(10.0, 12.0, 13.0)]
    passes = merged([arrivals(row, one, 5, one_by_one=True) for row, one in enumerate(answers)])
    assert [[one.row for one in of_pass] for of_pass in passes] == [[0], [0], [1]]
    whole = batch_times(answers, passes)
    assert (whole.prefill_s, whole.decode_s, whole.forward_s) == (1.0, 12.0, [1.0, 1.0, 2.0, 9.0])
    own = own_times(answers)
    assert (own.prefill_s, own.decode_s, own.forward_s) == (1.5, 2.0, None)


def test_percentiles_rates_and_goodput() -> None:
    """Time per token 1.5 and 1 s; one of the two is within 1.2 s a token, none has its first token in 0.5 s."""
    answers = [answer(0.0, 1.0, 2.0, 4.0), answer(10.0, 12.0, 13.0)]
    found = request_figures(answers, Load(concurrency=1, time_per_token_s=1.2))
    assert found["served_first_token_p50_s"] == 1.5 and found["served_time_per_token_p50_s"] == 1.25
    assert found["served_request_p95_s"] == pytest.approx(3.95)
    assert found["served_requests_per_s"] == 2 / 13 and found["served_tokens_per_s"] == 5 / 13
    assert found["served_goodput_per_s"] == 1 / 13
    assert request_figures(answers, Load(concurrency=1, first_token_s=0.5))["served_goodput_per_s"] == 0
