"""What requests waited for: which of them count, percentiles against numpy, intervals by hand, and claims about them."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from harness.analysis.answer import compare, to_json
from harness.analysis.judge.verdict import verdict
from harness.analysis.results import ArmResult, Cell
from harness.analysis.tally.requests import TalliedRequest, requests_of
from harness.record.schema import PassColumns, RowResult, RowTimes, Run, Sample
from harness.regression.history.store import figures_of
from harness.regression.metrics import timed_metrics
from harness.regression.timed import numbers, processes_of
from harness.reporting.page import render
from harness.scenario.claim_text import read_claim
from harness.scenario.load import Load
from harness.scenario.metrics import METRICS, REQUEST_PERCENTILES, WAITS, names_of
from harness.stats.two_runs import SAME, over_processes
from tests.helpers.simulated_server import CLIENT_S, FAST, NTP, load_run
from tests.helpers.synthetic_run import altered

RUN = load_run()
FOUND = compare(RUN)
FEW = REQUEST_PERCENTILES[:2]


def sample_of(*rows: tuple[float, float, float], tokens: int = 5) -> Sample:
    """Of (sent, first token, last token), the latter two after the sending."""
    sample = RUN.samples[-1]
    told = [
        sample.rows[0].model_copy(
            update={"output_tokens": tokens, "times": RowTimes(sent_s=sent, first_token_s=first, last_token_s=last)}
        )
        for sent, first, last in rows
    ]
    return sample.model_copy(update={"rows": told})


def found_of(sample: Sample, load: Load | None, in_flight: int) -> tuple[TalliedRequest, ...]:
    """With one token in every first piece."""
    return requests_of(sample, load, in_flight, [1] * len(sample.rows))


def test_a_closed_loop_counts_between_its_first_and_its_last_wave() -> None:
    """Two slots, six requests of 2, 3, 4, 3, 4, 4 s: steady from 0.1 s to 9 s, where the first slot stays empty. The first two
    and the last two do not count, whichever of them is answered first.
    """
    spans = [(0.0, 2.0), (0.1, 3.1), (2.0, 6.0), (3.1, 6.1), (6.0, 9.0), (6.1, 10.1)]
    found = found_of(sample_of(*((sent, 1.0, end - sent) for sent, end in spans)), Load(concurrency=(2,)), 2)
    assert [one.counted for one in found] == [False, False, True, True, False, False]
    window = found[0].window
    assert (window.length_s, window.answered, window.came, window.left_out) == (pytest.approx(8.9), 5, 5, 4)
    assert window.waited_s == pytest.approx(2.0 * 8.9), "both slots were full all the time"
    # of the first two answers 4 tokens each lie behind their first one, spread over 1 and 2 s from 1 and 1.1 s on
    last = 5 * (9.0 - 7.1) / (10.1 - 7.1)
    assert window.tokens == pytest.approx(4 * 5 + 5 + last)


@pytest.mark.parametrize(
    ("load", "in_flight", "rows", "counted"),
    [
        (Load(concurrency=(1,)), 1, [(0, 1, 2), (2, 1, 2), (4, 1, 2)], [False, True, False]),
        (
            Load(requests_per_s=1.0),
            4,
            [(0.0, 1.0, 2.0), (9.9, 1.0, 2.0), (10.0, 1.0, 2.0), (50.0, 1.0, 50.0)],
            [False] * 2 + [True] * 2,
        ),
        (Load(requests_per_s=1.0), 3, [(0.0, 1.0, 2.0), (2.9, 1.0, 2.0), (12.0, 1.0, 2.0)], [False, False, True]),
        (None, 2, [(0, 1, 3), (0, 2, 4)], [True, True]),
    ],
)
def test_which_requests_count(load: Load | None, in_flight: int, rows: list[Any], counted: list[bool]) -> None:
    """One at a time loses the first, which a cold server answered, and the last. Of arrivals who came in the first five median
    times of 2 s is left out, or in the first quarter where that is shorter, and the last one is answered long after. At once
    there is no load to be steady.
    """
    found = found_of(sample_of(*rows), load, in_flight)
    assert [one.counted for one in found] == counted and found[0].good is None
    window = found[0].window
    if in_flight == 4:
        assert (window.length_s, window.came, window.answered) == (40.0, 2, 2) and window.growth == pytest.approx(
            math.atanh(-0.999)
        )
    if in_flight == 3:
        assert window.length_s == 9.0 and window.short, "10 s of lead-in would leave 2 s of 12"
    if load is None:
        assert window.length_s == 4.0 and [one.time_per_token_s for one in found] == [0.5, 0.5]


def test_good_is_within_all_limits() -> None:
    """First token in 1 s and 0.5 s a token."""
    load = Load(requests_per_s=1.0, first_token_s=1.0, time_per_token_s=0.5)
    found = found_of(sample_of((0.0, 1.0, 3.0), (1.0, 1.1, 3.1), (2.0, 1.0, 3.1)), load, 3)
    assert [one.good for one in found] == [True, False, False]


def test_rows_without_times_and_void_samples_have_no_requests() -> None:
    """An older record; a void time."""
    sample = sample_of((0.0, 1.0, 2.0))
    assert found_of(sample.model_copy(update={"decode_s": None}), None, 1) == ()
    older = sample.model_copy(update={"rows": [sample.rows[0].model_copy(update={"times": None})]})
    assert found_of(older, None, 1) == ()


@given(st.lists(st.floats(0.01, 10), min_size=2, max_size=40), st.integers(1, 4))
@example([1.0, 1.0, 2.0, 2.0, 2.0], 2)
def test_a_closed_loop_leaves_out_its_first_and_last_wave_and_no_more(lengths: list[float], slots: int) -> None:
    """Whatever the lengths: the first N and the last N, so that every arm counts the same; all slots are full all the time."""
    free, rows = [0.0] * slots, []
    for number, length in enumerate(lengths):
        at = free.index(min(free))
        begun = free[at] + 1e-3 * (number >= slots)
        rows.append((begun, length / 2, length))
        free[at] = begun + length
    last = max(begun for begun, *_ in rows)
    if len(lengths) < 2 * slots or sum(begun <= last < begun + length for begun, _, length in rows) < slots:
        return  # too few, or several ended together and nobody took their slots
    found = found_of(sample_of(*rows), Load(concurrency=(slots,)), slots)
    assert not any(one.counted for one in found[:slots])
    assert [one.counted for one in found] == [slots <= i < len(lengths) - slots for i in range(len(lengths))]
    window = found[0].window
    assert window.length_s < 0.1 or window.waited_s / window.length_s == pytest.approx(slots, rel=0.2)


def cell_of(words: str) -> Cell:
    """Of the simulated run."""
    return next(cell for cell in FOUND.cells if cell.load == words and cell.is_summary)


def arm_of(words: str, label: str = "server fast") -> ArmResult:
    """Of one of its cells."""
    return next(arm for arm in cell_of(words).arms if arm.label == label)


def counted_rows(run: Run, words: str, method: str, process: int) -> list[tuple[RowResult, Sample]]:
    """The rows of one process that count, by the rule of arrivals: an independent reading of the record."""
    cases = [case for case in run.header.cases if case.batch_size == cell_of(words).batch_size and case.arm.method == method]
    samples = [one for one in run.samples if one.case_id == cases[0].case_id and one.process == process and not one.warmup]
    kept = []
    for sample in samples:
        sent = [row.times.sent_s for row in sample.rows if row.times]
        median_s = statistics.median(row.times.last_token_s for row in sample.rows if row.times)
        begin_s = min(5 * median_s, max(sent) / 3)
        kept += [(row, sample) for row in sample.rows if row.times and row.times.sent_s >= begin_s]
    return kept


def median_unbiased(ordered: list[float], share: float) -> float:
    """Hyndman and Fan's definition 8, from its formula: the place (n + 1/3) p + 1/3, linear between two values."""
    place = (len(ordered) + 1 / 3) * share + 1 / 3
    below = int(place)
    return ordered[below - 1] + (place - below) * (ordered[min(below, len(ordered) - 1)] - ordered[below - 1])


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("percent", FEW)
def test_percentiles_are_median_unbiased_over_the_requests_of_each_process(wait: str, percent: int) -> None:
    """Pooled in a process; the value is their geometric mean, the interval Student's over three logarithms, or wider."""
    by_process, counted = [], 0
    for process in range(3):
        values: list[float] = []
        for row, _ in counted_rows(RUN, "10 requests/s", "served", process):
            times, counted = row.times, counted + 1
            values += {
                "first_token": [times.first_token_s],
                "request": [times.last_token_s],
                "inter_token": times.gaps_s,
                "time_per_token": [(times.last_token_s - times.first_token_s) / (row.output_tokens - 1)],
            }[wait]
        by_process.append(median_unbiased(sorted(values), percent / 100))
    figure = arm_of("10 requests/s").figures[f"{wait}_p{percent}_s"]
    logs = np.log(by_process)
    assert figure.value == pytest.approx(math.exp(logs.mean()), rel=1e-9)
    ends = stats.t.interval(0.95, 2, loc=logs.mean(), scale=stats.sem(logs))
    if percent == 95 and wait != "inter_token":
        assert figure.low is None and "requests that count in a process; its interval takes 100" in (figure.reason or "")
        return
    within = (np.exp(ends[0]) * (1 + 1e-9), np.exp(ends[1]) * (1 - 1e-9))
    assert figure.low is not None and figure.high is not None and figure.low <= within[0] and figure.high >= within[1]
    assert figure.processes == 3 and figure.n == counted


