"""Decodes that one arm lost: what they could have taken belongs to the interval, and no other figure of times decides."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from harness.analysis.answer import Comparison, compare
from harness.analysis.figures.arm_metrics import filled, pair_up
from harness.analysis.judge.judgement import Judgement
from harness.analysis.judge.verdict import verdict
from harness.analysis.tally.by_request import Tallies
from harness.record.schema import Run, Sample
from harness.scenario.claim_text import read_claim
from tests.helpers.bench_files import LENGTHS, vllm_result, written
from tests.helpers.command import Cli
from tests.helpers.published import compared, published

ARM = "SBD k=16 γ=0.35"
LABELS = {case.case_id: case.label for case in published("quickstart").cases}
Place = tuple[str, int, int]
"""(task, group, process)."""


def place_of(sample: Sample) -> Place:
    """Of a decode."""
    return sample.case_id.split("/")[1], sample.group, sample.process


def speedups(run: Run) -> dict[Place, float]:
    """NTP's seconds per decode token by the arm's, decode by decode, from the samples as they stand."""
    sides: list[dict[Place, float]] = []
    for label in ("NTP", ARM):
        own = [one for one in run.samples if LABELS[one.case_id] == label and not one.warmup]
        sides.append({place_of(one): one.decode_s / (one.rows[0].output_tokens - 1) for one in own})
    return {place: seconds / sides[1][place] for place, seconds in sides[0].items()}


def void(run: Run, *lost: tuple[str, set[Place]]) -> Run:
    """The run in which another process used the GPU while these decodes of these arms were taken."""

    def one(sample: Sample) -> Sample:
        hit = any(LABELS[sample.case_id] == arm and place_of(sample) in places for arm, places in lost)
        unfit = {"meters": sample.meters | {"device_processes": 2.0}}
        return sample.model_copy(update=unfit) if hit and not sample.warmup else sample

    return run.model_copy(update={"samples": [one(sample) for sample in run.samples]})


def slowest(share: float) -> set[Place]:
    """So many of the arm's decodes, those with the least speedup."""
    every = speedups(published("quickstart"))
    return set(sorted(every, key=every.__getitem__)[: round(share * len(every))])


def verdicts(comparison: Comparison, *texts: str) -> list[Judgement]:
    """On claims that name the arm."""
    claims = tuple(read_claim(f"{text} at arm='{ARM}'") for text in texts)
    return list(verdict(comparison, claims, published("quickstart").header).judgements)


@cache
def without(share: float) -> Comparison:
    """The published run, its arm's slowest decodes void."""
    return compare(void(published("quickstart"), (ARM, slowest(share))))


def test_the_slowest_decodes_of_one_arm_confirm_nothing() -> None:
    """What the run left open was confirmed once the machine was unfit while the slowest 5 % were taken; it stays open."""
    before = compared("quickstart").cells[0].arm(ARM).wall_speedup
    claim = f"wall_speedup >= {1.02 * before.low}"
    assert [one.state for one in verdicts(compared("quickstart"), claim)] == ["inconclusive"]
    (found,) = verdicts(without(0.05), claim)
    assert found.value.value > before.value and found.state == "inconclusive" and found.value.low < before.low
    assert "4.4% of its decodes and 0.0% of NTP's failed or are void: an interval holds them" in found.reason
    assert found.remedy.startswith("a new run that loses at most 2% of each arm's decodes")


def test_many_void_decodes_leave_no_interval() -> None:
    """The reason of the interval, and that of the loss."""
    (found,) = verdicts(without(0.25), "wall_speedup >= 0.1")
    assert found.state == "inconclusive" and "24.4% of its decodes and 0.0% of NTP's failed or are void" in found.reason


def test_bounds_of_the_worst_case_decide_what_is_far_enough() -> None:
    """Half the speedup is confirmed and three times it is refuted, whatever the lost decodes took; so per pass saved."""
    arm = without(0.05).cells[0].arm(ARM)
    for name, figure in (("wall_speedup", arm.wall_speedup), ("wall_over_nfe", arm.figures["wall_over_nfe"])):
        found = verdicts(without(0.05), *(f"{name} >= {factor * figure.value}" for factor in (0.4, 1, 3)))
        assert [one.state for one in found] == ["met", "inconclusive", "missed"]


