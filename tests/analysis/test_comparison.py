"""compare against runs whose speedups were put in, scipy's intervals, and the identities of the design."""

import json
import math
from dataclasses import replace
from statistics import geometric_mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.analysis.answer import COMPARISON_VERSION, compare, to_json
from harness.analysis.results import ArmResult, Comparison
from harness.hardware.profile import Calibration
from harness.record.schema import CaseOutcome, Run
from harness.reporting.sentences import paragraphs
from harness.roofline.ceilings import ceilings_from_calibration
from harness.stats.ratios import ratio_of_independent
from tests.helpers import synthetic_run as synthetic
from tests.helpers.environments import with_claims
from tests.helpers.pass_bytes import pass_bytes
from tests.helpers.priced_trace import price_trace

NTP_TOKEN_S = 0.010 + 0.001
"""Decode seconds of one NTP token in the synthetic runs."""


def arm(comparison: Comparison, label: str, part: str = "reference", batch_size: int = 1) -> ArmResult:
    """The arm called ``label`` in the summary of a part."""
    return next(found for found in comparison.summary(part, batch_size).arms if found.label.startswith(label))


def true_speedup(passes_per_block: int, blocks: int) -> float:
    """By hand: the first pass of the first block has 16 query tokens, of every later block 32, all others 16."""
    passes = passes_per_block * blocks
    wide = blocks - 1
    decode_s = (passes - wide) * 0.013 + wide * 0.016 + passes * 0.001
    return 16 * blocks * NTP_TOKEN_S / decode_s


@pytest.mark.parametrize(("label", "passes_per_block"), [("SBD k=16 γ=0.1", 4), ("SBD k=16 γ=0.6", 2)])
def test_known_speedups_come_back(label: str, passes_per_block: int) -> None:
    """NFE and wall speedup equal the truth, NTP is exactly 1, and the slow warm-up does not count."""
    comparison = compare(synthetic.build())
    found, ntp = arm(comparison, label), arm(comparison, "NTP")
    assert ntp.nfe_speedup.value == 1.0 and ntp.wall_speedup.value == pytest.approx(1.0, abs=1e-15)
    assert found.nfe_speedup.value == 16 / passes_per_block
    truth = true_speedup(passes_per_block, 4)
    assert found.wall_speedup.value == pytest.approx(truth, rel=1e-12)
    assert found.wall_speedup_totals.value == pytest.approx(truth, rel=1e-12)
    assert found.wall_speedup.low is None and found.wall_speedup.reason
    assert found.nfe == 8 * 4 * passes_per_block and found.decode_tokens == 8 * 64
    assert found.tokens_per_s.value == pytest.approx(truth / NTP_TOKEN_S, rel=1e-12)
    assert ntp.latency_s.value == pytest.approx(0.02 + 64 * NTP_TOKEN_S, rel=1e-12)


@settings(max_examples=25, deadline=None)
@given(
    jitter=st.floats(0, 0.2), blocks=st.integers(1, 4), batch=st.sampled_from([1, 3]), passes=st.sampled_from([1, 2, 4, 8, 16])
)
def test_factors_multiply_to_the_wall_speedup(jitter: float, blocks: int, batch: int, passes: int) -> None:
    """Design's identity: NFE speedup x rows per pass x time per forward x overhead = wall speedup, to 1e-12."""
    arms = (synthetic.NTP, synthetic.Arm(label="SBD", gamma=0.1, passes_per_block=passes))
    part = synthetic.Part(arms=arms, jitter=jitter, blocks=blocks, batch_size=batch, prompts=7)
    found = arm(compare(synthetic.build(part)), "SBD", batch_size=batch)
    assert found.factors.product == pytest.approx(found.wall_speedup.value, rel=1e-12)
    assert found.factors.passes == pytest.approx(found.figures["nfe_speedup"].value, rel=1e-12)
    assert batch > 1 or found.factors.rows_per_pass == 1.0


def test_accuracy_is_paired_by_prompt() -> None:
    """7 of 8 and 4 of 8 correct; three prompts lost, none won."""
    comparison = compare(synthetic.build())
    low, high = arm(comparison, "SBD k=16 γ=0.1"), arm(comparison, "SBD k=16 γ=0.6")
    assert (low.correct, low.accuracy.value, low.accuracy_difference.value) == (7, 7 / 8, 0.0)
    assert (high.correct, high.accuracy.value, high.accuracy_difference.value) == (4, 0.5, -3 / 8)
    assert high.accuracy_difference.low < -3 / 8


