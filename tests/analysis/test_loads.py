"""Loads as draws: which a process has, queues that grow, records with one draw, and requests that count in one arm alone."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.simulated_load import LoadShape, beside, simulated, truth
from harness.analysis.answer import compare
from harness.analysis.arm_results import arm_result  # noqa: F401  registers the figures
from harness.analysis.figures.arms import ONE_DRAW
from harness.analysis.judge.verdict import verdict
from harness.analysis.results import ArmResult, Comparison
from harness.analysis.tally.by_request import Tallies
from harness.analysis.tally.requests import growth_of, why_unsettled
from harness.record.schema import RowTimes, Run
from harness.scenario.claim_text import read_claim
from tests.helpers.judged_runs import judged
from tests.helpers.published import published
from tests.helpers.simulated_server import load_run

POISSON = {"requests_per_s": 10.0, "first_token_s": 0.05}


def arm_in(found: Comparison, label: str = "server fast") -> ArmResult:
    """Of the first cell."""
    return next(arm for arm in found.cells[0].arms if arm.label == label)


def times_by(run: Run) -> dict[tuple[str, int], list[tuple[float, float]]]:
    """When requests were sent and how long they took, by arm and process."""
    methods = {case.case_id: case.arm.method for case in run.header.cases}
    return {
        (methods[one.case_id], one.process): [(row.times.sent_s, row.times.last_token_s) for row in one.rows if row.times]
        for one in run.samples
        if not one.warmup
    }


def test_arrivals_and_prompts_differ_between_starts_and_are_those_of_all_arms() -> None:
    """Three starts are three lists of arrivals and 120 prompts; NTP and the arm have the same in each; made again they are the
    same. The seed in the record is that of its place.
    """
    run = load_run([POISSON])
    sent = {place: [at for at, _ in times] for place, times in times_by(run).items()}
    for process in range(3):
        assert sent["ntp", process] == pytest.approx(sent["served", process], abs=1e-5)
    assert len({round(sent["ntp", process][1], 5) for process in range(3)}) == 3
    prompts = [{row.prompt_id for one in run.samples if one.process == at for row in one.rows} for at in range(3)]
    assert [len(each) for each in prompts] == [40] * 3 and len(set.union(*prompts)) == 120
    assert {one.key: one.seed for one in load_run([POISSON]).samples} == {one.key: one.seed for one in run.samples}
    seeds = {(one.process, one.seed) for one in run.samples if not one.warmup}
    assert len(seeds) == len({seed for _, seed in seeds}) == 3


def grown(sent: list[float], ended: list[float], begin_s: float) -> float:
    """Worked out one by one: Fisher's z of the correlation of time and requests that are unanswered then."""
    kept = [at for at in sent if at >= begin_s]
    there = [sum(one < at for one in sent) - sum(one <= at for one in ended) for at in kept]
    r = np.corrcoef(kept, there)[0, 1]
    return 0.5 * math.log((1 + r) / (1 - r))


def test_growth_counts_those_that_are_unanswered_at_every_sending() -> None:
    """By hand: at 1, 2, 3, 4 s there are 1, 1, 2, 3 unanswered; from 2 s on 1, 2, 3, a straight line."""
    spans = [(0.0, 5.0), (1.0, 1.5), (2.0, 9.0), (3.0, 9.0), (4.0, 9.0)]
    times = [RowTimes(sent_s=begin, first_token_s=0.1, last_token_s=end - begin) for begin, end in spans]
    assert growth_of(times, 2.0) == pytest.approx(math.atanh(0.999)), "a straight line has no finite z"
    sent, ended = [begin for begin, _ in spans], [end for _, end in spans]
    assert growth_of(times, 1.0) == pytest.approx(grown(sent, ended, 1.0))
    alike = [RowTimes(sent_s=float(at), first_token_s=0.1, last_token_s=0.5) for at in range(5)]
    assert growth_of(alike, 0.0) == 0.0


def rates(run: Run) -> list[float]:
    """Requests that came and that were answered in the last three quarters of the fast server's arrivals, by their seconds."""
    seconds = came = answered = 0.0
    for (method, _), times in times_by(run).items():
        end = max(sent for sent, _ in times)
        if method == "served":
            seconds += end * 3 / 4
            came += sum(sent >= end / 4 for sent, _ in times)
            answered += sum(end / 4 < sent + took <= end for sent, took in times)
    return [came / seconds, answered / seconds]


def test_a_queue_that_grows_is_void_by_name() -> None:
    """The fast server answers at most 24 requests a second of 60; NTP's keeps up. The words name the rate that it sustained."""
    run = load_run([{"requests_per_s": 60.0}], prompts=480)
    found = compare(run)
    fast, ntp = arm_in(found), arm_in(found, "NTP")
    for name in ("request_p50_s", "request_p95_speedup", "throughput_ratio", "request_speedup"):
        assert fast.figures[name].value is None and "the load did not settle: " in (fast.figures[name].reason or "")
    assert fast.wall_speedup.value is None and ntp.figures["request_p50_s"].low is not None
    told = [float((fast.wall_speedup.reason or "").partition("in flight, ")[2].split()[at]) for at in (0, 5)]
    assert told == pytest.approx(rates(run), rel=5e-3)
    [one] = verdict(found, (read_claim("request_p50_s <= 9 at arm='server fast'"),), run.header).judgements
    assert one.word == "void" and "did not settle" in one.reason


