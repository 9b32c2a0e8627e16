"""Speedups of a run by pairs: what scaling, swapping, leaving out and more processes do to them."""

import json
import math

import numpy as np
import pytest

from harness.analysis.answer import compare, to_json
from harness.analysis.results import ArmResult
from harness.record.schema import Run
from harness.reporting.page import render
from harness.stats.quantity import Quantity
from tests.helpers import synthetic_run as synthetic
from tests.helpers.two_runs import in_processes, slower

SBD = "sbd-k16-g0.1-t0-entropy_bounded"
JITTERED = synthetic.Part(jitter=0.05, arms=synthetic.ARMS[:2])


def in_three(run: Run, factor: float) -> Run:
    """In processes that are slower by 1.3 each; the SBD arm of the second one by ``factor`` besides."""
    return slower(in_processes(run, 1, 1.3, 1.69), factor, "sbd", 1)


def sbd(run: Run) -> ArmResult:
    """The SBD arm of the summary."""
    return next(arm for arm in compare(run).cells[0].arms if not arm.is_ntp)


def speeds(arm: ArmResult) -> list[Quantity]:
    """Both estimators."""
    return [arm.wall_speedup, arm.wall_speedup_totals]


def test_both_estimators_have_their_interval_and_what_lies_beside_it() -> None:
    """8 prompts of one process: t and bootstrap-t, percentiles of the eight ratios, 65 tokens on both sides."""
    run = synthetic.build(JITTERED)
    found = sbd(run)
    assert found.wall_speedup.method == "t on log ratios, this process only"
    assert found.wall_speedup_totals.method == "bootstrap-t, this process only"
    per_token: dict[str, dict[int, float]] = {"ntp": {}, SBD: {}}
    for one in run.samples:
        if not one.warmup:
            per_token[one.case_id.rpartition("/")[2]][one.group] = one.decode_s / 64
    ratios = [per_token["ntp"][group] / per_token[SBD][group] for group in range(8)]
    beside = found.paired
    assert beside.p50 == pytest.approx(math.sqrt(math.prod(sorted(ratios)[3:5])))
    logs = np.quantile(np.log(ratios), [0.1, 0.9])
    assert (beside.p10, beside.p90) == pytest.approx(np.exp(logs))
    assert (beside.pairs, beside.processes, beside.one_sided, beside.reason) == (8, 1, 0, None)
    assert beside.ntp_output_tokens == beside.output_tokens == 65


def test_lengths_of_the_two_arms_are_told_apart() -> None:
    """SBD wrote a token less in every sample: 64 beside 65."""
    run = synthetic.build(JITTERED)
    run = synthetic.with_rows(run, lambda one, row: {"output_tokens": 64} if one.case_id.endswith(SBD) else {})
    beside = sbd(run).paired
    assert (beside.ntp_output_tokens, beside.output_tokens) == (65, 64)


def test_processes_are_crossed_with_prompts() -> None:
    """SBD is 10 % slower in the second of three processes: the interval is wider than of three that agree, and says so."""
    run = synthetic.build(JITTERED)
    one, alike, unlike = sbd(run), sbd(in_three(run, 1)), sbd(in_three(run, 1.1))
    assert unlike.paired.processes == 3 and unlike.wall_speedup.n == 8 and unlike.paired.pairs == 24
    assert unlike.wall_speedup.method == "t on log ratios, prompts crossed with 3 processes"
    assert unlike.wall_speedup_totals.method == "bootstrap-t, prompts crossed with 3 processes"
    for alone, same, wide in zip(speeds(one), speeds(alike), speeds(unlike), strict=True):
        assert (same.value, same.low, same.high) == pytest.approx((alone.value, alone.low, alone.high), rel=1e-9)
        assert same.low and wide.high / wide.low > same.high / same.low
    process = np.log([1, 1.1, 1]).std(ddof=1)
    assert unlike.wall_speedup.spread.process == pytest.approx(process, rel=1e-6)
    assert unlike.factors.product == pytest.approx(unlike.wall_speedup.value, rel=1e-12)


@pytest.mark.parametrize("side", ["ntp", SBD])
def test_a_prompt_dropped_from_one_side_is_refused(side: str) -> None:
    """No interval, hence no verdict, from either estimator; the reason names the prompt. A void sample is another thing."""
    run = synthetic.build(JITTERED)
    kept = [one for one in run.samples if one.group != 5 or not one.case_id.endswith(side)]
    dropped = sbd(synthetic.with_samples(run, kept))
    for found in speeds(dropped):
        assert found.low is None and found.high is None and found.method is None and found.spread is None
        assert "first: word_problems, number 5" in found.reason
    assert dropped.paired.one_sided == 1 and dropped.prompts_for_5_percent is None
    void = sbd(synthetic.altered(run, lambda one: {"decode_s": None} if one.group == 5 else {}))
    assert void.paired.one_sided == 0 and void.wall_speedup.n == 7 and void.wall_speedup.low is not None


def test_a_time_that_is_no_number_is_no_ratio() -> None:
    """NaN or infinite: no value and a reason, never NaN on the page or in the JSON form of the speedups."""
    run = synthetic.build(JITTERED)
    for bad in (math.nan, math.inf):
        found = sbd(synthetic.altered(run, lambda one, bad=bad: {"decode_s": bad} if one.group == 5 else {}))
        assert all(one.value is None and "not positive finite" in one.reason for one in speeds(found))
        assert found.paired.p50 is None and found.paired.reason


def test_the_page_and_the_json_form_name_the_processes() -> None:
    """One process: this process only; three: so many, and no such words. The totals' interval stands in the table."""
    run = synthetic.build(JITTERED)
    assert "8 prompts, this process only" in render(run, compare(run))
    three = in_three(run, 1.1)
    comparison = compare(three)
    page, totals = render(three, comparison), comparison.cells[0].arms[1].wall_speedup_totals
    assert "8 prompts, 3 processes" in page and "this process only" not in page
    assert totals.low and totals.high and f"{totals.low:.2f}x – {totals.high:.2f}x" in page
    data = json.loads(json.dumps(to_json(comparison), allow_nan=False))["cells"][0]["arms"][1]
    assert data["paired"]["processes"] == data["wall_speedup"]["processes"] == 3
