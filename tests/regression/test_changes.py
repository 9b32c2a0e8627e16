"""Two runs of one scenario: what a change is called, after how many processes, and why it is unclear."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from scipy import stats as scipy_stats

from harness.record.schema import Run
from harness.regression.changes import Change, compare_runs, judge_changes
from harness.stats.one_sided import holm
from harness.stats.quantity import Quantity, absent, exact
from tests.helpers.synthetic_run import ARMS, NTP, Arm, Part, build, with_samples
from tests.helpers.two_runs import in_processes, slower, two_arms

ARM = "sbd-k16-g0.1-t0-entropy_bounded"
CHANGE = Change(
    key="k",
    metric="decode_s_per_token",
    subject="s",
    cell={},
    kind="timed",
    unit="s/token",
    better="lower",
    base=1.0,
    new=1.1,
    ratio=Quantity(value=1.1, low=1.05, high=1.15),
    p=0.001,
    processes=(3, 3),
)
FALLEN = Quantity(value=0.9, low=0.85, high=0.95)
COUNT = replace(CHANGE, kind="deterministic", metric="passes", better="equal", base=4, new=4, ratio=exact(1.0), p=None)
MEMORY = replace(COUNT, metric="peak_memory_bytes", better="lower", base=100)
ACCURACY = replace(
    COUNT, metric="accuracy", better="higher", base=0.9, new=0.8, ratio=exact(8 / 9), difference=Quantity(value=-0.1), p=0.001
)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (CHANGE, "worse"),
        (replace(CHANGE, better="higher"), "better"),
        (replace(CHANGE, ratio=FALLEN), "better"),
        (replace(CHANGE, better="higher", ratio=FALLEN), "worse"),
        (replace(CHANGE, p=0.2, ratio=Quantity(value=1.02, low=0.99, high=1.05)), "unclear"),
        (replace(CHANGE, p=0.2, ratio=Quantity(value=1.002, low=0.99, high=1.014)), "same"),
        (replace(CHANGE, p=0.04), "worse"),
        (replace(CHANGE, p=None, ratio=Quantity(value=1.02, reason="one prompt")), "no_interval"),
        (replace(CHANGE, p=None, processes=(2, 3)), "unclear"),
        (replace(CHANGE, p=None, processes=(9, 1)), "unclear"),
        (replace(CHANGE, p=None, processes=(1, 1), ratio=Quantity(value=1.02, reason="one prompt")), "unclear"),
        (replace(CHANGE, base=None, p=None, ratio=absent("void")), "unknown"),
        (COUNT, "same"),
        (replace(COUNT, new=5, ratio=exact(1.25)), "changed"),
        (replace(COUNT, metric="output_sha256", base="a", new="b", ratio=absent("text")), "changed"),
        (replace(MEMORY, new=105, ratio=exact(1.05)), "same"),
        (replace(MEMORY, new=150, ratio=exact(1.5)), "worse"),
        (replace(MEMORY, base=150, new=100, ratio=exact(0.667)), "better"),
        (ACCURACY, "worse"),
        (replace(ACCURACY, difference=Quantity(value=0.1)), "better"),
        (replace(ACCURACY, p=0.06), "unclear"),
        (replace(ACCURACY, p=None), "same"),
    ],
)
def test_what_a_change_is_called(change: Change, expected: str) -> None:
    """The way a metric is better decides the word; fewer than three processes of either run are unclear, whatever was seen."""
    assert judge_changes([change])[0].outcome == expected


@pytest.mark.parametrize("comparisons", [1, 4])
def test_figures_are_judged_together(comparisons: int) -> None:
    """Those that Holm rejects, of a page's share of 5 %; counts are not among them; who fails says so and what to do."""
    p_values = [0.001, 0.012, 0.02, 0.04, 0.5]
    changes = [replace(CHANGE, key=str(p), p=p) for p in p_values]
    found = judge_changes([COUNT, *changes, COUNT], comparisons)[1:-1]
    rejected = [test.rejected for test in holm(p_values, 0.05 / comparisons)]
    assert [one.outcome == "worse" for one in found] == rejected and any(rejected) and not all(rejected)
    open_ = found[3]
    assert open_.outcome == "unclear" and "one of 5 figures" in str(open_.reason) and "more processes" in str(open_.remedy)