def test_the_simulated_server_is_found_again() -> None:
    """With n in flight a pass takes what was put in: time per token, throughput, speedup and its price by in-flight rows."""
    for n in (1, 2, 4):
        arm, ntp = arm_of(f"{n} in flight"), arm_of(f"{n} in flight", "NTP")
        slower = math.exp(np.log([1, 1.005, 1.02]).mean())
        assert arm.figures["time_per_token_p50_s"].value == pytest.approx(FAST.pass_s(n) / 2 * slower, rel=1e-4)
        assert arm.figures["in_flight"].value == pytest.approx(n, rel=0.02)
        beside = math.exp(np.log([1, 1.01, 1.02]).mean())
        speed = NTP.pass_s(n) * beside / (FAST.pass_s(n) / 2 * slower)
        assert arm.wall_speedup.value == pytest.approx(speed, rel=1e-4) and arm.wall_speedup.processes == 3
        assert arm.wall_speedup.low is not None, "over requests, crossed with processes"
        assert ntp.requests.left_out == 3 * 2 * n, "the first and the last of each process"
        passes = 1 + 12 / 2  # of a whole answer: its first token, then two tokens a pass
        rate = 13 * n / (passes * FAST.pass_s(n) * slower)
        assert arm.figures["throughput_tokens_per_s"].value == pytest.approx(rate, rel=0.05)


