"""Streams whose pieces are held back on their way: no time of decoding is told, that of whole requests stays."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from math import ceil

import pytest

from harness.analysis.answer import compare
from harness.analysis.judge.judgement import Judgement
from harness.analysis.judge.verdict import verdict
from harness.analysis.results import ArmResult
from harness.record.schema import RowResult, Run
from harness.scenario.claim_text import read_claim
from tests.helpers.published import published
from tests.helpers.simulated_server import load_run

Arrive = Callable[[list[float]], list[float]]
"""From when the pieces of an answer were sent to when they arrive, in seconds."""
TOGETHER = "pieces of its answers came together"
ARM = "at arm='server ngram'"
TICK_S = 0.1


def by_number(size: int) -> Arrive:
    """A proxy that passes on so many pieces at once."""
    return lambda sent_s: [sent_s[min(len(sent_s) - 1, at // size * size + size - 1)] for at in range(len(sent_s))]


def by_time(sent_s: list[float]) -> list[float]:
    """One that passes on what it has every 100 ms."""
    return [ceil(at_s / TICK_S) * TICK_S for at_s in sent_s]


def late_client(sent_s: list[float]) -> list[float]:
    """An honest stream: of a busy client's reads one in twenty comes so late that the next piece is there."""
    drawn = random.Random(len(sent_s))
    return [max(pair) if drawn.random() < 0.05 else pair[0] for pair in pairwise([*sent_s, sent_s[-1]])]


def row_as_it_arrives(row: RowResult, arrive: Arrive) -> RowResult:
    """The row with the client's other times."""
    at_s = arrive([*accumulate(row.times.gaps_s, initial=row.times.first_token_s)])
    gaps_s = [max(0.0, after - before) for before, after in pairwise(at_s)]
    times = row.times.model_copy(update={"first_token_s": at_s[0], "last_token_s": at_s[-1], "gaps_s": gaps_s})
    return row.model_copy(update={"times": times})


def as_it_arrives(run: Run, arrive: Arrive, arms: Sequence[str] = ("ntp", "served")) -> Run:
    """The run of the same servers, had the pieces of these arms' answers arrived so."""
    methods = {case.case_id: case.arm.method for case in run.header.cases}
    samples = []
    for one in run.samples:
        if methods[one.case_id] in arms:
            rows = [row_as_it_arrives(row, arrive) for row in one.rows]
            first_s, last_s = ([getattr(row.times, name) for row in rows] for name in ("first_token_s", "last_token_s"))
            changes = {"rows": rows, "prefill_s": min(first_s), "decode_s": max(last_s) - min(first_s)}
            one = one.model_copy(update=changes)
        samples.append(one)
    return run.model_copy(update={"samples": samples, "seal": None})


@pytest.fixture(scope="module")
def real() -> Run:
    """Two tasks of a published run: a server with n-gram drafts, which send several tokens in a piece, and one without."""
    run = published("served_vllm")
    cases = [case for case in run.header.cases if case.task in ("lists", "rewriting")]
    kept = {case.case_id for case in cases}
    header = run.header.model_copy(update={"cases": cases})
    samples = [one for one in run.samples if one.case_id in kept]
    return as_it_arrives(run.model_copy(update={"header": header, "samples": samples}), by_number(1))


def arms_of(run: Run) -> tuple[ArmResult, ArmResult]:
    """NTP and the other one, over all tasks."""
    ntp, arm = compare(run).cells[0].arms
    return (ntp, arm) if ntp.is_ntp else (arm, ntp)


def judged(run: Run, claim: str) -> Judgement:
    """The answer to a claim."""
    (one,) = verdict(compare(run), [read_claim(claim)], run.header).judgements
    return one


@pytest.mark.parametrize("arrive", [by_number(2), by_number(8), by_number(10**6), by_time], ids=["2", "8", "whole", "100 ms"])
def test_a_held_back_stream_has_no_speedup_of_decoding(arrive: Arrive, real: Run) -> None:
    """Its last piece comes in time, so whole requests are as fast as they were, but for the wait for a tick."""
    held = as_it_arrives(real, arrive)
    ntp, arm = arms_of(held)
    for one in (ntp, arm):
        assert one.voids.void == one.voids.timed > 0 and TOGETHER in one.voids.reasons
        assert one.figures["tokens_per_s"].value is None and one.first_token_s.value is None
    assert arm.wall_speedup.reason == "no sample of NTP has a time: every one was void"
    void = judged(held, f"wall_speedup >= 1.5 {ARM}")
    assert void.state == "void" and TOGETHER in void.reason and "connect to the server itself" in void.remedy
    rel = 0.05 if arrive is by_time else 1e-9
    assert arm.request_speedup.value == pytest.approx(arms_of(real)[1].request_speedup.value, rel=rel)
    assert arm.latency_s.value == pytest.approx(arms_of(real)[1].latency_s.value, abs=TICK_S if arrive is by_time else 1e-9)
    assert judged(held, f"request_speedup >= 1 {ARM}").state == judged(real, f"request_speedup >= 1 {ARM}").state != "void"
    assert judged(held, f"nfe_speedup >= 1 {ARM}").state == judged(real, f"nfe_speedup >= 1 {ARM}").state


def test_one_server_behind_a_proxy_is_enough(real: Run) -> None:
    """The other one's times are good, and the verdict names the side that has none."""
    held = as_it_arrives(real, by_number(4), ("served",))
    ntp = arms_of(held)[0]
    assert ntp.voids.void == 0 and ntp.figures["tokens_per_s"].value is not None
    void = judged(held, f"wall_speedup >= 1.5 {ARM}")
    assert void.state == "void" and f"of server ngram were void: {TOGETHER}" in void.reason


def test_a_busy_client_voids_nothing(real: Run) -> None:
    """Pieces that now and then share an arrival move the speedup by less than the rounding of a pass."""
    late = as_it_arrives(real, late_client)
    (ntp, arm), honest = arms_of(late), arms_of(real)[1]
    assert ntp.voids.void == arm.voids.void == 0
    assert arm.wall_speedup.value == pytest.approx(honest.wall_speedup.value, rel=0.05)


def test_a_clock_that_saves_more_than_the_passes_is_no_clock(real: Run) -> None:
    """An arm whose passes seem to take 0.4 of NTP's: no piece shares an arrival, and it is impossible all the same."""
    quick = as_it_arrives(real, lambda sent_s: [sent_s[0] + 0.4 * (at_s - sent_s[0]) for at_s in sent_s], ("served",))
    void = judged(quick, f"wall_speedup >= 1.5 {ARM}")
    assert void.state == "void" and "of what the passes save" in void.reason
    assert judged(quick, f"request_speedup >= 1 {ARM}").value.value is not None


def test_under_a_load_whole_requests_keep_their_percentiles() -> None:
    """Requests of a closed loop, each with its own times."""
    run = load_run([{"concurrency": [2]}], prompts=24)
    held = as_it_arrives(run, by_number(3))
    (_, arm), honest = arms_of(held), arms_of(run)[1]
    assert arm.wall_speedup.value is None and arm.figures["first_token_p50_s"].value is None
    for name in ("request_p50_s", "request_p50_speedup", "request_speedup"):
        assert arm.figures[name].value == pytest.approx(honest.figures[name].value), name