def test_other_times_are_open_and_counts_are_not() -> None:
    """However far from the bound."""
    times = verdicts(without(0.05), "tokens_per_s >= 0.1", "latency_p50_s <= 1000", "request_speedup >= 0.01")
    assert [one.state for one in times] == ["inconclusive"] * 3
    assert [one.state for one in verdicts(without(0.05), "nfe_speedup >= 1.5")] == ["met"]


@pytest.mark.parametrize(
    ("own", "ntp", "open_"), [(0, 0, False), (1, 1, False), (1, 0, True), (0, 1, True), (2, 2, True), (9, 9, True)]
)
def test_few_decodes_of_both_sides_change_nothing(own: int, ntp: int, open_: bool) -> None:
    """Of 90: one is 1.1 %, more than a point beside none; two are more than 2 %."""
    places = sorted(speedups(published("quickstart")))
    cut = void(published("quickstart"), (ARM, set(places[:own])), ("NTP", set(places[:ntp])))
    assert (compare(cut).cells[0].arm(ARM).lost_times is not None) is open_


@pytest.mark.parametrize("slow", [True, False])
def test_what_a_lost_decode_may_have_taken_by_hand(slow: bool) -> None:
    """Beyond the least, or the largest, speedup as far as one of 90 is in exponential logarithms; its counts stay its own."""
    (at, *_) = places = sorted(speedups(published("quickstart")))
    tallies = Tallies(void(published("quickstart"), (ARM, {at})), priced=False)
    ntp, own = ([one for case_id, its in LABELS.items() if its == label for one in tallies(case_id)] for label in ("NTP", ARM))
    pairs = pair_up(ntp, own)
    every = filled(pairs, ntp, own, slow)
    assert len(every) == len(pairs) + 1 == len(places) == 90
    base, lost = every[-1]
    assert (lost.key[0], lost.key[1], lost.key[3]) == at and lost.sums == next(one.sums for one in own if one.key == lost.key)
    seen = [math.log(n.decode_s / n.decode_tokens * a.decode_tokens / a.decode_s) for n, a in pairs]
    extreme, middle = (min if slow else max)(seen), sorted(seen)[44]
    logs = np.sort(np.random.default_rng(1).exponential(size=(20_000, 90)), axis=1)  # the largest of each row is lost
    farther = (logs[:, 89] - np.median(logs[:, :89], axis=1)).mean() / (logs[:, 88] - np.median(logs[:, :89], axis=1)).mean()
    taken = math.log(base.decode_s / base.decode_tokens * lost.decode_tokens / lost.decode_s)
    assert taken == pytest.approx(middle + (1 + 1 / math.log(45)) * (extreme - middle))
    assert 1 + 1 / math.log(45) == pytest.approx(farther, rel=0.03)
    assert filled(pairs[:50], ntp, own, slow) == [], "too many are lost"


def test_requests_that_failed_on_one_side_confirm_nothing(cli: Cli, tmp_path: Path) -> None:
    """Files without pairs: two of the arm's 20 requests have no answer in every file, which was confirmed all the same."""
    arguments: list[str] = []
    for number in range(3):
        plain = vllm_result(0.02, seed=number, lengths=LENGTHS * 2)
        fast = vllm_result(0.01, seed=100 + number, lengths=LENGTHS[::-1] * 2, failed=(3, 11))
        for option, name, result in (("--ntp", "plain", plain), ("--arm", "fast", fast)):
            file = written(tmp_path, f"{name}{number}.json", result)
            arguments += [option, str(file) if name == "plain" else f"fast={file}"]
    assert cli(f"import --out {tmp_path}/run", *arguments) == 0 and "unpaired" in cli.out
    assert cli(f"verify {tmp_path}/run --json --claim", "wall_speedup >= 1.2") == 3
    (found,) = json.loads(cli.out)["judgements"]
    assert "10.0% of its decodes and 0.0% of NTP's failed or are void: no interval" in found["reason"]
    assert found["remedy"].startswith("a new run that loses at most 2%")