def by_key(base: Run, new: Run) -> dict[str, Change]:
    """The judged changes of two runs."""
    return {one.key: one for one in compare_runs(base, new).changes}


@pytest.mark.parametrize(("of_base", "of_new"), [(1, 1), (2, 2), (1, 5), (5, 2)])
def test_below_three_processes_nothing_is_said_of_times(of_base: int, of_new: int) -> None:
    """Three times as slow, and unclear: with the counts of processes and what to do. Passes are compared all the same."""
    luck = (1.0, 1.01, 0.99, 1.02, 0.98)
    run = two_arms(jitter=0.05, prompts=8)
    more = two_arms(arms=(NTP, Arm(label="SBD k=16 γ=0.1", gamma=0.1, passes_per_block=8)), jitter=0.05, prompts=8)
    found = by_key(in_processes(run, *luck[:of_base]), slower(in_processes(more, *luck[:of_new]), 3))
    timed = [one for one in found.values() if one.kind == "timed"]
    assert {one.outcome for one in timed} == {"unclear"} and len(timed) == 5
    for one in timed:
        assert one.p is None and one.processes == (of_base, of_new)
        assert f"{of_new} process" in str(one.reason) and "processes: 3" in str(one.remedy)
    assert found[f"passes:reference/word_problems/b1/{ARM}"].outcome == "changed"


def test_all_processes_of_both_runs_count() -> None:
    """Three beside five: medians and ratio are over all of them."""
    luck = ((1.0, 1.02, 0.99), (1.05, 1.03, 1.01, 1.06, 1.04))
    run = two_arms(jitter=0.05, prompts=8)
    one = by_key(in_processes(run, *luck[0]), in_processes(run, *luck[1]))["decode_s_per_token:reference/b1/ntp"]
    logs = [[math.log(factor) for factor in side] for side in luck]
    assert one.processes == (3, 5)
    assert one.ratio.value == pytest.approx(math.exp(sum(logs[1]) / 5 - sum(logs[0]) / 3))
    assert one.new == pytest.approx(1.04 * one.base)


def test_parts_may_be_taken_in_different_numbers_of_processes() -> None:
    """One part in three processes, one in the first alone: each figure is judged by the processes that have it."""
    run = in_processes(build(Part(name="one", jitter=0.05), Part(name="two", jitter=0.05)), 1.0, 1.01, 0.99)
    samples = [one for one in run.samples if one.case_id.startswith("one/") or one.process == 0]
    run = with_samples(run, samples)
    found = by_key(run, slower(run, 1.5))
    one, two = found["decode_s_per_token:one/b1/ntp"], found["decode_s_per_token:two/b1/ntp"]
    assert (one.processes, one.outcome) == ((3, 3), "worse") and (two.processes, two.outcome) == ((1, 1), "unclear")


def graded(wrong: set[int], prompts: int = 40, **changes: Any) -> Run:
    """NTP always right, SBD wrong in these prompts."""
    arms = (replace(ARMS[0], wrong=frozenset()), replace(ARMS[1], wrong=frozenset(wrong), **changes))
    return build(arms=arms, prompts=prompts, jitter=0.05)


def test_accuracy_is_compared_prompt_by_prompt_in_one_process() -> None:
    """Ten prompts lost and none won is worse, nine lost and six won is not told from chance, none changed is the same."""
    key = f"accuracy:reference/b1/{ARM}"
    found = by_key(graded(set()), graded(set(range(10))))
    assert found[key].outcome == "worse" and (found[key].base, found[key].new) == (1.0, 0.75)
    difference = found[key].difference
    assert difference.value == -0.25
    assert difference.low < -0.25 < difference.high < 0
    assert found["accuracy:reference/b1/ntp"].outcome == "same"
    mixed = by_key(graded(set(range(6))), graded(set(range(6, 15))))[key]
    assert mixed.outcome == "unclear" and mixed.p == pytest.approx(scipy_stats.binomtest(6, 15).pvalue)
    assert "chance" in str(mixed.reason) and "more prompts" in str(mixed.remedy)


def test_replayed_acceptance_has_no_accuracy() -> None:
    """What it writes is not the model's answer."""
    replayed = graded({1}, replayed={"passes": 4})
    assert f"accuracy:reference/b1/{ARM}" not in by_key(replayed, replayed)