def test_too_few_requests_are_told_not_guessed() -> None:
    """38 requests of a process have no 99th percentile; NTP is not compared with itself."""
    arm = arm_of("2 in flight")
    assert arm.figures["request_p99_s"].value is None
    assert arm.figures["request_p99_s"].reason == "36 requests that count in a process; percentile 99 takes 100"
    assert arm.figures["inter_token_p95_s"].value is not None, "it has many gaps"
    assert arm_of("2 in flight", "NTP").figures["first_token_p50_speedup"].value is None


def test_a_claim_on_a_percentile_is_judged() -> None:
    """Of the named arm and load; the bound of the goodput and a ratio too."""

    def word(text: str) -> str:
        [judged] = verdict(FOUND, (read_claim(text),), RUN.header).judgements
        return judged.word

    place = "at arm='server fast', batch=1"
    assert word(f"first_token_p50_s <= 0.02 {place}") == "confirmed"
    assert word(f"first_token_p50_s <= 0.001 {place}") == "refuted"
    assert word(f"first_token_p50_s <= 0.0121 {place}") == "inconclusive"
    assert word(f"first_token_p95_s <= 0.02 {place}") == "inconclusive", "38 requests"
    assert word(f"request_p99_s <= 1 {place}") == "void"
    assert word(f"time_per_token_p50_speedup >= 1.5 {place}") == "confirmed"
    assert word("goodput_ratio >= 2 at arm='server fast', batch=40") == "refuted"
    [judged] = verdict(FOUND, (read_claim(f"first_token_p50_s <= 1 {place}"),), RUN.header).judgements
    assert judged.sizes == {"requests": 114, "processes": 3} and "95 % interval" in judged.reason


