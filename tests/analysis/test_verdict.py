"""The verdict on claims: every outcome, what makes it void, and what must not change it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from harness.analysis.answer import compare
from harness.analysis.judge.judgement import Judgement
from harness.analysis.judge.verdict import verdict
from harness.record.schema import Run, Sample
from harness.reporting.page import render
from harness.scenario.claims import Claim, Where
from harness.stats.quantity import Quantity
from harness.stats.ratios import geometric_mean_ratio
from tests.helpers import synthetic_run as synthetic
from tests.helpers.environments import with_header
from tests.helpers.judged_runs import claiming, judged
from tests.helpers.two_runs import in_processes, slower

SLOW, FAST = "SBD k=16 γ=0.1", "SBD k=16 γ=0.6"
TRUTH = 64 * 0.011 / (13 * 0.014 + 3 * 0.017)
"""Wall speedup of the slow arm without jitter: 16 passes for 64 tokens, 3 of them wide (see test_compare)."""


def one(run: Run, text: str) -> Judgement:
    """The only answer to one claim of the run's scenario."""
    (found,) = judged(run, text).judgements
    return found


JITTERED = synthetic.build(jitter=0.05, prompts=12)


@pytest.mark.parametrize(
    ("bound", "word"),
    [
        (">= 2.5", "confirmed"),
        (">= 5", "refuted"),
        (f">= {TRUTH}", "inconclusive"),
        ("<= 5", "confirmed"),
        ("<= 2.5", "refuted"),
        (f"<= {TRUTH}", "inconclusive"),
    ],
)
def test_a_known_speedup_against_a_bound(bound: str, word: str) -> None:
    """Put in: 3.02x, a little different per prompt. Five times is refuted; the truth itself no prompt can decide."""
    found = one(JITTERED, f"wall_speedup {bound} at arm='{SLOW}'")
    assert found.word == word and found.kind == "claim" and found.basis == "measured"
    assert found.value.value == pytest.approx(TRUTH, rel=0.1) and found.sizes == {"prompts": 12, "processes": 1}
    assert "this process only" in found.reason and "12 prompts" in found.reason
    assert (found.remedy is None) == (word != "inconclusive")


@pytest.mark.parametrize(
    ("low", "high", "text", "state"),
    [
        (3.0, 4.0, ">= 3", "met"),
        (2.9, 4.0, ">= 3", "inconclusive"),
        (2.0, 2.9, ">= 3", "missed"),
        (2.0, 3.0, ">= 3", "inconclusive"),
        (3.0, 5.0, "between", "met"),
        (3.5, 5.1, "between", "inconclusive"),
        (5.1, 6.0, "between", "missed"),
        (2.0, 6.0, "between", "inconclusive"),
        (2.0, 2.9, "between", "missed"),
    ],
)
def test_the_whole_interval_decides(low: float, high: float, text: str, state: str) -> None:
    """Intervals drawn by hand around 3 and 5; an end that is on the bound meets it."""
    drawn = Quantity(value=(low + high) / 2, low=low, high=high, n=9, processes=3)
    comparison = compare(JITTERED)
    cell, *others = comparison.cells
    arms = tuple(replace(arm, wall_speedup=drawn) if arm.label == SLOW else arm for arm in cell.arms)
    comparison = replace(comparison, cells=(replace(cell, arms=arms), *others))
    claim = Claim(metric="wall_speedup", min=3, max=5 if text == "between" else None, where=Where(arm=SLOW))
    (found,) = verdict(comparison, (claim,), claiming(JITTERED, claim).header).judgements
    assert found.state == state


def test_a_figure_without_an_interval_decides_nothing() -> None:
    """All prompts gave the same ratio, or there is one prompt: 3.02x, and yet not confirmed above 2; the reason is said."""
    same = one(synthetic.build(), f"wall_speedup >= 2 at arm='{SLOW}'")
    assert same.word == "inconclusive" and "no spread, no interval" in same.reason and "no spread" in same.remedy
    alone = one(synthetic.build(prompts=1), f"wall_speedup >= 2 at arm='{SLOW}'")
    assert alone.word == "inconclusive" and "one prompt only" in alone.reason