def test_summary_over_tasks_pools_prompts_and_keeps_tasks_apart() -> None:
    """Two tasks with the same prompt ids are sixteen prompts; each task has a cell of its own."""
    comparison = compare(synthetic.build(tasks=("a", "b")))
    assert [(cell.task, cell.is_summary) for cell in comparison.cells] == [(None, True), ("a", False), ("b", False)]
    assert [arm.accuracy.n for arm in comparison.cells[0].arms] == [16] * 3
    assert comparison.cells[1].arms[1].accuracy.n == 8


def test_predictions_are_the_price_of_the_recorded_trace() -> None:
    """The decode time is price_trace over the recorded decode passes, the speedup its geometric mean over prompts per token;
    the error is predicted ÷ measured - 1, and the price of all prompts in one ratio of totals is another figure.
    """
    run = synthetic.build(jitter=0.05, calibration=synthetic.calibration())
    comparison = compare(run)
    ceilings = ceilings_from_calibration(Calibration.model_validate(run.header.calibration), "bfloat16")

    def prices(kind: str) -> dict[int, float]:
        chosen = [s for s in run.samples if s.case_id.endswith(kind) and not s.warmup]
        passes = {s.group: [p for p in s.passes.passes() if p.role != "prefill"] for s in chosen}
        priced = {group: price_trace(synthetic.SHAPE, "bfloat16", of_one, ceilings) for group, of_one in passes.items()}
        return {group: one.expected_s for group, one in priced.items()}

    found = arm(comparison, "SBD k=16 γ=0.1")
    (prediction,) = found.predictions
    assert prediction.rung == "calibrated"
    sbd_s, ntp_s = prices("g0.1-t0-entropy_bounded"), prices("ntp")
    assert prediction.decode_s.value == pytest.approx(sum(sbd_s.values()), rel=1e-9)
    by_hand = geometric_mean([ntp_s[group] / sbd_s[group] for group in sbd_s])
    assert prediction.wall_speedup.value == pytest.approx(by_hand, rel=1e-9)
    assert prediction.wall_speedup_error.value == pytest.approx(by_hand / found.wall_speedup.value - 1)
    assert prediction.wall_speedup.low is None, "how far the calibrated rung is off is not told as an interval"
    assert "datasheet" in comparison.cells[0].rung_reasons


def test_modelled_bandwidth_is_bytes_of_the_trace_over_forward_time() -> None:
    """Bytes of the decode passes ÷ Σ forward_s; no calibration is needed for it, only for the share."""
    run = synthetic.build(prompts=1)
    found = arm(compare(run), "NTP")
    sample = next(s for s in run.samples if not s.warmup)
    passes = [p for p in sample.passes.passes() if p.role != "prefill"]
    bytes_ = sum(pass_bytes(synthetic.SHAPE, "bfloat16", p) for p in passes)
    assert found.modelled_bandwidth_bytes_per_s.value == pytest.approx(bytes_ / (64 * 0.010), rel=1e-12)
    assert found.ceiling_share.value is None and found.ceiling_share.reason


def test_a_pass_comes_apart_into_forward_sampler_and_rest() -> None:
    """NTP at 10 ms forward, 0.75 ms sampler and 0.25 ms rest; an older record without the sampler's time says so."""
    run = synthetic.build()
    parts = arm(compare(run), "NTP").pass_parts
    assert [parts.forward_s.value, parts.sampler_s.value, parts.rest_s.value] == pytest.approx([0.010, 0.00075, 0.00025])
    parts = arm(
        compare(synthetic.altered(run, lambda s: {"passes": s.passes.model_copy(update={"sampler_s": None})})), "NTP"
    ).pass_parts
    assert parts.rest_s.value is None and "record version 3" in parts.rest_s.reason


@pytest.mark.parametrize("dram_bound", [True, False])
def test_share_of_the_ceiling_is_claimed_only_where_the_model_is_dram_bound(dram_bound: bool) -> None:
    """The same run with the other verdict of the calibration gives None with the calibration's reason."""
    calibration = synthetic.calibration(dram_bound)
    found = arm(compare(synthetic.build(calibration=calibration)), "NTP")
    if dram_bound:
        ceiling = calibration["read_bandwidth"][0]["bytes_per_s"]
        assert found.ceiling_share.value == pytest.approx(found.modelled_bandwidth_bytes_per_s.value / ceiling)
    else:
        assert found.ceiling_share.value is None and found.ceiling_share.reason == calibration["dram_bound_reason"]


def test_a_calibration_for_another_model_size_claims_no_share() -> None:
    """A read rate found at another size says nothing about this model's cache."""
    calibration = synthetic.calibration() | {"model_bytes": 10**9}
    found = arm(compare(synthetic.build(calibration=calibration)), "NTP")
    assert found.ceiling_share.value is None and "1,000 MB" in found.ceiling_share.reason
    assert found.predictions, "the other rates still price the trace"