def test_the_test_of_growth_is_students_over_samples() -> None:
    """Growths of 1, 2, 3: t = 2 / (1 / √3) = 3.46 is above 2.92 with two degrees of freedom; of 0, 2, 4 it is 1.73. One sample
    cannot show it.
    """
    run = load_run([POISSON])
    window = Tallies(run)(arm_in(compare(run)).case_ids[0])[0].requests[0].window

    def why(*growths: float) -> str | None:
        return why_unsettled([replace(window, growth=z) for z in growths])

    assert "more and more requests were in flight" in (why(1, 2, 3) or "")
    assert why(0, 2, 4) is None and why(3) is None and why(0, 0, 0) is None
    short = why_unsettled([window, replace(window, short=True), window]) or ""
    assert "arrivals last less than 20 median request times in 1 of 3 processes; it takes more requests" in short


def scaled(times: RowTimes, by: float) -> RowTimes:
    """In a process that is so much slower."""
    return times.model_copy(update={name: by * getattr(times, name) for name in ("first_token_s", "last_token_s")})


def as_before(run: Run) -> Run:
    """The record as an earlier program wrote it: every process with the first one's arrivals, prompts and seed."""
    first = {one.key[:4]: one for one in run.samples if one.process == 0}
    again = [
        first[one.key[:4]].model_copy(
            update={
                "process": one.process,
                "rows": [
                    row.model_copy(update={"times": scaled(row.times, f)})
                    for row in first[one.key[:4]].rows
                    if row.times is not None
                ],
            }
        )
        for one in run.samples
        for f in [1 + 0.01 * one.process ** (1 if one.case_id.endswith("ntp") else 2)]
    ]
    return run.model_copy(update={"samples": again})


def test_a_record_with_one_draw_has_no_interval() -> None:
    """Its figures stay; what does not rest on a clock keeps its interval's reason."""
    run = load_run([POISSON])
    found = arm_in(compare(as_before(run)))
    for name in ("first_token_p50_s", "request_p50_speedup", "throughput_tokens_per_s"):
        figure = found.figures[name]
        assert figure.value is not None and figure.low is None and figure.reason == ONE_DRAW, name
        assert arm_in(compare(run)).figures[name].low is not None, "each process a draw of its own"
    assert found.wall_speedup.reason == ONE_DRAW and found.nfe_speedup.value == pytest.approx(12 / 6)


def test_the_published_load_is_one_draw() -> None:
    """Recorded before processes drew their own: it is read, has its values, and decides nothing."""
    run = published("served_load")
    for text in ("wall_speedup >= 0.5 at arm='server ngram', batch=1", "first_token_p50_s <= 9 at arm='server ngram', batch=4"):
        [one] = judged(run, text, scope=None).judgements
        assert one.word == "inconclusive" and one.value.value is not None and ONE_DRAW in one.reason


def test_pairs_under_a_drawn_load_are_of_one_prompt_and_process() -> None:
    """Every pair of NTP and the arm is the same prompt at the same arrival in the same process."""
    shape = LoadShape(kind="poisson", utilisation=0.5, requests=30, starts=3)
    one = beside(shape, simulated(shape, np.random.default_rng(3)))
    assert len(one.pairs) == len({(arm.key, arm.prompts) for _, arm in one.pairs}) > 3 * 20
    assert all(ntp.prompts == arm.prompts and ntp.key == arm.key for ntp, arm in one.pairs)


def test_a_ratio_is_over_the_requests_that_count_in_both_arms() -> None:
    """NTP's lead-in is longer: the arm's own percentile rests on more requests than the ratio."""
    shape = LoadShape(kind="poisson", utilisation=0.5, requests=60, starts=3, speedup=2.0)
    one = beside(shape, simulated(shape, np.random.default_rng(4)))
    waited: tuple[list[float], list[float]] = ([], [])
    more = 0
    for process in range(3):
        sides = [
            {t.key: t.requests[0] for t in arm.tallies if t.key[3] == process and t.requests[0].counted}
            for arm in (one.ntp or one.arm, one.arm)
        ]
        both = sides[0].keys() & sides[1].keys()
        more += len(sides[1]) - len(both)
        for found, side in zip(waited, sides, strict=True):
            found += [side[key].request_s for key in both]
    a, b = (np.percentile(side, 95, method="median_unbiased") for side in waited)
    assert more > 0 and one.figure("request_p95_speedup").value == pytest.approx(a / b, rel=1e-12)


def test_verdicts_at_the_truth_of_a_simulated_load() -> None:
    """50 runs of a closed loop: an interval of 95 % covers the truth in 85 % and more (binomial noise). With one draw for all
    starts, as records had, it does in far fewer.
    """
    covered = {True: 0, False: 0}
    for same in covered:
        shape = LoadShape(kind="closed", requests=48, starts=3, same_draw=same)
        bound, random = truth(shape)["request_p50_speedup"], np.random.default_rng(5)
        for _ in range(50):
            one = beside(shape, simulated(shape, random))
            if same:  # judged as an earlier program did
                one = replace(one, place=replace(one.place, load=None), _made={})
            found = one.figure("request_p50_speedup")
            covered[same] += found.low is not None and found.low <= bound <= (found.high or 0.0)
    assert covered[False] >= 42 and covered[True] < 30