def test_void_says_why() -> None:
    """No times left, no such arm, no such part, no clock, the baseline itself."""
    slow = synthetic.altered(JITTERED, lambda sample: {"meters": {"kernel_before_s": 1.0, "kernel_after_s": 2.0}})
    assert "all 12 timed samples of NTP were void: the calibration kernel" in one(slow, "3-5x").reason
    missing = one(JITTERED, "3-5x at arm='SBD k=32'")
    assert missing.word == "void" and f"those that have: NTP, {SLOW}, {FAST}" in missing.reason and missing.remedy
    nowhere = one(JITTERED, "3-5x at part=elsewhere, batch=4")
    assert nowhere.word == "void" and "it has part=reference, batch=1" in nowhere.reason
    untimed = one(synthetic.build(timed=False), "3-5x")
    assert untimed.word == "void" and untimed.reason == "this part was not timed" and "timed: true" in untimed.remedy
    assert one(JITTERED, "3-5x at arm=NTP").reason == "NTP is what the other arms are compared with"
    assert one(JITTERED, "joules_per_token <= 1").word == "void"
    assert judged(JITTERED, "3-5x at part=elsewhere").exit_code() == 4


def test_an_arm_that_left_no_sample_is_void() -> None:
    """Planned and never measured: the claim is not passed over in silence."""
    ids = frozenset(case.case_id for case in JITTERED.header.cases if "sbd" in case.case_id)
    found = one(synthetic.build(without=ids), "3-5x")
    assert found.word == "void" and found.reason == "no arm but NTP has samples"


def checked(slower: float) -> Run:
    """A run in which generate() takes so many times as long as NTP."""
    mode = synthetic.Arm(label="generate(), static cache", cache="static", slower=slower)
    return synthetic.build(arms=(*synthetic.ARMS, mode), jitter=0.05)


@pytest.mark.parametrize(
    ("claim", "word"),
    [
        ("wall_speedup >= 1.1", "void"),
        ("wall_over_nfe >= 0.1", "void"),
        ("wall_speedup <= 30", "void"),
        ("wall_speedup <= 1.1", "void"),
        ("1.1 <= wall_speedup <= 30", "void"),
        ("wall_speedup >= 30", "refuted"),
        ("wall_over_nfe >= 9", "refuted"),
        ("30 <= wall_speedup <= 40", "refuted"),
    ],
)
def test_against_a_slow_baseline_only_falling_short_is_a_finding(claim: str, word: str) -> None:
    """generate() in two thirds of NTP's time lifts every speedup; with a faster NTP the same claims are decided."""
    found = one(checked(0.66), claim)
    assert found.word == word and "against a slow baseline" in found.reason
    assert word == "refuted" or "0.6" in found.reason
    assert one(checked(1.5), claim).word in ("confirmed", "refuted")
    assert one(checked(0.66), "tokens_per_s >= 1").word == "confirmed", "a rate is no speedup"


@pytest.mark.parametrize(
    ("claim", "word"),
    [
        ("wall_speedup >= 1.1", "inconclusive"),
        ("wall_speedup <= 30", "inconclusive"),
        ("wall_speedup <= 1.1", "inconclusive"),
        ("wall_speedup >= 30", "refuted"),
        ("nfe_speedup >= 1.1", "confirmed"),
        ("tokens_per_s >= 1", "confirmed"),
    ],
)
def test_a_baseline_that_is_not_shown_to_keep_up_confirms_no_speedup(claim: str, word: str) -> None:
    """NTP at 1.0x of generate() in eight prompts that scatter: it may be slower by more than the tolerance."""
    run = checked(1.0)
    run = synthetic.altered(
        run,
        lambda sample: (
            {"decode_s": sample.decode_s * (1 + 0.15 * (-1) ** sample.group)}
            if "generate" in sample.case_id and sample.decode_s
            else {}
        ),
    )
    run = with_passes_of(run)
    assert compare(run).cells[0].baseline_check.state == "not_shown"
    found = one(run, f"{claim} at arm='{SLOW}'")
    assert found.word == word
    if word == "inconclusive":
        assert "confirm nothing" in found.reason and "baseline_check" in found.remedy


