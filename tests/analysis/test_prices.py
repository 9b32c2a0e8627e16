"""Pricing a whole sample at once gives what pricing its passes one by one gives."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.analysis.evidence.pass_widths import pass_widths
from harness.analysis.tally.pass_arrays import ROLES, TraceArrays
from harness.analysis.tally.prices import ladder
from harness.analysis.tally.pricing import Pricer
from harness.analysis.tally.tally import TimedPasses
from harness.record.passes import read_passes
from harness.roofline.operation import describe_pass
from harness.roofline.pricing import price_pass
from tests.helpers import synthetic_run as synthetic
from tests.helpers.synthetic_run import priced

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
    one_by_one = [priced(Pricer(CASE, CEILINGS), one) for one in columns.passes() if one.role != "prefill"]
    assert pricer.bytes_(places).tolist() == [one.bytes_ for one in one_by_one]
    assert pricer.flops(places).tolist() == [one.flops for one in one_by_one]
    assert pricer.rungs == tuple(one_by_one[0].forward_s) == tuple(CEILINGS)
    bands = [[[list(of[rung]) for rung in pricer.rungs] for of in (one.forward_s, one.decode_s)] for one in one_by_one]
    assert pricer.forward_s(places).tolist() == [forward for forward, _ in bands]
    assert pricer.decode_s(places).tolist() == [decode for _, decode in bands]
    alone = price_pass(CASE.model, CASE.dtype, columns.passes()[1], CEILINGS[pricer.rungs[0]])
    assert one_by_one[0].decode_s[pricer.rungs[0]] == (alone.low_s, alone.expected_s, alone.high_s)


def test_arms_of_one_method_are_priced_each_by_its_own_draft_model() -> None:
    """Drafts of one name, 1 and 3 layers deep, met in another order: a kind's bytes are the mean of what each arm's cost."""
    passes = [describe_pass("draft", 1, query, 100, logits=query)._replace(model="draft") for query in (1, 4)]
    timed, expected = [], dict[int, list[float]]()
    for layers, order in ((1, (0, 1, 1)), (3, (1, 0))):
        draft = CASE.model.model_copy(update={"layers": layers})
        pricer = Pricer(CASE.model_copy(update={"draft_models": {"draft": draft}}), CEILINGS)
        for place in order:
            alone = Pricer(CASE.model_copy(update={"draft_models": {"draft": draft}}), CEILINGS)
            bytes_ = priced(alone, passes[place]).bytes_
            expected.setdefault((1, 4)[place], []).append(bytes_)
        met = list(dict.fromkeys(order))  # in which order the table of this pricer is filled
        for place in met:
            priced(pricer, passes[place])
        timed.append(
            TimedPasses(
                role=np.full(len(order), ROLES.index("draft"), dtype=np.int8),
                query_tokens=np.array([(1, 4)[place] for place in order]),
                context_tokens=np.full(len(order), 100.0),
                forward_s=np.full(len(order), 0.01),
                model=np.ones(len(order), dtype=np.int64),
                models=(None, "draft"),
                places=np.array([met.index(place) for place in order]),
                pricer=pricer,
            )
        )
    found = pass_widths([("early_exit", [cast(Any, SimpleNamespace(sums=SimpleNamespace(timed=one))) for one in timed])])
    assert {one.query_tokens: one.bytes_ for one in found} == {
        query: pytest.approx(float(np.mean(all_of_them))) for query, all_of_them in expected.items()
    }
    assert [one.count for one in found] == [2, 3]
