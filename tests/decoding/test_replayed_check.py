"""Checks replayed from a record: what a trace says about them, by hand, and a decode that goes the same way again."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.decoding.verification import ReplayedCheck
from harness.errors import RecordError, ScenarioError
from harness.record.schema import PassColumns
from harness.record.store import read_run
from harness.record.trace import ForwardPass
from harness.roofline.operation import describe_pass
from harness.roofline.recorded_acceptance import VERIFIED_SBD, Check, checks_of_row, miss_rates, recorded_checks
from harness.runner.runner import run
from harness.runner.sample_taking import pass_columns
from harness.scenario.loading import load_scenario
from harness.scenario.plan import make_plan
from tests.helpers.fake_machine import uncalibrated

SIZE = 4


def one(role: str, kept: tuple[int, ...], active: tuple[bool, ...], logits: int = SIZE) -> ForwardPass:
    """A pass of two rows."""
    plain = describe_pass(role, len(kept), SIZE, 9, logits=logits)
    return plain._replace(kept_tokens=kept, final_tokens=kept, active=active)


BOTH = (True, True)
TRACE = [
    one("prefill", (0, 0), BOTH, logits=1 + SIZE),
    one("draft", (0, 0), BOTH),
    # Row 0: all right, so the next block is drafted already; row 1: its second draft was wrong.
    one("verify+draft", (4, 2), BOTH),
    one("draft", (0, 0), BOTH),
    one("verify+draft", (0, 3), BOTH),  # row 1 ends
    one("verify", (2, 0), (True, False)),  # row 0 ends
]


def columns(passes: list[ForwardPass]) -> PassColumns:
    """As a record has them."""
    decoded = SimpleNamespace(generation=SimpleNamespace(passes=passes), forward_s=None, sampler_s=None)
    return pass_columns(decoded)  # type: ignore[arg-type]


def test_the_checks_of_a_trace_by_hand() -> None:
    """Row 0: drafted with the prompt and once more, then with its check and twice more. Row 1: twice, then once anew."""
    first = list(checks_of_row(columns(TRACE), 0, SIZE))
    assert first == [Check(draft_passes=2, agreed=3, last=False), Check(draft_passes=3, agreed=1, last=True)]
    second = list(checks_of_row(columns(TRACE), 1, SIZE))
    assert second == [Check(draft_passes=2, agreed=1, last=False), Check(draft_passes=1, agreed=2, last=True)]
    alone = [TRACE[0]._replace(logit_tokens=(1, 1)), *TRACE[1:]]  # no masks behind the prompt
    assert next(checks_of_row(columns(alone), 0, SIZE)).draft_passes == 1


def test_an_answer_that_ended_hides_how_far_a_check_would_have_agreed() -> None:
    """By hand: five blocks. At the first draft one of five is wrong. Of the four left one answer ended behind its first draft,
    so of three one is wrong at the second; both of the others reach the third and agree.
    """
    seen = [(0, False), (1, True), (1, False), (3, False), (3, False)]
    checks = [Check(draft_passes=1, agreed=agreed, last=last) for agreed, last in seen]
    assert miss_rates(checks, 3) == pytest.approx((1 / 5, 1 / 3, 0))


def check_rates(estimate: Callable[[list[Check], int], Sequence[float]], misses: list[float], ends: float, seed: int) -> None:
    """Blocks drawn with known rates, cut off by ends drawn apart from them: every rate within 6 of its standard errors."""
    rng, checks = random.Random(seed), []
    for _ in range(4000):
        agreed = next((at for at, chance in enumerate(misses) if rng.random() < chance), 3)
        end = next((at for at in range(1, 4) if rng.random() < ends), 4)
        checks.append(Check(draft_passes=1, agreed=min(agreed, end), last=agreed >= end))
    at_risk = Counter(min(check.agreed + (not check.last), 3) for check in checks)
    for place, (rate, found) in enumerate(zip(misses, estimate(checks, 3), strict=True)):
        reached = sum(count for at, count in at_risk.items() if at > place)
        assert reached > 100 and found == pytest.approx(rate, abs=6 * (0.25 / reached) ** 0.5)


@given(misses=st.lists(st.floats(0, 0.6), min_size=3, max_size=3), ends=st.floats(0, 0.4), seed=st.integers(0, 2**16))
def test_the_rates_are_found_again_however_often_answers_end(misses: list[float], ends: float, seed: int) -> None:
    """Short answers bend no estimate."""
    check_rates(miss_rates, misses, ends, seed)


def test_an_estimate_that_takes_ends_for_misses_shows() -> None:
    """The comparison can fail."""

    def bent(checks: list[Check], drafts: int) -> list[float]:
        reached = [[check.agreed for check in checks if check.agreed >= place] for place in range(drafts)]
        return [agreed.count(place) / len(agreed) for place, agreed in enumerate(reached)]

    with pytest.raises(AssertionError):
        check_rates(bent, [0.3, 0.3, 0.3], 0.3, 1)


REPLAY = """
version: 1
name: replay
parts:
  - name: random
    model: {random: {name: tiny, layers: 2, hidden: 32, intermediate: 64, heads: 2, kv_heads: 1, head_dim: 16, vocab: 64}}
    dtype: float64
    timed: false
    arms:
      - {method: ntp}
      - {method: sbd_verified, block_size: 8, acceptance: {replay: {trace: recorded, arm: "SBD verified k=8 γ=0.3"}}}
      - {method: self_speculation, form: quadratic, block_size: 4, copies: true, acceptance: {replay: {trace: recorded}}}
      - {method: self_speculation, form: linear, block_size: 8, acceptance: {replay: {trace: recorded}}}
    batch_sizes: [1, 3]
    workload: {synthetic: {prompt_tokens: 9}, prompts: 6, max_new_tokens: 120}