def test_other_tokens_than_generate_confirm_nothing() -> None:
    """Every output of NTP differs from that of generate(): the times are of other work, whichever way they point."""
    run = checked(1.5)
    run = synthetic.with_rows(
        run, lambda one, row: {"output_ids": [9, *row.output_ids[1:]]} if one.case_id.endswith("/ntp") else {}
    )
    for claim in ("wall_speedup >= 1.1", "wall_speedup >= 30"):
        found = one(run, claim)
        assert found.word == "void" and "NTP wrote the tokens of generate() in 0 of 8 outputs" in found.reason and found.remedy
    assert one(run, "tokens_per_s >= 1").word == "confirmed"
    assert "did other work, and no speedup is claimed" in render(run, compare(run))


@pytest.mark.parametrize(("share", "said"), [(0.53, "NTP reaches 53 % of the measured read ceiling"), (0.81, None)])
def test_an_ntp_far_below_the_read_rate_is_said_beside_the_speedup(share: float, said: str | None) -> None:
    """The calibration of the run read the model's size so fast that NTP reaches this share of it."""
    plain = synthetic.build(jitter=0.05, calibration=synthetic.calibration())
    reached = compare(plain).cells[0].arms[0].modelled_bandwidth_bytes_per_s.value
    points = [point | {"bytes_per_s": reached / share} for point in plain.header.calibration["read_bandwidth"]]
    run = with_header(plain, calibration=plain.header.calibration | {"read_bandwidth": points})
    marked = "a faster NTP engine may exist"
    assert (said or marked) in one(run, "wall_speedup >= 1.1").reason or said is None
    assert (marked in one(run, "wall_speedup >= 1.1").reason) == (said is not None)
    assert (marked in render(run, compare(run))) == (said is not None)
    assert marked not in one(run, "nfe_speedup >= 1.1").reason


def test_an_unchecked_baseline_is_said() -> None:
    """The verdict stands, and its weakness stands beside it."""
    assert "NTP was not held against generate(): " in one(JITTERED, "wall_speedup >= 1.1").reason
    assert "generate()" not in one(checked(1.5), "wall_speedup >= 1.1").reason


def test_a_replayed_arm_confirms_only_given_its_acceptance() -> None:
    """Its pass reduction was put in, so claiming it is void; what the clock made of it is judged, and called replayed."""
    replayed = synthetic.Arm(label="SBD", gamma=0.1, passes_per_block=4, replayed={"nfe_speedup": 4.0})
    run = synthetic.build(arms=(synthetic.NTP, replayed), jitter=0.05)
    wall = one(run, "wall_speedup >= 2")
    assert (wall.word, wall.basis) == ("confirmed", "replayed") and "given this acceptance (replayed)" in wall.reason
    passes = one(run, "3-5x fewer passes")
    assert (passes.word, passes.basis) == ("void", "replayed") and "no finding" in passes.reason
    assert one(run, "same accuracy").word == "void" and one(run, "same accuracy").remedy == passes.remedy
    assert one(run, "wall_speedup >= 2 within 1 point").word == "void"


def test_fewer_passes_are_judged_over_prompts() -> None:
    """Counted exactly, and yet a sample of prompts: by hand, the t interval of the log ratios of 6 prompts."""
    run = synthetic.build(prompts=6, jitter=0.05)
    counts, samples = [20, 18, 16, 22, 16, 24], []
    for sample in run.samples:
        if "g0.1" in sample.case_id and not sample.warmup:
            sample = with_passes(sample, counts[sample.group])
        samples.append(sample)
    found = one(synthetic.with_samples(run, samples), f"nfe_speedup >= 3 at arm='{SLOW}'")
    logs = np.log(64 / np.array(counts))
    half = 2.570581835636314 * logs.std(ddof=1) / math.sqrt(6)  # t(5), 97.5 %
    assert found.value.low == pytest.approx(math.exp(logs.mean() - half), rel=1e-9)
    assert found.value.high == pytest.approx(math.exp(logs.mean() + half), rel=1e-9)
    assert found.basis == "counted" and found.word == "inconclusive" and found.sizes == {"prompts": 6}
    assert "this process only" not in found.reason