def test_a_server_that_tells_no_passes_has_its_times() -> None:
    """Percentiles and speedup are as with passes; of the passes nothing is said."""
    empty: dict[str, Any] = {name: [] for name, field in PassColumns.model_fields.items() if field.is_required()}
    run = altered(RUN, lambda one: {"passes": PassColumns(**empty)})
    found, told = compare(run), arm_of("4 in flight")
    untold = next(arm for cell in found.cells for arm in cell.arms if cell.load == "4 in flight" and not arm.is_ntp)
    assert untold.figures["first_token_p95_s"].value == told.figures["first_token_p95_s"].value
    assert untold.wall_speedup.value == pytest.approx(told.wall_speedup.value, rel=1e-9)
    assert untold.nfe_speedup.value is None and untold.predictions == ()
    assert "What requests waited for" in render(run, found)


def test_fewer_processes_leave_a_percentile_open() -> None:
    """Two starts have a value and no interval."""
    found = compare(load_run([{"concurrency": 1}], processes=2))
    figure = next(arm for arm in found.cells[0].arms if not arm.is_ntp).figures["first_token_p50_s"]
    assert figure.value is not None and figure.low is None and "takes 3" in figure.reason


def test_page_json_and_history_have_them() -> None:
    """The tables name loads as sections; a history follows what the table of metrics says."""
    page = render(RUN, FOUND)
    assert "What requests waited for" in page and "Requests and tokens per second" in page
    assert "synthetic, 4 in flight" in page and "synthetic, 10 requests/s" in page and "Left out" in page
    [cell] = [cell for cell in to_json(FOUND)["cells"] if cell["load"] == "4 in flight"]
    [arm] = [arm for arm in cell["arms"] if not arm["is_ntp"]]
    assert arm["figures"]["request_p50_s"]["value"] > 0 and arm["requests"]["left_out"] == 3 * 2 * 4
    followed = {one.metric for one in figures_of(FOUND)}
    assert {"first_token_p95_s", "goodput_per_s", "throughput_tokens_per_s"} <= followed
    assert all(METRICS[name].claimed for name in names_of(lambda metric: metric.of_requests))


def test_a_gate_takes_the_percentile_of_each_process() -> None:
    """One number a process, of those that have enough requests."""
    [metric] = [one for one in timed_metrics(RUN) if one.key.startswith("first_token_p95_s:served/b1/served")]
    found = numbers(metric, processes_of(RUN))
    assert found == pytest.approx([0.012 * slower - CLIENT_S for slower in (1, 1.005, 1.02)], rel=1e-3)
    assert not [one for one in timed_metrics(RUN) if one.name == "first_token_p99_s"], "no gate needs a hundred requests"


def test_a_goodput_of_0_has_an_interval_of_its_own() -> None:
    """No logarithm; it does not reach below 0."""
    found = over_processes([0.0, 1.0, 2.0], 10)
    assert found.value == 1.0 and found.low == 0.0 and found.high == pytest.approx(1 + stats.t.ppf(0.975, 2) / math.sqrt(3))
    assert over_processes([], 0).value is None and over_processes([2.0] * 3, 10).reason == SAME
