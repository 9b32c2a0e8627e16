"""Why a speedup is what it is: factors that were put in, flops and bytes worked out by hand, claims of scenario and paper."""

from __future__ import annotations

import pytest

from harness.analysis.answer import compare
from harness.analysis.evidence.explain import bandwidths, claimed_of, residuals, roofline_points, waterfall
from harness.analysis.results import ArmResult, Cell
from harness.analysis.tally.pricing import Pricer
from harness.models import ModelShape
from harness.roofline.speedup import describe_pass
from tests.helpers import synthetic_run as synthetic
from tests.helpers.environments import with_claims
from tests.helpers.synthetic_run import priced

RUN = synthetic.build(
    synthetic.Part(jitter=0.05), synthetic.Part(jitter=0.05, batch_size=4), calibration=synthetic.calibration()
)
CELLS = compare(RUN).cells
SHAPE = ModelShape(name="toy", layers=2, hidden=8, intermediate=12, heads=4, kv_heads=2, head_dim=2, vocab=10)


def arm(cell: Cell) -> ArmResult:
    """The slower arm of SBD."""
    return cell.arms[1]


def test_the_steps_of_the_waterfall_make_the_measured_speedup() -> None:
    """Every step begins where the one before it ended, the first at NTP's 1. The last ends at the product of the factors to
    the bit, which is the geometric mean over prompts.

    The first two are what the synthetic arm was given: 4 tokens a pass, nobody waits.
    """
    for cell in CELLS:
        for one in cell.arms:
            fall = waterfall(cell, one)
            assert [step.before for step in fall.steps] == [1.0, *(step.after for step in fall.steps[:-1])]
            assert fall.product == one.factors.product
            assert fall.product == pytest.approx(one.wall_speedup.value, rel=1e-12)
            assert fall.measured is one.wall_speedup
    fall = waterfall(CELLS[0], arm(CELLS[0]))
    assert [step.name for step in fall.steps] == ["fewer passes", "rows that wait", "cost of a pass", "sampler and loop"]
    assert [step.factor for step in fall.steps[:2]] == pytest.approx([4.0, 1.0], rel=1e-12)
    assert min(fall.steps, key=lambda step: step.factor).name == "cost of a pass"


@pytest.mark.parametrize(
    ("claims", "metric", "at_least", "source"),
    [
        ((), "nfe_speedup", 3.0, "arXiv 2509.04185v1, abstract and Table 1"),
        (({"metric": "wall_speedup", "min": 2.5}, {"metric": "nfe_speedup", "min": 4}), "wall_speedup", 2.5, None),
        (({"metric": "wall_speedup", "max": 5},), None, None, None),
        (({"metric": "wall_speedup", "min": 2, "where": {"batch": 4}},), None, None, None),
        (({"metric": "wall_speedup", "min": 2, "where": {"arm": "SBD k=16 γ=0.1"}},), "wall_speedup", 2.0, None),
        (({"metric": "no such"},), None, None, None),
    ],
    ids=["the paper's", "the scenario's", "no least", "another batch", "by label", "unreadable"],
)
def test_the_claim_beside_a_speedup(
    claims: tuple[dict[str, object], ...], metric: str | None, at_least: float | None, source: str | None
) -> None:
    """Of the recorded claims the one on the clock, else on passes, if it is about this very arm; without any the paper's."""
    run = with_claims(RUN, *claims)
    comparison = compare(run)
    cell = comparison.cells[0]
    label = next(one.label for one in comparison.highlights if one.batch_size == 1)
    assert label == "SBD k=16 γ=0.1"
    found = claimed_of(comparison, cell, arm(cell))
    if metric is None:
        assert found is None
    else:
        assert (found.metric, found.at_least, found.source) == (metric, at_least, source)


def test_flops_and_bytes_of_a_pass_by_hand() -> None:
    """One row of 3 query tokens behind 5 of context, logits for 3, 2 tokens kept; bfloat16, two layers."""
    pricer = Pricer(synthetic.case(synthetic.Part(model=SHAPE), synthetic.NTP, "t"), {})
    cost = priced(pricer, describe_pass("decide", 1, 3, 5, logits=3, kept=2))
    qkv, output, ffn, head = 8 * (4 + 2 + 2) * 2, 8 * 8, 3 * 8 * 12, 8 * 10
    attention = 4 * 3 * (5 + 3) * (4 * 2)  # scores and weighted sum: 2 x 2 flops per query, key and head element
    assert cost.flops == 2 * (2 * 3 * (qkv + output + ffn) + attention) + 2 * 3 * head
    norms = 2 * 2 * 8 + 8
    weights = 2 * (qkv + output + ffn) + norms + head
    cache = 2 * (5 + 2) * (2 * 2 * 2)  # K and V of 2 heads of 2, of 5 tokens read and 2 written, in both layers
    assert 2 * (weights + cache) < cost.bytes_ < 2 * (weights + cache + 3 * 2 * 300), "the rest are activations"


def test_points_of_the_roofline() -> None:
    """Intensity is flops over bytes, FLOP/s what they are with the time that was put in (a 16-token pass takes 13 ms, the
    jitter aside), and predictions are flops over the predicted time; batch 4 moves the same weights for four times the flops.
    """
    points = {(one.batch_size, one.width.role, one.width.query_tokens): one for one in roofline_points(CELLS)}
    assert len(points) == 6
    one = points[1, "decide", 16]
    assert one.intensity_flops_per_byte == one.width.flops / one.width.bytes_
    rates = one.attained_flops_per_s
    assert rates.value * one.width.measured_s.value == pytest.approx(one.width.flops, rel=0.02)
    assert rates.low < rates.value < rates.high
    assert set(one.predicted_flops_per_s) == {"calibrated"}
    predicted_s = one.width.predicted_s["calibrated"].value
    assert predicted_s is not None and one.predicted_flops_per_s["calibrated"] == one.width.flops / predicted_s
    # Two flops per weight of two bytes and token: an NTP pass is near 1 flop per byte, four rows of it near 4.
    assert points[1, "decide", 1].intensity_flops_per_byte == pytest.approx(1, rel=0.02)
    assert 3 < points[4, "decide", 1].intensity_flops_per_byte < 4
    roof = CELLS[0].roofs[0]
    assert (roof.rung, roof.bandwidth_bytes_per_s, roof.peak_flops_per_s) == ("calibrated", 6.2e9, 240e9)
    assert roof.ridge_flops_per_byte == pytest.approx(240 / 6.2)


def test_residuals_are_predicted_over_measured_less_one() -> None:
    """For every arm and rung; NTP has no speedup to be wrong about."""
    found = residuals(CELLS)
    arms = {(cell.batch_size, one.label) for cell in CELLS for one in cell.arms}
    assert {(one.batch_size, one.arm.label) for one in found} == arms and len(found) == len(arms)
    for one in found:
        if one.arm.is_ntp:
            assert one.speedup_error is None and one.time_error is not None
        else:
            assert one.speedup_error == pytest.approx(one.predicted.value / one.measured.value - 1)


def test_the_ceiling_beside_a_bandwidth_is_the_one_its_share_is_of() -> None:
    """The calibrated read rate where the model is known to be DRAM-bound, else none and why."""
    found = bandwidths(CELLS)
    assert len(found) == 6 and all(one.ceiling.value == pytest.approx(6.2e9) for one in found)
    doubted = bandwidths(compare(synthetic.build(calibration=synthetic.calibration(False))).cells)
    assert doubted and all(one.ceiling.value is None and "40 % faster" in one.ceiling.reason for one in doubted)
