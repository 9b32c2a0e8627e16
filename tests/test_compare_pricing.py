"""Pricing a whole sample at once gives what pricing its passes one by one gives."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from harness.compare_pricer import Pricer
from harness.compare_pricing import ladder
from harness.compare_trace import TraceArrays
from harness.record_packed import read_passes
from harness.roofline.pricing import price_pass
from tests import synthetic_run as synthetic

RUN = synthetic.build(calibration=synthetic.calibration())
CASE = RUN.header.cases[1]
CEILINGS = ladder(RUN, CASE).ceilings


@given(st.integers(1, 4), st.integers(0, 2**32))
def test_a_sample_s_passes_cost_what_each_of_them_costs(rows: int, seed: int) -> None:
    """Rows of unlike length, passes that come again in another order: a price kept under the wrong counts would show."""
    drawn = random.Random(seed)
    columns = synthetic.columns(synthetic.ARMS[1], 3, rows, 1.0, timed=True)
    for name in ("query_tokens", "logit_tokens", "kept_tokens", "context_tokens"):
        for row in getattr(columns, name):
            row[:] = [drawn.choice((0, 1, 16, 32)) + 1 for _ in row]
    for padded, real in ((columns.padded_query, columns.query_tokens), (columns.padded_context, columns.context_tokens)):
        padded[:] = [max(row) for row in real]
    trace, pricer = TraceArrays(read_passes(columns)), Pricer(CASE, CEILINGS)
    places = pricer.places(trace, trace.decode)
    one_by_one = [Pricer(CASE, CEILINGS).price(one) for one in columns.passes() if one.role != "prefill"]
    assert pricer.bytes_(places).tolist() == [one.bytes_ for one in one_by_one]
    assert pricer.flops(places).tolist() == [one.flops for one in one_by_one]
    assert pricer.rungs == tuple(one_by_one[0].forward_s) == tuple(CEILINGS)
    bands = [[[list(of[rung]) for rung in pricer.rungs] for of in (one.forward_s, one.decode_s)] for one in one_by_one]
    assert pricer.forward_s(places).tolist() == [forward for forward, _ in bands]
    assert pricer.decode_s(places).tolist() == [decode for _, decode in bands]
    alone = price_pass(CASE.model, CASE.dtype, columns.passes()[1], CEILINGS[pricer.rungs[0]])
    assert one_by_one[0].decode_s[pricer.rungs[0]] == (alone.low_s, alone.expected_s, alone.high_s)
