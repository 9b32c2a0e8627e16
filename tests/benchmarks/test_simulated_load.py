"""The simulated server against examples by hand, and its draws."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.simulated_load import FURTHER, PROMPT_PASSES, LoadShape, answered, simulated

PASS_S = 0.02


def test_two_requests_one_slot_and_two_by_hand() -> None:
    """A request of 2 + 8 passes from 0 s and one of 2 + 3 from 0.01 s. One slot: the second waits until 0.2 s. Two: a pass of
    both takes 0.022 s, so the first has half a pass alone, five beside the second and 4.5 alone again.
    """
    assert (FURTHER, PROMPT_PASSES) == (0.1, 2.0)
    one = answered([0.0, 0.01], [8.0, 3.0], 1, PASS_S)
    assert [(t.sent_s, t.first_token_s, t.last_token_s) for t in one] == [
        pytest.approx((0.0, 0.04, 0.2)),
        pytest.approx((0.01, 0.23, 0.29)),
    ]
    two = answered([0.0, 0.01], [8.0, 3.0], 2, PASS_S)
    assert [(t.sent_s, t.first_token_s, t.last_token_s) for t in two] == [
        pytest.approx((0.0, 0.043, 0.21)),
        pytest.approx((0.01, 0.044, 0.11)),
    ]


def test_a_closed_loop_sends_when_one_is_answered() -> None:
    """Two slots, three requests of 2 + 2, 2 + 6 and 2 + 2 passes: the third is sent at 4 · 0.022 s and ends with the second."""
    found = answered(None, [2.0, 6.0, 2.0], 2, PASS_S)
    assert [t.sent_s for t in found] == pytest.approx([0.0, 0.0, 0.088])
    assert [t.sent_s + t.last_token_s for t in found] == pytest.approx([0.088, 0.176, 0.176])


def test_starts_are_draws_of_their_own_unless_one_draw_is_meant() -> None:
    """Arms of a start share arrivals and answers; so do the starts of records of before."""
    for same in (False, True):
        drawn = simulated(LoadShape(kind="poisson", requests=10, starts=3, same_draw=same), np.random.default_rng(1))
        sent = {name: [tuple(round(t.sent_s, 9) for t in start.times) for start in starts] for name, starts in drawn.items()}
        assert sent["ntp"] == sent["arm"] and len(set(sent["ntp"])) == (1 if same else 3)
        assert [start.tokens for start in drawn["ntp"]] == [start.tokens for start in drawn["arm"]]
        assert len({prompt for start in drawn["arm"] for prompt in start.prompts}) == (10 if same else 30)