def with_passes(sample: Sample, count: int) -> Sample:
    """The decode with ``count`` passes after the prefill: the last one repeated, without tokens of its own."""
    columns = sample.passes
    data = {}
    for name in type(columns).model_fields:
        values = getattr(columns, name)
        data[name] = [*values, *[values[-1]] * (count + 1 - len(values))] if values is not None else None
    data["final_tokens"] = columns.final_tokens + [[0]] * (count + 1 - len(columns.final_tokens))
    return sample.model_copy(update={"passes": columns.model_copy(update=data)})


def test_wall_over_nfe_is_the_cost_of_a_pass() -> None:
    """Put in: NTP's pass takes 11 ms, the arm's 14 or 17: 3.02x of 4x, whatever the jitter; by either estimator."""
    run = synthetic.build(jitter=0.05)
    for by in ("geometric_mean", "ratio_of_totals"):
        found = one(run, f"wall_over_nfe >= 0.9 by {by} at arm='{SLOW}'")
        assert found.word == "refuted" and found.value.value == pytest.approx(TRUTH / 4, rel=0.03)
        speedup = one(run, f"wall_speedup >= 9 by {by} at arm='{SLOW}'")
        assert found.value.value == pytest.approx(speedup.value.value / 4, rel=1e-9), "4 passes saved in every prompt"


def test_accuracy_within_a_margin() -> None:
    """1,000 equal answers show a loss below 1 point, 60 do not (555 can, one lost), and 3 of 8 lost are more than 1 point."""
    arms = tuple(replace(arm, wrong=frozenset(range(50))) for arm in synthetic.ARMS[:2])
    equal = synthetic.build(prompts=1000, batch_size=50, timed=False, arms=arms)
    shown = one(equal, "same accuracy")
    assert shown.word == "confirmed" and shown.value.value == 0 and shown.sizes == {"prompts": 1000}
    assert shown.value.high == pytest.approx(100 * (1 - 0.025 ** (1 / 1000)))
    wrong = tuple(replace(arm, wrong=frozenset(range(20))) for arm in synthetic.ARMS[:2])
    few = one(synthetic.build(prompts=60, arms=wrong), f"same accuracy at arm='{SLOW}'")
    assert few.word == "inconclusive" and "495 more prompts (555 in all)" in few.remedy
    assert "if it stays at 0 points lost, at most one answer lost; " in few.remedy
    lost = synthetic.Arm(label="SBD", gamma=0.6, wrong=frozenset(range(0, 200, 4)) | {3})
    assert one(synthetic.build(prompts=200, arms=(synthetic.NTP, lost)), "same accuracy").word == "refuted"


NEVER, ALWAYS = frozenset(range(60)), frozenset[int]()


def graded(ntp: frozenset[int], arm: frozenset[int], prompts: int = 60) -> Run:
    """Untimed; ``ntp`` and ``arm`` are the prompts that each answers wrongly."""
    arms = (replace(synthetic.NTP, wrong=ntp), replace(synthetic.ARMS[1], wrong=arm))
    return synthetic.build(prompts=prompts, timed=False, arms=arms)


@pytest.mark.parametrize(
    ("ntp", "arm", "said"),
    [
        (NEVER, NEVER, "NTP is right in 0 of 60, so the check cannot tell"),
        (NEVER - {7}, NEVER, "NTP is right in 1 of 60, so the check cannot tell"),
        (ALWAYS, ALWAYS, "NTP is right in 60 of 60, and no arm is wrong in more than 0, so the check cannot tell"),
        (ALWAYS | {7}, ALWAYS | {7}, "NTP is right in 59 of 60, and no arm is wrong in more than 1, so the check cannot tell"),
    ],
    ids=["never", "almost never", "always", "almost always"],
)
def test_grades_that_cannot_tell_are_void(ntp: frozenset[int], arm: frozenset[int], said: str) -> None:
    """Nothing, or everything, passes the check: no claim, however weak, and no arm is picked by it."""
    run = graded(ntp, arm)
    for claim in ("accuracy_loss_points <= 5", f"accuracy_loss_points <= 5 at arm='{SLOW}'", "same accuracy"):
        found = one(run, claim)
        assert found.word == "void" and found.reason.startswith(said), found.reason
        assert "the check or its pattern" in found.remedy
    comparison = compare(run)
    assert comparison.highlights[0].basis == "ungraded"
    assert comparison.cells[0].arms[1].accuracy.value is not None, "what was graded is still shown"


