"""The decision of a timed regression gate: which pairs of fresh processes it still needs, and what they say.

Pure: it is handed d = log(NEW / BASE) per pair and metric and starts nothing.

    procedure = GateProcedure(metrics=(...))
    while isinstance(step := procedure.next_step(), NeedPairs):
        procedure = procedure.fed(run_pairs(step.pairs))     # {key: [d, ...]} for step.keys
    step.judgements
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from harness.gate_metric import TimedMetric
from harness.judgement import Judgement

Stage = Literal["first", "re-run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePlan:
    """How many pairs are looked at, and when. Fixed before the first pair is seen.

    ``looks`` numbers of pairs at which the data are judged, growing; the last is the cap. ``shares`` how alpha is spent over
    them. ``rerun_pairs`` pairs of the re-run of a suspected metric.
    """

    looks: tuple[int, ...] = (6, 10)
    shares: tuple[float, ...] = (0.1, 0.9)
    rerun_pairs: int = 10
    alpha: float = 0.05


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
    """A timed gate as a value: its metrics, its plan and the pairs it has seen.

    Raises:
        UserError: no metric, more than five, or two under one key.
    """

    metrics: tuple[TimedMetric, ...]
    plan: GatePlan = field(default_factory=GatePlan)
    first: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    rerun: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def next_step(self) -> NeedPairs | Done:
        """What the runner is to do next. The same value gives the same answer."""
        raise NotImplementedError

    def fed(self, pairs: Mapping[str, Sequence[float]]) -> GateProcedure:
        """The procedure with what ``next_step`` asked for; other metrics of the same processes are left out.

        Raises:
            ValueError: nothing is asked for, or a metric asked for has not exactly the number of pairs asked for.
        """
        raise NotImplementedError


def judge_pairs(metrics: Sequence[TimedMetric], pairs: Mapping[str, Sequence[float]]) -> tuple[Judgement, ...]:
    """Judge pairs that are all there is (two stored runs): one look, and no re-run can confirm a suspicion.

    So a metric fails only at one-sided alpha 0.01 (Holm); suspected at 0.05 but not at 0.01 is inconclusive.
    """
    raise NotImplementedError
