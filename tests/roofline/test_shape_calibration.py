"""The top rung: passes measured on a made-up machine must come back exactly, and carry over to passes nobody measured."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.analysis.answer import compare
from harness.analysis.tally.prices import machine_spread, measured_passes
from harness.errors import UserError
from harness.roofline.pricing import price_counts
from harness.roofline.shape_calibration import MeasuredPass, narrower, shape_calibrated
from harness.roofline.step import DecodeArm, price_step
from tests.helpers import synthetic_run as synthetic
from tests.helpers.measured_passes import BASE, MEASURED, SHAPE, TRUTH, counts, seen


def test_a_measured_pass_comes_back_with_its_spread_as_the_band():
    """Expected is the median of three visits; the band from the 10th to 90th percentile of their decodes of 0.9, 1 and 1.4
    times: for one more decode √(1 + 1/3) times as wide, as logarithms; for the mean of three √(1/3 + 1/3) times.
    """
    passes = [one for factor in (0.9, 1.0, 1.4) for one in seen(TRUTH, *MEASURED, factor=factor)]
    low, high = 0.9, 1.4  # three decodes of three kinds of pass: nine means, of which three are the least and most
    for decodes, wider in ((1, math.sqrt(4 / 3)), (3, math.sqrt(2 / 3))):
        spread = shape_calibrated(BASE, SHAPE, "bfloat16", passes, decodes=decodes).factors.spread
        assert spread == pytest.approx((low**wider, high**wider), rel=5e-3)  # attention is not scaled
    top = shape_calibrated(BASE, SHAPE, "bfloat16", passes)
    assert top.rung == "shape-calibrated"
    for one in MEASURED:
        price, measured = price_counts(SHAPE, "bfloat16", one, top), seen(TRUTH, one)[0].forward_s
        assert price.forward_s == pytest.approx(measured, rel=1e-9)
        assert price.forward[0] / measured == pytest.approx(low ** math.sqrt(4 / 3), abs=5e-3)
        assert price.forward[2] / measured == pytest.approx(high ** math.sqrt(4 / 3), abs=8e-3)  # attention is not scaled


@pytest.mark.parametrize(
    ("visits", "told"), [(((1.0, 1.0, 9.0), (1.5,) * 3), 1.25), (((1.0,) * 3, (1.1,) * 3, (7.0,) * 3), 1.1)]
)
def test_a_slow_pass_says_nothing_and_neither_does_one_slow_minute_of_three(visits, told):
    """Of two visits the pass of 9 times is left out; of three the one that was slow throughout."""
    one = MEASURED[1]
    passes = [replace(p, visit=v) for v, factors in enumerate(visits) for f in factors for p in seen(TRUTH, one, factor=f)]
    top = shape_calibrated(BASE, SHAPE, "bfloat16", passes)
    assert price_counts(SHAPE, "bfloat16", one, top).forward_s == pytest.approx(told * seen(TRUTH, one)[0].forward_s, rel=1e-9)


def test_single_slow_passes_of_a_decode_average_out():
    """Every decode has one pass of 1.3 and nine of 1: the median is 1, and every decode's mean 1.03, not 1.3."""
    one = MEASURED[1]
    passes = [replace(p, decode=d, visit=d) for d in range(4) for f in (1.3, *[1.0] * 9) for p in seen(TRUTH, one, factor=f)]
    factors = shape_calibrated(BASE, SHAPE, "bfloat16", passes).factors
    assert factors.spread == pytest.approx((1.0, 1.03 ** math.sqrt(1 / 4 + 1)), rel=2e-3)