def test_the_floor_is_that_of_the_claimed_loss() -> None:
    """6 right of 60: if all were lost, that would show a loss of more than 1 point, and not of 5."""
    run = graded(NEVER - set(range(6)), NEVER - set(range(6)))
    assert one(run, f"accuracy_loss_points <= 1 at arm='{SLOW}'").word == "inconclusive"
    found = one(run, f"accuracy_loss_points <= 5 at arm='{SLOW}'")
    assert found.word == "void" and "cannot tell a loss of 5 in 100" in found.reason


def test_a_loss_that_is_seen_is_not_void() -> None:
    """NTP right in all of 60, the arm in 51: the check fails where it should."""
    assert one(graded(ALWAYS, frozenset(range(9))), f"accuracy_loss_points <= 5 at arm='{SLOW}'").word == "refuted"


def test_another_arm_shows_that_the_check_can_fail() -> None:
    """NTP and one arm right in all of 80: void alone, and judged beside an arm that the same check grades wrong."""
    kept, lossy = replace(synthetic.ARMS[1], wrong=ALWAYS), replace(synthetic.ARMS[2], wrong=frozenset(range(9)))
    arms = (replace(synthetic.NTP, wrong=ALWAYS), kept, lossy)
    run = synthetic.build(prompts=80, timed=False, arms=arms)
    assert one(run, f"accuracy_loss_points <= 5 at arm='{SLOW}'").word == "confirmed"
    assert compare(run).highlights[0].label == kept.label


def test_accuracy_is_refused_where_one_side_lacks_answers() -> None:
    """A prompt that only NTP was graded on is not left out in silence."""
    last = next(sample for sample in reversed(JITTERED.samples) if "g0.6" in sample.case_id)
    run = synthetic.with_samples(JITTERED, (sample for sample in JITTERED.samples if sample is not last))
    found = one(run, f"same accuracy at arm='{FAST}'")
    assert found.word == "void" and "1 prompts were graded for NTP alone" in found.reason


@pytest.mark.parametrize("claim", ["wall_speedup >= 1", "wall_over_nfe >= 0.01", "prediction_error <= 100"])
@pytest.mark.parametrize("side", ["ntp", "g0.1"])
def test_dropping_a_prompt_from_one_side_is_refused(claim: str, side: str) -> None:
    """Whichever side it is: nothing is confirmed over the others, and the reason names the prompt."""
    run = synthetic.build(jitter=0.05, prompts=12, calibration=synthetic.calibration())
    assert one(run, f"{claim} at arm='{SLOW}'").word == "confirmed"
    samples = [s for s in run.samples if not (side in s.case_id and s.group == 5)]
    found = one(synthetic.with_samples(run, samples), f"{claim} at arm='{SLOW}'")
    assert found.word == "void" and "1 prompts were decoded by" in found.reason and "number 5" in found.reason


PARTS = {
    "met": "wall_speedup >= 2",
    "missed": "wall_speedup >= 9",
    "inconclusive": f"wall_speedup >= {TRUTH}",
    "void": "joules_per_token <= 1",
}


@pytest.mark.parametrize(
    ("parts", "word"),
    [
        (("met", "met"), "confirmed"),
        (("met", "missed"), "refuted"),
        (("void", "missed"), "refuted"),
        (("met", "inconclusive"), "inconclusive"),
        (("inconclusive", "void"), "void"),
        (("met", "void"), "void"),
    ],
)
def test_a_joint_claim_holds_where_all_of_it_does(parts: tuple[str, ...], word: str) -> None:
    """Confirmed if all parts are, refuted if any is; each part's own outcome stands in the reason."""
    found = one(JITTERED, " and ".join(PARTS[part] for part in parts) + f" at arm='{SLOW}'")
    assert found.word == word
    assert " | " in found.reason or len({PARTS[part] for part in parts}) == 1


