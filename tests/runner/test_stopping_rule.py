"""A case is warm when two decodes in a row agree; a cell is repeated enough when its ratios stand still."""

from __future__ import annotations

import math

import pytest

from harness.runner.stopping_rule import StoppingRule, looks, pass_s, per_token_s, settled, timing_error
from tests.helpers import synthetic_run as synthetic
from tests.helpers.plans import plan_of


@pytest.mark.parametrize(
    ("passes_s", "warm"),
    [
        ([], False),
        ([1.0], False),
        ([1.0, 1.04], True),
        ([1.0, 1.06], False),
        ([1.0, 0.96], True),
        ([2.0, 1.0, 1.01], True),
        ([1.0, 1.0, 2.0], False),
        ([None, None], False),
    ],
)
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


@pytest.mark.parametrize(
    ("at_most", "expected"), [(1, (1,)), (2, (2,)), (3, (2, 3)), (8, (2, 4, 8)), (9, (2, 4, 8, 9)), (16, (2, 4, 8, 16))]
)
def test_looks_double_up_to_the_limit(at_most, expected):
    """Fixed in advance: looking after every repeat would stop at a lucky one."""
    assert looks(at_most) == expected


def test_timing_error_by_hand():
    """Two prompts, log ratios 0 and 0.2, and 1.0 and 1.2: s² = 0.02 each, so sqrt(2 · 0.02 / 2) / 2 = 0.0707.

    The prompts differ by 1.0, which is no noise of the clock.
    """
    ntp = {(g, r): math.exp(g + 0.2 * r) for g in (0, 1) for r in (0, 1)}
    arm = dict.fromkeys(ntp, 1.0)
    assert timing_error(ntp, arm) == pytest.approx(math.sqrt(0.02) / 2)
    assert timing_error(ntp, {(0, 0): 1.0, (1, 0): 1.0}) is None
    assert timing_error({}, {}) is None


def test_seconds_per_token_leave_out_what_the_prefill_gave():
    """64 decode tokens of 11 ms each behind one token of the prefill."""
    assert per_token_s(synthetic.sample(synthetic.Part(), synthetic.NTP, "x", 0, 0)) == pytest.approx(0.011)


@pytest.mark.parametrize(("noise", "repeats"), [([0.0], [2]), ([0.005], [2]), ([0.5], [4]), ([0.5, 0.0], [4, 2])])
def test_a_cell_is_repeated_until_its_ratios_stand_still(noise, repeats):
    """In each process by itself: times that scatter by 0.5 % need two repeats for an error of 1 %, such that scatter by half
    need all four.
    """
    work = {"synthetic": {"prompt_tokens": 4}, "prompts": 2, "max_new_tokens": 65}
    how = {"repeats": {"standard_error": 0.01, "at_most": 4}, "processes": len(noise), "baseline_check": 2 - len(noise)}
    plan, taken = plan_of(workload=work, **how), []
    pace = StoppingRule(plan)
    for slot in plan.slots():
        if slot.warmup or not pace.needs(slot):
            continue
        kind = synthetic.NTP if slot.case.arm.method == "ntp" else synthetic.ARMS[1]
        one = synthetic.sample(synthetic.Part(prompts=2), kind, slot.case.case_id, slot.group, slot.repeat)
        slow = 1 + noise[slot.process] * (slot.repeat % 2) * (slot.case.arm.method == "ntp")
        taken.append(one.model_copy(update={"decode_s": one.decode_s * slow, "process": slot.process}))
        pace.note(taken[-1])
    found = {(s.process, s.case_id.rpartition("/")[2][:3], s.repeat) for s in taken if "generate" not in s.case_id}
    every = enumerate(repeats)
    assert found == {(n, method, repeat) for n, many in every for method in ("ntp", "sbd") for repeat in range(many)}
    held = synthetic.build().model_copy(update={"samples": taken})
    again = StoppingRule(plan, held)
    assert [slot.key for slot in plan.slots() if not slot.warmup and again.needs(slot)] == [
        slot.key for slot in plan.slots() if not slot.warmup and slot.repeat < repeats[slot.process]
    ]
