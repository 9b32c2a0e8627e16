"""The timed gate: what it asks for, when it decides, and what changes nothing about its answer."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from harness.analysis.judge.judgement import Judgement, Judgements, State, to_json
from harness.errors import UserError
from harness.regression.gate.decision import GatePlan, NeedPairs, plan_of
from harness.regression.gate.procedure import GateProcedure, judge_pairs
from harness.regression.metrics import TimedMetric, log_ratio

SCATTER = (0.010, -0.012, 0.004, -0.003, 0.007, -0.006, 0.011, -0.009, 0.002, -0.004)
"""Ten differences with mean 0 and standard deviation 0.0081: the noise of the tests below."""
PLAN = GatePlan(looks=(6, 10), rerun_pairs=10)
differences = st.lists(st.floats(-0.1, 0.1), min_size=10, max_size=10)


class NamedMetric(TimedMetric):
    """Its key is its arm alone."""

    @property
    def key(self) -> str:
        return self.arm


def metric(key: str = "t", better: Literal["lower", "higher"] = "lower", margin: float = 0.02) -> TimedMetric:
    """A metric of some cell."""
    name = "decode_s_per_token" if better == "lower" else "wall_speedup"
    return NamedMetric(name=name, part="p", batch_size=1, arm=key, label=f"SBD, {key}", margin=margin)


def shifted(by: float, scatter: Sequence[float] = SCATTER) -> list[float]:
    """The scatter about another mean."""
    return [by + one for one in scatter]


def drive(
    metrics: Sequence[TimedMetric], first: Mapping[str, Sequence[float]], rerun: Mapping[str, Sequence[float]], plan: GatePlan
) -> tuple[tuple[Judgement, ...], list[NeedPairs]]:
    """A gate fed from these, with the steps that it asked for."""
    procedure, steps, seen = GateProcedure(metrics=tuple(metrics), plan=plan), list[NeedPairs](), 0
    while isinstance(step := procedure.next_step(), NeedPairs):
        steps.append(step)
        source, start = (first, seen) if step.stage == "pair" else (rerun, 0)
        seen += step.pairs
        procedure = procedure.fed({key: source[key][start : start + step.pairs] for key in source})
    return step, steps


def state_of(first: Sequence[float], rerun: Sequence[float] = SCATTER, one: TimedMetric | None = None) -> State:
    """The answer for one metric with this plan."""
    one = one or metric()
    return drive([one], {one.key: first}, {one.key: rerun}, PLAN)[0][0].state


@pytest.mark.parametrize(
    ("first", "rerun", "state", "asked", "words"),
    [
        (0.0, 0.0, "met", [6], "it is within the margin"),
        (0.2, 0.2, "missed", [6, 10], "confirmed"),
        (0.03, 0.04, "missed", [6, 4, 10], "confirmed"),
        (0.03, 0.02, "inconclusive", [6, 4, 10], "suspected, not confirmed"),
        (0.03, 0.0, "met", [6, 4, 10], "not confirmed"),
        (0.02, 0.0, "inconclusive", [6, 4], "the margin lies between its bounds"),
    ],
)
def test_the_ways_through_a_gate(first: float, rerun: float, state: State, asked: list[int], words: str) -> None:
    """Clear at the first look, clear at the last, and all that a re-run can say; nothing fails without one."""
    (judgement,), steps = drive([metric()], {"t": shifted(first)}, {"t": shifted(rerun)}, PLAN)
    assert (judgement.state, [one.pairs for one in steps]) == (state, asked)
    assert words in judgement.reason
    assert (judgement.remedy is None) == (state != "inconclusive")
    assert [one.stage for one in steps[-1:]] == (["rerun"] if 10 in asked else ["pair"])


def test_what_is_shown_is_the_rerun_with_its_bounds() -> None:
    """Not the figure that raised the suspicion; bounds are the 95 % one-sided ones of scipy, as a ratio."""
    (judgement,), _ = drive([metric()], {"t": shifted(0.2)}, {"t": shifted(0.1)}, PLAN)
    low = 0.1 - scipy_stats.t.ppf(0.95, 9) * scipy_stats.sem(SCATTER)
    assert judgement.value.value == pytest.approx(math.exp(0.1)) and judgement.value.low == pytest.approx(math.exp(low))
    assert judgement.sizes == {"pairs": 6, "rerun_pairs": 10}
    assert judgement.bound.startswith("at most 1.02 × BASE (margin 2.000%")


def test_holm_over_the_metrics_decides_who_is_suspected() -> None:
    """At 10 pairs p = 0.04 is slower alone and not among five; a metric decided early is not asked for again."""
    mean = math.log(1.02) + scipy_stats.t.isf(0.04, 9) * scipy_stats.sem(SCATTER)
    plan, five = GatePlan(looks=(10,), shares=(1.0,), rerun_pairs=10), [metric(f"t{i}") for i in range(5)]
    pairs = {one.key: shifted(0.0) for one in five} | {"t0": shifted(mean)}
    assert drive(five[:1], pairs, {"t0": shifted(0.2)}, plan)[0][0].state == "missed"
    judgements, steps = drive(five, pairs, {}, plan)
    assert [one.state for one in judgements] == ["inconclusive", "met", "met", "met", "met"] and len(steps) == 1
    (one, *rest), steps = drive(five, pairs, {}, PLAN)  # the four that passed at the first look still count
    assert [step.keys for step in steps[1:]] == [("t0",)] and {other.state for other in rest} == {"met"}
    assert one.value.method == "one-sided t (slower: 0.009 after Holm, passed: 0.045)"
    late = drive(five, pairs | {"t0": shifted(0.2), "t1": shifted(0.02)}, {"t0": shifted(0.2)}, PLAN)[1]
    assert [(one.pairs, one.keys) for one in late[1:]] == [(4, ("t1",)), (10, ("t0",))]


@given(differences, differences)
def test_swapping_base_and_new_mirrors(first: list[float], rerun: list[float]) -> None:
    """-d of a metric where higher is better gets the answer that d gets where lower is, with ratio and bounds inverted."""
    one, two = metric(better="lower"), metric(better="higher")
    (slower,), _ = drive([one], {"t": first}, {"t": rerun}, PLAN)
    (mirrored,), _ = drive([two], {"t": [-d for d in first]}, {"t": [-d for d in rerun]}, PLAN)
    assert slower.state == mirrored.state
    pairs = [(slower.value.value, mirrored.value.value), (slower.value.low, mirrored.value.high)]
    for a, b in [*pairs, (slower.value.high, mirrored.value.low)]:
        assert (a is None and b is None) or (a is not None and b is not None and a * b == pytest.approx(1))


@given(st.permutations(range(4)), st.lists(differences, min_size=8, max_size=8))
def test_the_order_of_metrics_is_irrelevant(order: list[int], data: list[list[float]]) -> None:
    """Each metric gets the same judgement wherever it stands."""
    metrics = [metric(f"t{i}") for i in range(4)]
    first, rerun = ({one.key: data[4 * half + i] for i, one in enumerate(metrics)} for half in (0, 1))
    plain = drive(metrics, first, rerun, PLAN)[0]
    turned = drive([metrics[i] for i in order], first, rerun, PLAN)[0]
    assert [plain[i] for i in order] == list(turned)


@given(differences, st.floats(0, 0.2), st.booleans())
def test_slower_is_never_judged_better(scatter: list[float], shift: float, with_rerun: bool) -> None:
    """A constant log shift moves the answer one way: met, inconclusive, missed."""
    rank: dict[State, int] = {"met": 0, "inconclusive": 1, "missed": 2}
    if with_rerun:  # one look: where looks share alpha, a shift may move the answer to an earlier look with less to go by
        plan = GatePlan(looks=(10,), shares=(1.0,), rerun_pairs=10)
        plain, slower = (drive([metric()], {"t": data}, {"t": data}, plan)[0][0] for data in (scatter, shifted(shift, scatter)))
    else:
        plain, slower = (judge_pairs([metric()], {"t": data})[0] for data in (scatter, shifted(shift, scatter)))
    assert rank[plain.state] <= rank[slower.state]


@pytest.mark.parametrize(
    ("pairs", "state", "words"),
    [
        ([], "void", "no pair of processes"),
        ([0.5], "inconclusive", "one pair has no spread"),
        ([0.1] * 10, "missed", "all 10 pairs differ by the same amount"),
        ([0.1] * 5, "inconclusive", "all 5 pairs differ by the same amount"),
        ([0.0] * 5, "met", "all 5 pairs differ by the same amount"),
        ([math.log(1.02)] * 10, "inconclusive", "all 10 pairs differ by the same amount"),
        ([0.1, math.nan, 0.1], "void", "no finite ratio in pair 2 of 3"),
        ([log_ratio(0.0, 1.0), log_ratio(1.0, math.inf)], "void", "no finite ratio in pair 1, 2 of 2"),
        ([0.0, 600.0], "inconclusive", "bounds 0 and none"),
    ],
)
def test_degenerate_pairs_have_an_answer(pairs: list[float], state: State, words: str) -> None:
    """Never NaN, never a failure without evidence; and JSON that any reader takes."""
    (one,) = judge_pairs([metric()], {"t": pairs})
    assert one.state == state and words in one.reason
    assert (one.remedy is None) == (state in {"met", "missed"})
    json.dumps(to_json(Judgements(title="t", runs=(), judgements=(one,))), allow_nan=False)


def test_a_pair_without_figure_voids_its_metric_alone() -> None:
    """In the first look, in a later one and in the re-run; the others get their answers."""
    bad = [0.0] * 5 + [math.nan]
    both = [metric("a"), metric("b")]
    judgements, _ = drive(both, {"a": bad, "b": SCATTER}, {}, PLAN)
    assert [one.state for one in judgements] == ["void", "met"]
    late = shifted(0.02)[:7] + [math.nan] * 3
    assert state_of(late) == "void"
    assert state_of(shifted(0.2), rerun=[math.nan] * 10) == "void"


def test_without_a_rerun_more_evidence_is_asked_for() -> None:
    """p of 0.04 and of 0.02 are suspected, p of 0.009 fails: the stored gate's own level, hand-made from scipy's t."""
    for p, state in ((0.06, "inconclusive"), (0.02, "inconclusive"), (0.009, "missed")):
        mean = math.log(1.02) + scipy_stats.t.isf(p, 9) * scipy_stats.sem(SCATTER)
        (one,) = judge_pairs([metric()], {"t": shifted(mean)})
        assert one.state == state
        assert ("suspected" in one.reason) == (p == 0.02)


def test_what_no_gate_takes_is_refused() -> None:
    """Six metrics, none, two under one key, margins and plans that mean nothing: each says what is allowed."""
    for metrics, words in (([metric(f"t{i}") for i in range(6)], "1 to 5"), ([], "none"), ([metric(), metric()], "twice")):
        with pytest.raises(UserError, match=words):
            GateProcedure(metrics=tuple(metrics))
        with pytest.raises(UserError, match=words):
            judge_pairs(metrics, {})
    for looks, shares in (((), ()), ((1,), (1.0,)), ((6, 6), (0.5, 0.5)), ((6, 10), (1.0,)), ((6, 10), (0.6, 0.6))):
        with pytest.raises(UserError, match="give"):
            GatePlan(looks=looks, shares=shares)
    with pytest.raises(UserError, match="margin"):
        metric(margin=math.nan)


def test_only_what_was_asked_for_is_taken() -> None:
    """Too few or too many pairs, or pairs when all is answered, are a caller's mistake; feeding changes no earlier value."""
    empty = GateProcedure(metrics=(metric(),), plan=PLAN)
    for pairs in ({"t": [0.0] * 5}, {"t": [0.0] * 7}, {}):
        with pytest.raises(ValueError, match="asked for 6"):
            empty.fed(pairs)
    done = empty.fed({"t": SCATTER[:6], "other": [1.0]})
    assert not isinstance(done.next_step(), NeedPairs) and isinstance(empty.next_step(), NeedPairs)
    with pytest.raises(ValueError, match="no more pairs"):
        done.fed({"t": [0.0]})