def test_a_margin_beside_a_speedup() -> None:
    """3.02x at 37.5 points lost: the speedup is reported with its own interval, and the claim is refuted by the accuracy."""
    lost = synthetic.Arm(label="SBD", gamma=0.1, passes_per_block=4, wrong=frozenset(range(0, 120, 3)))
    run = synthetic.build(prompts=120, jitter=0.005, arms=(synthetic.NTP, lost))
    assert one(run, "wall_speedup >= 2").word == "confirmed"
    found = one(run, "wall_speedup >= 2 within 1 point")
    assert (found.word, found.metric) == ("refuted", "wall_speedup") and "accuracy_loss_points refuted" in found.reason


def test_without_an_arm_the_best_of_every_timed_cell_is_meant() -> None:
    """Two parts and an untimed one: two answers about the clock, three about passes; what it was picked from is said."""
    parts = [synthetic.Part(name=name, jitter=0.05, timed=name != "counted") for name in ("first", "second", "counted")]
    baseline = synthetic.Part(name="ntp_only", arms=(synthetic.NTP,), jitter=0.05)
    found = judged(synthetic.build(*parts, baseline), "3-5x").judgements
    assert [one.cell["part"] for one in found] == ["first", "second"]
    assert {one.cell["arm"] for one in found} == {SLOW} and "picked from 2" in found[0].reason
    passes = judged(synthetic.build(*parts, baseline), "3-5x fewer passes").judgements
    assert [one.cell["part"] for one in passes] == ["first", "second", "counted"]
    assert "picked" not in one(JITTERED, f"3-5x at arm='{SLOW}'").reason


def test_a_claim_finds_its_cell() -> None:
    """By task, batch size, model and values of the arm."""
    parts = (synthetic.Part(tasks=("a", "b"), jitter=0.05), synthetic.Part(name="wide", batch_size=4, jitter=0.05))
    run = synthetic.build(*parts)
    assert [one.cell.get("task") for one in judged(run, "3-5x at task=b").judgements] == ["b"]
    assert [one.cell["batch_size"] for one in judged(run, "3-5x at batch=4").judgements] == ["4"]
    assert one(run, "3-5x at batch=4").sizes["batches"] == 2
    assert [one.cell["arm"] for one in judged(run, "3-5x at block_size=16, part=wide").judgements] == [SLOW, FAST]
    assert [one.cell["arm"] for one in judged(run, "3-5x at gamma=0.6, part=wide").judgements] == [FAST]
    assert len(judged(run, f"3-5x at model={synthetic.SHAPE.name}").judgements) == 2
    assert one(run, "3-5x at model=other").word == "void"


CLOCKS = ("wall_speedup >= 1.1", "wall_speedup >= 30", "wall_over_nfe >= 0.01", "tokens_per_s >= 1", "latency_p50_s <= 0.001")


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("text", CLOCKS)
def test_below_three_processes_a_claim_about_time_is_open(text: str, processes: int) -> None:
    """However far off the bound is; three processes decide it, and so does a claim about these processes alone."""
    run = in_processes(JITTERED, *[1.0] * processes)
    text = f"{text} at arm='{SLOW}'"
    (found,) = judged(run, text, scope=None).judgements
    assert one(run, text).word in ("confirmed", "refuted")
    if processes < 3:
        assert found.word == "inconclusive" and "from 3 processes on" in found.reason
        assert "processes: 3" in found.remedy and "scope: this process" in found.remedy
        assert "more prompts" not in found.remedy, "more prompts of one process decide nothing"
    else:
        assert found.word == one(run, text).word and "processes on" not in found.reason


COUNTED = ("nfe_speedup >= 2", "nfe_speedup >= 30", "identical_to_ntp >= 0.5", "accuracy_loss_points <= 30")


@pytest.mark.parametrize("text", COUNTED)
def test_counted_claims_take_one_process(text: str) -> None:
    """Passes, identity and accuracy rest on no clock: their verdict is the same with and without the scope."""
    run = with_passes_of(JITTERED)
    (found,) = judged(run, f"{text} at arm='{SLOW}'", scope=None).judgements
    assert found.word == one(run, f"{text} at arm='{SLOW}'").word and found.word in ("confirmed", "refuted")


