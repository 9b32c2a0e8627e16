"""The decision of a timed regression gate: which pairs of fresh processes it still needs, and what they say.

Pure: it is handed d = log(NEW / BASE) per pair and metric (``gate_metric.log_ratio``) and starts nothing.

    procedure = GateProcedure(metrics=(...))
    while isinstance(step := procedure.next_step(), NeedPairs):
        procedure = procedure.fed(run_pairs(step.pairs))     # {key: [d, ...]} for step.keys
    step.judgements

First the looks of the plan, with Holm over all metrics. What is slower there is only suspected: it is measured once more,
alone, at alpha, and fails if the new pairs by themselves say so too. So a slowdown equal to the margin fails with probability
alpha² per metric about, and a metric that failed was found slower twice.

What it cannot see, by design: a slowdown within the margin, ever; and one just beyond it, mostly. Nor one that both revisions
share, or that shows in no metric given. benchmarks/gate_power gives the share found for each size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from harness.analysis.judgement import Judgement
from harness.regression.gate_answer import answer, answer_without_rerun
from harness.regression.gate_decision import ALPHA, GatePlan, judge_look, judge_looks
from harness.regression.gate_metrics import TimedMetric, check_timed
from harness.regression.pair_order import PairOrder, PairStage

Stage = Literal["first", "re-run"]
ALPHA_WITHOUT_RERUN = 0.01
"""Stands in for a re-run that cannot be had: the most that a slowdown equal to the margin may fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedPairs:
    """Measure ``pairs`` more pairs of fresh processes and hand in d for each of ``keys``; ``stage`` and ``why`` for people."""

    pairs: int
    keys: tuple[str, ...]
    stage: Stage
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Every metric has its answer, in the order in which the metrics were given."""

    judgements: tuple[Judgement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateProcedure:
    """A timed gate as a value: its metrics, its plan and the d that it has seen per key, in the order of the pairs.

    ``order`` says which side ran first in which pair; None where that is not known, then the place of a pair is no term.

    Raises:
        UserError: no metric, more than five, or two under one key.
    """

    metrics: tuple[TimedMetric, ...]
    plan: GatePlan = field(default_factory=GatePlan)
    order: PairOrder | None = None
    first: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    rerun: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_timed(self.metrics)

    def next_step(self) -> NeedPairs | Done:
        """What the runner is to do next. The same value gives the same answer."""
        found, look = judge_looks(self.metrics, self.first, self.plan, self._signs("pair", self.plan.looks[-1]))
        if look is not None:
            keys = tuple(one.key for one in self.metrics if one.key not in found or found[one.key].outcome == "open")
            have = min(len(self.first.get(key, ())) for key in keys)
            return NeedPairs(pairs=look - have, keys=keys, stage="first", why=f"undecided before the look at {look} pairs")
        suspected = [one for one in self.metrics if found[one.key].outcome == "slower"]
        keys = tuple(one.key for one in suspected if len(self.rerun.get(one.key, ())) < self.plan.rerun_pairs)
        if keys:
            why = "found slower: a regression is reported only if a re-run agrees"
            return NeedPairs(pairs=self.plan.rerun_pairs, keys=keys, stage="re-run", why=why)
        signs = self._signs("rerun", self.plan.rerun_pairs)
        again = {one.key: judge_look([one], self.rerun, self.plan.alpha, signs=signs)[one.key] for one in suspected}
        return Done(judgements=tuple(answer(one, found[one.key], again.get(one.key)) for one in self.metrics))

    def _signs(self, stage: PairStage, count: int) -> tuple[int, ...]:
        return () if self.order is None else self.order.signs(stage, count)

    def fed(self, pairs: Mapping[str, Sequence[float]]) -> GateProcedure:
        """The procedure with what ``next_step`` asked for; other metrics of the same processes are left out.

        Raises:
            ValueError: nothing is asked for, or a metric asked for has not exactly the number of pairs asked for.
        """
        step = self.next_step()
        if isinstance(step, Done):
            raise ValueError("the gate has its answers and asks for no more pairs")
        for key in step.keys:
            given = len(pairs.get(key, ()))
            if given != step.pairs:
                raise ValueError(f"{given} pairs of {key}; the gate asked for {step.pairs} of each of {step.keys}")
        seen = self.first if step.stage == "first" else self.rerun
        longer = dict(seen) | {key: (*seen.get(key, ()), *pairs[key]) for key in step.keys}
        return replace(self, first=longer) if step.stage == "first" else replace(self, rerun=longer)


def judge_pairs(metrics: Sequence[TimedMetric], pairs: Mapping[str, Sequence[float]]) -> tuple[Judgement, ...]:
    """Judge pairs that are all there is (two stored runs): one look, and no re-run can confirm a suspicion.

    So a metric fails only at one-sided alpha 0.01 (Holm); suspected at 0.05 but not at 0.01 is inconclusive. Metrics may
    have different numbers of pairs; a metric without any is void.

    Raises:
        UserError: no metric, more than five, or two under one key.
    """
    check_timed(metrics)
    seen = {one.key: pairs.get(one.key, ()) for one in metrics}
    usual, strict = judge_look(metrics, seen, ALPHA), judge_look(metrics, seen, ALPHA_WITHOUT_RERUN)
    return tuple(answer_without_rerun(one, usual[one.key], strict[one.key]) for one in metrics)