def test_decodes_taken_together_count_as_one():
    """Two visits of two decodes each: the mean of them is as sure as that of two, for what a visit's decodes share stays."""
    passes = [
        replace(p, decode=d, visit=d // 2) for d, f in enumerate((0.9, 0.9, 1.1, 1.1)) for p in seen(TRUTH, *MEASURED, factor=f)
    ]
    low, high = shape_calibrated(BASE, SHAPE, "bfloat16", passes, decodes=4).factors.spread
    wider = math.sqrt(1 / 2 + 1 / 4)
    assert (low, high) == pytest.approx((0.9**wider, 1.1**wider), rel=5e-3)  # attention is not scaled


def test_a_width_nobody_measured_is_less_sure_by_what_leaving_one_out_misses():
    """By hand: factors 1, 1.1 and 1 at 1, 16 and 256 lines. Without the second the others say 1 there, without the last the
    second says 1.1: both miss by ln 1.1, and 80 % of a normal error lies within 1.2816 of that.
    """
    wide = (counts(1, 1, 0), counts(1, 16, 0, 16), counts(1, 256, 0, 16))
    passes = [p for one, f in zip(wide, (1.0, 1.1, 1.0), strict=True) for p in seen(BASE, one, factor=f)]
    top = shape_calibrated(BASE, SHAPE, "bfloat16", [replace(p, decode=0, visit=0) for p in passes])
    assert top.factors.spread == pytest.approx((1.0, 1.0))
    missed = 1.1**1.2815515655
    assert top.factors.spread_between == pytest.approx((1 / missed, missed), rel=1e-3)  # attention is not scaled
    for lines, wider in ((16, 1.0), (17, missed), (300, missed)):
        price = price_counts(SHAPE, "bfloat16", counts(lines, 1, 0), top)
        assert price.forward[2] >= price.forward_s * wider * (1 - 1e-3)
        if wider == 1.0:
            assert price.forward[2] == pytest.approx(price.forward_s, rel=1e-3)


def test_only_the_part_without_attention_is_corrected():
    """Twice the price at one context, carried to another: attention once, all the rest twice."""
    one = counts(1, 16, 128, 16)
    base = price_counts(SHAPE, "bfloat16", one, BASE)
    attention = next(cost for cost in base.operations if cost.name == "attention")
    doubled = MeasuredPass(counts=one, forward_s=2 * base.forward_s - attention.expected_s, after_s=0.0)
    top = shape_calibrated(BASE, SHAPE, "bfloat16", [doubled])
    far = counts(1, 16, 8192, 16)
    base_far, far_price = price_counts(SHAPE, "bfloat16", far, BASE), price_counts(SHAPE, "bfloat16", far, top)
    attention_far = next(cost for cost in base_far.operations if cost.name == "attention").expected_s
    assert far_price.forward_s == pytest.approx(2 * base_far.forward_s - attention_far, rel=1e-9)


@given(
    rows=st.sampled_from([1, 2, 4, 8]),
    k=st.sampled_from([1, 8, 16, 32]),
    context=st.integers(0, 2048),
    overlap=st.floats(0, 1),
    slower=st.floats(0.5, 1.0),
)
@settings(max_examples=80, deadline=None)
def test_cells_nobody_measured_lie_in_the_band_whatever_the_true_overlap(rows, k, context, overlap, slower):
    """Where the calibration has the rates right up to a common factor, and only the overlap wrong, the band holds the truth."""
    truth = replace(
        BASE,
        bandwidth_bytes_per_s=slower * 20e9,
        overlap=overlap,
        fixed_s_per_pass=0.0005 / slower,
        matrix_rates=tuple((m, slower * rate) for m, rate in BASE.matrix_rates),
    )
    top = shape_calibrated(BASE, SHAPE, "bfloat16", seen(truth, *MEASURED))
    one = counts(rows, k, context, k)
    price, real = price_counts(SHAPE, "bfloat16", one, top), seen(truth, one)[0].forward_s
    # Attention stays as calibrated, so it is off by the common factor, here and (below 1 % of the pass) at the factors.
    attention = sum(cost.high_s for cost in price.operations if cost.name == "attention")
    # Below the narrowest block seconds are carried on along a line (``narrower``), past the bend of this roofline.
    slack = (0.05 if 1 < one.lines < 16 else 0.01) * real + (1 / slower - 1) * attention
    assert price.forward[0] - slack <= real <= price.forward[2] + slack


def test_it_beats_the_rung_below_away_from_what_was_measured():
    """The made-up machine at batch 4 and another context: 20 % wrong below, within 5 % on top."""
    top = shape_calibrated(BASE, SHAPE, "bfloat16", seen(TRUTH, *MEASURED))
    for one in (counts(4, 1, 512), counts(4, 16, 512, 16), counts(2, 8, 64, 8)):
        real = seen(TRUTH, one)[0].forward_s
        below = price_counts(SHAPE, "bfloat16", one, BASE).forward_s / real - 1
        above = price_counts(SHAPE, "bfloat16", one, top).forward_s / real - 1
        assert abs(above) < 0.05 and abs(above) < abs(below)


def test_what_follows_a_forward_is_as_measured_and_grows_line_by_line():
    """By hand: 1 ms behind an NTP pass, 0.5 ns a logit of further rows; 2 ms behind 8 lines, 4 behind 16, so 8 behind 32."""
    base = replace(BASE, sampler_s_per_logit=0.5e-9)
    passes = (counts(1, 1, 9), counts(1, 8, 9, 8), MEASURED[1])
    price = {one: price_counts(SHAPE, "bfloat16", one, base).forward_s for one in passes}
    behind = dict(zip(price, (0.001, 0.002, 0.004), strict=True))
    top = shape_calibrated(
        base,
        SHAPE,
        "bfloat16",
        [MeasuredPass(counts=one, forward_s=forward_s, after_s=behind[one]) for one, forward_s in price.items()],
    )
    line_s = 32_000 * 0.5e-9
    found = [
        price_counts(SHAPE, "bfloat16", one, top).sampler_s
        for one in (counts(1, 1, 700), counts(4, 1, 9), counts(1, 16, 9, 16), counts(2, 16, 9, 16), counts(1, 4, 9, 4))
    ]
    assert found == pytest.approx([0.001, 0.001 + 3 * line_s, 0.004, 0.008, 0.002])


def test_a_grid_is_priced_like_its_cells():
    """Arrays and numbers take the same way."""
    top = shape_calibrated(BASE, SHAPE, "bfloat16", seen(TRUTH, *MEASURED))
    rows, contexts, arm = np.array([1.0, 4, 8]), np.array([64.0, 700, 4096]), DecodeArm(block_size=16, passes_per_block=4.0)
    grid = price_step(SHAPE, "bfloat16", top, arm, rows=rows, context_tokens=contexts)
    alone = [price_step(SHAPE, "bfloat16", top, arm, rows=n, context_tokens=at) for n, at in zip(rows, contexts, strict=True)]
    for side in ("low_s", "expected_s", "high_s"):
        assert getattr(grid, side).tolist() == pytest.approx([getattr(one, side) for one in alone], rel=1e-12)


def test_nothing_measured_is_refused():
    """There is nothing to start from."""
    with pytest.raises(UserError, match="no measured pass"):
        shape_calibrated(BASE, SHAPE, "bfloat16", [])


def test_a_pass_shorter_than_its_attention_is_refused():
    """Then the rung below is wrong by more than a factor can mend."""
    one = counts(1, 16, 100_000, 16)
    with pytest.raises(UserError, match="attention alone"):
        shape_calibrated(BASE, SHAPE, "bfloat16", [MeasuredPass(counts=one, forward_s=1e-6, after_s=0.0)])


def event(decode_s: float = 0.5) -> dict[str, object]:
    """One NTP decode as the runner records it."""
    columns = synthetic.columns(synthetic.NTP, blocks=1, rows=1, slowdown=1.0, timed=True)
    decode = {"passes": columns.model_dump(), "decode_s": decode_s}
    return {"event": "measured_passes", "part": "reference", "decodes": [decode]}


def test_recorded_passes_are_read_with_the_loop_shared_out():
    """16 passes of 10 ms with 0.75 ms of sampler in 0.5 s: what is left of the half second, by 16, is the loop's."""
    run = synthetic.build(calibration=synthetic.calibration(True)).model_copy(update={"sessions": [event()]})
    passes = measured_passes(run, "reference")
    assert len(passes) == 16 and {one.forward_s for one in passes} == {0.010}
    assert passes[0].after_s == pytest.approx((0.5 - 16 * 0.010) / 16)
    for arm in compare(run).cells[0].arms:
        prices = [(one.rung, one.ex_ante) for one in arm.predictions]
        assert prices == [("calibrated", True), ("shape-calibrated", False)], "when they were measured is not told"
    assert "reference" in run.sessions[0]["part"] and isinstance(measured_passes(run, "other"), str)


def test_checks_of_drafts_are_for_arms_without_masks():
    """Measured beside SBD's passes, because an adapter makes those dearer; without them SBD's serve every arm."""
    sbd, [ntp] = synthetic.columns(synthetic.ARMS[1], blocks=2, rows=1, slowdown=1.0, timed=True), event()["decodes"]
    check = sbd.model_copy(update={"role": [sbd.role[0], *["verify"] * (len(sbd.role) - 1)]})
    decodes = [ntp, *({"passes": one.model_dump(), "decode_s": whole_s} for one, whole_s in ((sbd, 5.0), (check, 9.0)))]

    def seconds(decodes, masked):
        """Of all passes that are used, the NTP decode's 0.5 s among them."""
        run = synthetic.build().model_copy(update={"sessions": [event() | {"decodes": decodes}]})
        return sum(one.forward_s + one.after_s for one in measured_passes(run, "reference", masked=masked))

    assert seconds(decodes[:2], masked=True) == seconds(decodes[:2], masked=False) == pytest.approx(5.5)
    assert seconds(decodes, masked=True) == pytest.approx(5.5) and seconds(decodes, masked=False) == pytest.approx(9.5)


@pytest.mark.parametrize(
    ("sessions", "words"),
    [
        ([], "older than version 3"),
        ([{"event": "measured_passes", "part": "reference", "decodes": [], "reason": "out of memory on cpu"}], "out of memory"),
        ([{"event": "measured_passes", "part": "reference", "decodes": [{"passes": 3}]}], "cannot be read"),
    ],
)
def test_without_measured_passes_the_rung_is_absent_with_its_reason(sessions, words):
    """Never a silent fall to the rung below."""
    run = synthetic.build(calibration=synthetic.calibration(True)).model_copy(update={"sessions": sessions})
    assert words in compare(run).cells[0].rung_reasons["shape-calibrated"]


def test_a_machine_that_changed_meanwhile_widens_the_band():
    """Its fixed kernel took 1 s for most of the part, and 0.9 and 1.2 s for a tenth each; passes agreed among themselves."""
    kernels = [0.9] * 2 + [1.0] * 16 + [1.2] * 2
    run = synthetic.build(synthetic.Part(prompts=20, arms=(synthetic.NTP,)))
    warmups = [sample for sample in run.samples if sample.warmup]
    taken = [sample for sample in run.samples if not sample.warmup]
    metered = [
        sample.model_copy(update={"meters": {"kernel_before_s": kernel, "kernel_after_s": kernel}})
        for sample, kernel in zip(taken, kernels, strict=True)
    ]
    run = run.model_copy(update={"samples": [*warmups, *metered]})
    spread = machine_spread(run, "reference")
    assert spread == pytest.approx((np.percentile(kernels * 2, 10), np.percentile(kernels * 2, 90)))
    assert machine_spread(synthetic.build(), "reference") == (1.0, 1.0)


def test_what_moves_neighbouring_decodes_alike_is_spread_too():
    """Three rounds of three decodes, 1, 1.1 and 1.3 times as slow, 1.1 in the median: long decodes do not share a round."""
    passes = [
        replace(p, decode=3 * number + index)
        for number, slow in enumerate((1.0, 1.1, 1.3))
        for index, one in enumerate(MEASURED)
        for p in seen(TRUTH, one, factor=slow)
    ]
    factors = shape_calibrated(BASE, SHAPE, "bfloat16", passes, (0.9, 1.25)).factors
    own = np.percentile(np.log(np.divide((1.0, 1.1, 1.3), 1.1).tolist() * 3), (10, 90)) * math.sqrt(1 / 3 + 1)
    means = np.exp(np.hypot(own, np.log((0.9, 1.25))) * (-1, 1))
    assert factors.spread == pytest.approx(means, rel=5e-3)  # attention is not scaled


def test_of_the_drift_a_mean_of_many_decodes_keeps_little():
    """Passes that all took the same: what is left is the machine's own movement, over the root of the decodes."""
    passes = seen(TRUTH, *MEASURED)
    for decodes in (1, 16):
        spread = shape_calibrated(BASE, SHAPE, "bfloat16", passes, (0.9, 1.25), decodes).factors.spread
        assert spread == pytest.approx((0.9 ** (decodes**-0.5), 1.25 ** (decodes**-0.5)), rel=1e-6)


def test_beyond_the_largest_measured_block_each_line_takes_what_the_measured_ones_took():
    """4 ms behind 16 lines and 8 ms behind 32: 24 ms behind 96; a single one, or none that grows, is carried on by the rung."""
    block = [replace(seen(TRUTH, counts(1, k, 128, k))[0], after_s=after_s) for k, after_s in ((16, 4e-3), (32, 8e-3))]
    assert after(block, 96) == pytest.approx(24e-3)
    assert after(block[1:], 96) == pytest.approx(8e-3 + 64 * per_line())
    assert after([block[0], replace(block[1], after_s=4e-3)], 96) == pytest.approx(4e-3 + 64 * per_line())


def per_line():
    """Seconds of one line by the rung below."""
    return shape_calibrated(BASE, SHAPE, "bfloat16", seen(TRUTH, MEASURED[0])).factors.s_per_line


def after(passes, lines):
    """Seconds behind a pass of so many logit lines."""
    return shape_calibrated(BASE, SHAPE, "bfloat16", passes).factors.after_s(counts(lines // 16, 16, 128, 16))


def test_between_one_token_and_the_narrowest_block_seconds_follow_the_blocks():
    """By hand: 1 ms for one token, 5 ms for 16 and 6.6 ms for 32 is 0.1 ms a token, so 3.6 ms for 2, 3.8 for 4, 4.2 for 8.
    Where blocks bend the line goes to the pass of one token: of 1, 4 and 20 ms a pass of 8 takes 1 + 3 * 7 / 15 ms.
    """
    for (one_s, block_s, twice_s), told in (((1.0, 5.0, 6.6), (3.6, 3.8, 4.2)), ((1.0, 4.0, 20.0), (1.2, 1.6, 2.4))):
        passes = [
            replace(one, forward_s=taken_s * 1e-3)
            for one, taken_s in zip(seen(TRUTH, *MEASURED), (one_s, block_s, twice_s), strict=True)
        ]
        assert [one.counts.lines for one in narrower(passes)] == [2, 4, 8]
        assert [1e3 * one.forward_s for one in narrower(passes)] == pytest.approx(told)
        assert narrower(passes[:2]) == [] and narrower(passes[1:]) == [], "one width of blocks has no line, and no end"
    slow = [replace(one, forward_s=5 * one.forward_s) for one in seen(TRUTH, *MEASURED)]
    top = shape_calibrated(BASE, SHAPE, "bfloat16", slow)
    for told in narrower(slow):
        assert price_counts(SHAPE, "bfloat16", told.counts, top).forward_s == pytest.approx(told.forward_s, rel=1e-9)
