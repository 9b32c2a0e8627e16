"""A case is warm when two decodes in a row agree."""

from __future__ import annotations

import pytest

from harness.warmup import pass_s, settled
from tests import synthetic_run as synthetic


@pytest.mark.parametrize(
    ("passes_s", "warm"),
    [([], False), ([1.0], False), ([1.0, 1.04], True), ([1.0, 1.06], False), ([1.0, 0.96], True), ([2.0, 1.0, 1.01], True),
     ([1.0, 1.0, 2.0], False), ([None, None], False)],
)  # fmt: skip
def test_two_in_a_row_within_five_percent(passes_s, warm):
    """Only the last two count: a first pair that agreed by chance does not."""
    assert settled(passes_s) is warm


def test_a_pass_is_the_median_forward_without_the_prefill():
    """Put in: 10 ms a forward behind a prefill of 20 ms; untimed samples have none, generate()'s only a mean."""
    part = synthetic.Part()
    one = synthetic.sample(part, synthetic.NTP, "x", 0, 0)
    assert pass_s(one) == pytest.approx(0.010)
    whole = one.model_copy(update={"passes": one.passes.model_copy(update={"forward_s": None})})
    assert pass_s(whole) == pytest.approx(0.011)
    assert pass_s(one.model_copy(update={"decode_s": None})) is None