def test_one_calibration_per_part_is_read_by_part() -> None:
    """A header may hold calibrations under the names of the parts; a part without one says so."""
    parts = (synthetic.Part(), synthetic.Part(name="other"))
    comparison = compare(synthetic.build(*parts, calibration={"reference": synthetic.calibration()}))
    assert arm(comparison, "NTP").predictions and not arm(comparison, "NTP", "other").predictions
    assert "calibrated" in comparison.summary("other", 1).rung_reasons


def test_pass_widths_give_the_cost_of_a_pass() -> None:
    """Medians of 10, 13 and 16 ms: a 16-token pass costs 1.3 one-token passes, a 32-token pass 1.6."""
    widths = compare(synthetic.build(calibration=synthetic.calibration())).cells[0].pass_widths
    costs = {(w.method, w.query_tokens): w.cost.value for w in widths}
    assert costs == {("ntp", 1): 1.0, ("sbd", 16): pytest.approx(1.3), ("sbd", 32): pytest.approx(1.6)}
    assert {w.query_tokens: w.count for w in widths} == {1: 512, 16: 8 * (16 + 8 - 6), 32: 8 * 6}


def test_histogram_counts_active_row_passes() -> None:
    """γ=0.1 makes 4 tokens final in every pass: 8 prompts x 16 passes in bin 4 and nothing elsewhere."""
    assert arm(compare(synthetic.build()), "SBD k=16 γ=0.1").final_tokens_histogram == (0, 0, 0, 0, 128)


def test_replayed_arms_have_no_accuracy_and_a_given_nfe_speedup() -> None:
    """A replayed arm is timed but never graded, whatever its rows say."""
    arms = (synthetic.NTP, synthetic.Arm(label="SBD", gamma=0.1, passes_per_block=4, replayed={"nfe_speedup": 4.0}))
    comparison = compare(synthetic.build(arms=arms))
    found = arm(comparison, "SBD")
    assert found.nfe_speedup.method == "given" and found.wall_speedup.value
    assert found.accuracy.value is None and "replayed" in found.accuracy.reason
    assert comparison.highlights[0].basis == "replayed"


def test_untimed_parts_have_no_time_at_all() -> None:
    """Every quantity that rests on a clock is None with a reason; NFE and accuracy stand."""
    found = arm(compare(synthetic.build(timed=False, calibration=synthetic.calibration())), "SBD k=16 γ=0.1")
    timed = (
        found.wall_speedup,
        found.wall_speedup_totals,
        found.tokens_per_s,
        found.latency_s,
        found.modelled_bandwidth_bytes_per_s,
    )
    assert all(quantity.value is None and quantity.reason for quantity in timed)
    assert found.nfe_speedup.value == 4 and found.accuracy.value == 7 / 8 and found.predictions == ()


def test_without_pass_times_there_are_no_factors() -> None:
    """Only the decode as a whole was timed: the speedup stands, its factors are absent."""
    found = arm(compare(synthetic.build(per_pass=False)), "SBD k=16 γ=0.1")
    assert found.factors is None and found.wall_speedup.value and found.modelled_bandwidth_bytes_per_s.value is None


def test_baseline_part_is_compared_prompt_by_prompt() -> None:
    """An arm against the NTP arm of the part named as baseline: 1 wrong there, 4 wrong here."""
    other = synthetic.Part(name="ntp_only", arms=(synthetic.NTP,))
    comparison = compare(synthetic.build(other, synthetic.Part(baseline="ntp_only")))
    found = arm(comparison, "SBD k=16 γ=0.6").baseline_difference
    assert found.value == -3 / 8 and found.n == 8
    assert arm(comparison, "NTP", "ntp_only").baseline_difference is None


def test_highlight_says_on_what_ground() -> None:
    """Shown with 1,000 pairs of equal answers; observed with 8; none where every arm lost more than the margin."""
    equal = tuple(replace(one, wrong=frozenset(range(50))) for one in synthetic.ARMS[:2])
    many = synthetic.Part(prompts=1000, batch_size=50, timed=False, arms=equal)
    assert compare(synthetic.build(many)).highlights[0].basis == "shown"
    few = compare(synthetic.build()).highlights[0]
    assert (few.basis, few.label, few.pairs, few.pairs_needed) == ("observed", "SBD k=16 γ=0.1", 8, 437), "0.99^437 < 2.5 % / 2"
    assert few.picked_from == 2 and compare(synthetic.build(many)).highlights[0].picked_from == 1
    bad = compare(synthetic.build(arms=(synthetic.NTP, synthetic.ARMS[2]))).highlights[0]
    assert (bad.basis, bad.label) == ("none", "SBD k=16 γ=0.6")