def test_a_plan_of_any_size() -> None:
    """The cap is what was asked for; twelve pairs give the default, and a first look is at whole blocks of four."""
    assert plan_of(12) == GatePlan()
    assert [plan_of(n).looks for n in (2, 6, 7, 10, 20)] == [(2,), (6,), (4, 7), (8, 10), (12, 20)]
    with pytest.raises(UserError, match="at least 2"):
        plan_of(1)


def simulated(slowdown: float, noise: float, trials: int = 400, bias: float = 0.0) -> float:
    """Share of gates over three metrics that fail, all slower by ``slowdown``; ``bias`` as a faulty estimator would add."""
    generator, failed, metrics = np.random.default_rng(11), 0, [metric(f"t{i}") for i in range(3)]
    for _ in range(trials):
        drawn = generator.normal(math.log1p(slowdown) + bias, noise * math.sqrt(2), (2, 3, 10))
        first, rerun = ({one.key: half[i].tolist() for i, one in enumerate(metrics)} for half in drawn)
        failed += any(one.state == "missed" for one in drive(metrics, first, rerun, PLAN)[0])
    return failed / trials


def test_false_alarms_are_rare_and_a_bias_would_show() -> None:
    """At the margin itself at most 1 % of 400 gates fail at any noise; one process sd added to every d would fail half."""
    assert simulated(0.02, 0.01) <= 0.01
    assert simulated(0.0, 0.05) <= 0.01
    assert simulated(0.05, 0.01) >= 0.95
    assert simulated(0.02, 0.01, bias=0.01) > 0.2


def test_a_look_at_the_data_costs_alpha() -> None:
    """What the plan spends over its looks is alpha in all: the level of each look is its share."""
    one = metric()
    (judgement,), _ = drive([one], {"t": shifted(0.02)}, {}, PLAN)
    assert judgement.value.method == "one-sided t (slower: 0.045 after Holm, passed: 0.045)"
    (early,), _ = drive([one], {"t": shifted(0.0)}, {}, replace(PLAN, alpha=0.1))
    assert early.value.method == "one-sided t (slower: 0.01 after Holm, passed: 0.01)" and early.sizes == {"pairs": 6}
