"""Pricing a whole sample at once gives what pricing its passes one by one gives."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from harness.compare_pricing import Pricer, ladder
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
    at_once = Pricer(CASE, CEILINGS).price_columns(columns)
    one_by_one = [None if one.role == "prefill" else Pricer(CASE, CEILINGS).price(one) for one in columns.passes()]
    assert at_once == one_by_one
    assert at_once[0] is None and len(at_once) == len(columns.role)