def test_missing_arms_and_outcomes() -> None:
    """A case that did not fit leaves the others whole; without NTP there is no wall speedup; without arms no answer."""
    ids = [case.case_id for case in synthetic.build().header.cases]
    outcome = CaseOutcome(case_id=ids[0], outcome="does_not_fit", reason="too large")
    comparison = compare(synthetic.build(without=frozenset(ids[:1]), outcomes=(outcome,)))
    assert comparison.outcomes[0]["reason"] == "too large"
    found = arm(comparison, "SBD k=16 γ=0.1")
    assert found.wall_speedup.value is None and found.wall_speedup.reason and found.nfe_speedup.value == 4
    assert compare(synthetic.build(without=frozenset(ids))).highlights[0].label is None


def test_a_prompt_that_ends_with_the_prefill_is_left_out_of_the_pairs() -> None:
    """No decode token, no decode time per token: the pair is dropped and counted, not divided by zero."""
    run = synthetic.build()
    last = run.samples[-1]
    known = {name: column for name in type(last.passes).model_fields if (column := getattr(last.passes, name)) is not None}
    empty = last.passes.model_copy(update={name: column[:1] for name, column in known.items()})
    rows = [row.model_copy(update={"output_tokens": 1, "output_ids": [2]}) for row in last.rows]
    short = last.model_copy(update={"passes": empty, "rows": rows, "decode_s": 0.0})
    found = arm(compare(Run(header=run.header, samples=[*run.samples[:-1], short], outcomes=[], sessions=[])), "SBD k=16 γ=0.6")
    assert found.unpaired == 1 and found.wall_speedup.n == 7
    assert found.wall_speedup.value == pytest.approx(true_speedup(2, 4), rel=1e-12)


def test_json_form_has_a_version_and_survives_strict_json() -> None:
    """No NaN, no infinity; factors carry their product."""
    run = synthetic.build(jitter=0.1, calibration=synthetic.calibration())
    data = json.loads(json.dumps(to_json(compare(run)), allow_nan=False))
    assert data["version"] == COMPARISON_VERSION
    factors = data["cells"][0]["arms"][1]["factors"]
    assert factors["product"] == pytest.approx(data["cells"][0]["arms"][1]["wall_speedup"]["value"], rel=1e-12)


def test_arms_with_the_same_label_are_told_apart() -> None:
    """Two solvers under one short label get longer ones."""
    base = synthetic.ARMS[1]
    run = synthetic.build(arms=(synthetic.NTP, base, replace(base, gamma=0.2)))
    labels = [found.label for found in compare(run).cells[0].arms]
    assert len(set(labels)) == 3


def test_independent_errors_of_a_ratio_add_as_squares() -> None:
    """By hand: 3/4 powers of e up and down make 5/4; equal triples have 1 in the middle, and no error no width."""
    e = math.e
    low, middle, high = ratio_of_independent((e**-3, 1.0, e**3), (e**-4, 1.0, e**4))
    assert (low, middle, high) == pytest.approx((e**-5, 1.0, e**5))
    assert ratio_of_independent((1.0, 2.0, 4.0), (5.0, 5.0, 5.0)) == pytest.approx((0.2, 0.4, 0.8))


def test_the_answer_is_about_the_arm_that_the_scenarios_claims_name() -> None:
    """Not about the fastest; a claim of another part, of the best arm, or one that cannot be read changes nothing."""
    asked = {"metric": "wall_speedup", "min": 2, "where": {"arm": "SBD k=16 γ=0.6"}}
    comparison = compare(with_claims(synthetic.build(), asked))
    [answer] = comparison.answers
    assert (answer.label, answer.asked, answer.basis, answer.picked_from) == ("SBD k=16 γ=0.6", True, "none", 1)
    assert comparison.highlights == compare(synthetic.build()).highlights
    told = dict(paragraphs(comparison.cells[0], arm(comparison, "SBD k=16 γ=0.6"), answer))["Accuracy"]
    assert "The scenario asks about SBD k=16 γ=0.6; its accuracy differs from NTP's by" in told
    for other in (
        asked | {"where": {"arm": "SBD k=16 γ=0.6", "part": "elsewhere"}},
        {"metric": "wall_speedup", "min": 2},
        {"min": 1},
    ):
        found = compare(with_claims(synthetic.build(), other))
        assert found.answers == found.highlights and not found.answers[0].asked