"""
RECORDED = """
version: 1
name: recorded
parts:
  - name: reference
    model: {reference: sbd}
    dtype: float64
    timed: false
    arms:
      - {method: ntp}
      - {method: sbd_verified, block_size: 8, gamma: [0.3, 99]}
      - {method: self_speculation, form: quadratic, block_size: 4, copies: true}
      - {method: self_speculation, form: linear, block_size: 8}
    batch_sizes: [4]
    workload: {tasks: [record_to_json, variable_trace], prompts: 12, max_new_tokens: 48}
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A record of the reference model, and its checks replayed on random weights."""
    here = tmp_path_factory.mktemp("replayed")
    (here / "recorded.yaml").write_text(RECORDED)
    recorded = run(here / "recorded.yaml", here / "recorded", machine=uncalibrated())
    (here / "replay.yaml").write_text(REPLAY)
    return recorded, run(here / "replay.yaml", here / "replay", machine=uncalibrated())


REPLAYED = {
    "SBD verified k=8 replayed γ=0.3": ("SBD verified k=8 γ=0.3", 8, VERIFIED_SBD),
    "quadratic self-speculation k=4 with copies replayed": (None, 4, ("self_speculation", "quadratic", True)),
    "linear self-speculation k=8 replayed": (None, 8, ("self_speculation", "linear", False)),
}
"""By label: the arm of the record, the block size, and how both decode."""


def test_every_replay_is_tried(runs: tuple[Path, Path]) -> None:
    """Labels say what is replayed, and none of the arms claims to write what NTP writes."""
    cases = [case for case in read_run(runs[1]).header.cases if case.replayed]
    assert {case.label for case in cases} == set(REPLAYED)
    assert not any(case.arm.lossless for case in cases)


@pytest.mark.parametrize("label", REPLAYED)
def test_random_weights_go_the_way_of_the_record(runs: tuple[Path, Path], label: str) -> None:
    """The replayed decodes' own checks have the record's rates and passes, within what so many draws scatter; alone none of
    their drafts would be right. Catches agreement that a row does not keep, drafts that are forced past the answer's end, a
    first pass of the quadratic form, which has no draft, among its checks.
    """
    recorded, replayed = runs
    arm, size, way = REPLAYED[label]
    wanted, run = recorded_checks(recorded, size, arm, way), read_run(replayed)
    cases = {case.case_id for case in run.header.cases if case.label == label}
    checks = []
    for sample in run.samples:
        if sample.case_id in cases:
            for row, result in enumerate(sample.rows):
                found = list(checks_of_row(sample.passes, row, size))
                assert sum(check.agreed + 1 for check in found) == result.output_tokens - 1 == 119
                checks += found[way[1] == "quadratic" :]
    if way == VERIFIED_SBD:
        whole = [check.draft_passes for check in checks if not check.last]
        assert min(whole) >= 1 and set(whole) <= set(wanted.draft_passes)
        mean = sum(wanted.draft_passes) / len(wanted.draft_passes)
        assert sum(whole) / len(whole) == pytest.approx(mean, rel=0.15)
    expected = sum(_survives(wanted.misses, place) for place in range(size - 1))
    assert sum(_survives(miss_rates(checks, size - 1), place) for place in range(size - 1)) == pytest.approx(expected, rel=0.2)
    assert expected > 1, "a record in which drafts are right"


def test_the_first_pass_of_the_quadratic_form_has_no_draft_to_miss(runs: tuple[Path, Path]) -> None:
    """The rate of the first draft by hand: passes that made one token final, of those behind an answer's first and before its
    last, and of that one where it shows a right draft.
    """
    run, missed, reached = read_run(runs[0]), 0, 0
    cases = {case.case_id for case in run.header.cases if case.arm.form == "quadratic"}
    for sample in run.samples:
        for row in range(len(sample.rows) if sample.case_id in cases else 0):
            decoded = zip(sample.passes.active[1:], sample.passes.final_tokens[1:], strict=True)
            final = [tokens[row] for active, tokens in decoded if active[row]]
            missed += final[1:-1].count(1)
            reached += len(final[1:-1]) + (len(final) > 1 and final[-1] > 1)
    assert recorded_checks(runs[0], 4, None, ("self_speculation", "quadratic", True)).misses[0] == missed / reached > 0


def _survives(misses: tuple[float, ...], place: int) -> float:
    """The chance that the drafts up to this one are right."""
    share = 1.0
    for rate in misses[: place + 1]:
        share *= 1 - rate
    return share


def test_a_row_draws_the_same_whatever_the_others_do() -> None:
    """Row 0 alone, and with checks of row 1 in between; no token stands in that is the draft or the mask."""
    slots, verdicts, mask = [9, 0, 1, 5], [7, 7, 7, 7], 2
    alone, among = (ReplayedCheck((0.5, 0.5, 0.5), mask, seed=3) for _ in range(2))
    heard = []
    for _ in range(50):
        heard.append(alone.heard(0, slots, verdicts))
        among.heard(1, slots, verdicts)
        assert among.heard(0, slots, verdicts) == heard[-1]
    assert {tuple(one) for one in heard} == {(1, 7, 7, 7), (0, 0, 7, 7), (0, 1, 0, 7), (0, 1, 5, 7)}
    assert alone.heard(0, [9, mask, mask, mask], verdicts) == verdicts, "behind the answer's end there is nothing to agree with"


def test_what_cannot_be_replayed_is_said(runs: tuple[Path, Path]) -> None:
    """Another label or block size, with what there is; knobs beside a replay, by file and line."""
    with pytest.raises(RecordError, match=r"'SBD verified k=8 γ=0\.3', 'SBD verified k=8 γ=99'"):
        recorded_checks(runs[0], 8, "SBD k=8 γ=0.3")
    with pytest.raises(RecordError, match="block of size 16"):
        recorded_checks(runs[0], 16, None)
    for change, words in (("gamma: 1, ", "remove gamma"), ("least_confidence: 0.5, ", "remove least_confidence")):
        file = runs[0].parent / "wrong.yaml"
        file.write_text(REPLAY.replace("{method: sbd_verified, ", "{method: sbd_verified, " + change))
        with pytest.raises(ScenarioError, match=words) as refused:
            load_scenario(file)
        assert "wrong.yaml:" in str(refused.value)


def test_two_arms_of_one_record_are_two_cases(runs: tuple[Path, Path]) -> None:
    """Their ids differ; all arms of the record together are a third."""
    file = runs[0].parent / "three.yaml"
    line = next(line for line in REPLAY.splitlines() if "sbd_verified" in line)
    others = line.replace("γ=0.3", "γ=99"), line.replace(', arm: "SBD verified k=8 γ=0.3"', "")
    file.write_text(REPLAY.replace(line, "\n".join((line, *others))))
    cases = make_plan(load_scenario(file)).cases
    assert len({case.case_id for case in cases}) == len(cases) == 12
    assert "SBD verified k=8 replayed trace" in {case.label for case in cases}