def with_passes_of(run: Run) -> Run:
    """Prompts with different numbers of passes, so that there is an interval of them."""
    more = (with_passes(s, 16 + s.group % 3) if "g0.1" in s.case_id and not s.warmup else s for s in run.samples)
    return synthetic.with_samples(run, more)


def test_a_picked_arm_is_judged_at_the_simultaneous_level() -> None:
    """Of two arms: the 97.5 % interval of the very samples decides, though the 95 % one is shown; by hand from the samples."""
    run = slower(slower(in_processes(JITTERED, 1, 1, 1), 1.002, "sbd", 1), 1.004, "sbd", 2)
    comparison = compare(run)
    picked = next(arm for arm in comparison.cells[0].arms if arm.simultaneous)
    assert picked.label == comparison.highlights[0].label and comparison.highlights[0].picked_from == 2
    assert picked.simultaneous.confidence == pytest.approx(0.975)
    decodes: dict[tuple[int, int], dict[str, float]] = {}
    for s in run.samples:
        kind = "ntp" if "ntp" in s.case_id else "sbd" if s.case_id in picked.case_ids else None
        if kind and not s.warmup:
            decodes.setdefault((s.group, s.process), {})[kind] = s.decode_s
    pairs = [(pair["ntp"], pair["sbd"]) for pair in decodes.values()]
    prompts, processes = zip(*decodes, strict=True)
    wide = geometric_mean_ratio(pairs, prompts, processes, 1 - 0.05 / 2)
    narrow = geometric_mean_ratio(pairs, prompts, processes)
    assert wide.low < narrow.low
    assert picked.simultaneous.figures["wall_speedup"].low == pytest.approx(wide.low, rel=1e-12)
    between = (wide.low + narrow.low) / 2
    claim = f"wall_speedup >= {between}"
    (found,) = judged(run, claim, scope=None).judgements
    assert found.word == "inconclusive" and found.value.low == pytest.approx(narrow.low, rel=1e-12)
    assert "picked from 2 arms" in found.reason and "judged at a simultaneous 95 % level" in found.reason
    assert "names this arm" in found.remedy and "more prompts" not in found.remedy
    assert one(run, f"{claim} at arm=best").word == "inconclusive"
    for named in (f"arm='{picked.label}'", f"gamma={picked.gamma}"):
        found = one(run, f"{claim} at {named}")
        assert found.word == "confirmed" and "picked" not in found.reason, "who is named before the run pays nothing"


def test_accuracy_of_a_picked_arm_is_bounded_at_the_simultaneous_level() -> None:
    """400 equal answers: 0.99^400 = 1.8 % shows a named arm, not one of two, which takes 1.25 %; nor is the pick 'shown'."""
    equal = tuple(replace(arm, wrong=frozenset(range(30))) for arm in synthetic.ARMS)
    run = synthetic.build(prompts=400, batch_size=40, timed=False, arms=equal)
    assert one(run, f"same accuracy at arm='{SLOW}'").word == "confirmed"
    assert one(run, "same accuracy").word == "inconclusive" and compare(run).highlights[0].basis == "observed"
    enough = synthetic.build(prompts=480, batch_size=40, timed=False, arms=equal)
    assert one(enough, "same accuracy").word == "confirmed" and compare(enough).highlights[0].basis == "shown"


def test_a_total_that_few_prompts_hold_decides_nothing() -> None:
    """One of 12 prompts writes 60 times as much: by totals no verdict, in words; by the geometric mean a verdict."""
    run = synthetic.altered(
        in_processes(JITTERED, 1, 1, 1),
        lambda s: {"decode_s": s.decode_s * (60 if s.group == 4 else 1), "passes": s.passes.untimed()},
    )
    found = one(run, f"wall_speedup >= 1.1 by ratio_of_totals at arm='{SLOW}'")
    assert found.word == "inconclusive" and "1 of 12 prompts hold" in found.reason and found.value.value is not None
    assert one(run, f"wall_speedup >= 1.1 at arm='{SLOW}'").word == "confirmed"
