"""The pairs of two revisions as they are measured: log ratios of times for the gate, and the counts of every pair."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from statistics import fmean

from harness.progress import Progress
from harness.record.schema import Run
from harness.regression.comparability import refuse_unlike, shared_prompts
from harness.regression.counted import counted
from harness.regression.gate.counts import CountedPair, judge_counted_pairs
from harness.regression.gate.decision import PairStage
from harness.regression.gate.revisions import Revisions
from harness.regression.metrics import CellMetric
from harness.regression.timed import log_ratios, processes_of

MOST_VOID_PAIRS = 3
"""Most pairs taken again because the machine's state left a metric without a time; later ones go to the gate as void."""


class CountChangedError(Exception):
    """A counted figure differs in a pair: the gate has failed, and measuring stops."""


class Pairs:
    """Yields the pairs of both stages in order; pairs without a time are taken again in their own place.

    ``base`` and ``new``: the first pair. ``counting``: keep the counts of every pair taken, those without times included.
    """

    def __init__(self, revisions: Revisions, allow: Collection[str], progress: Progress, counting: bool) -> None:
        self._revisions, self._allow, self._progress, self._counting = revisions, allow, progress, counting
        self._taken: dict[PairStage, int] = {"pair": 0, "rerun": 0}
        self._counted: dict[tuple[str, int], CountedPair] = {}
        progress.start(revisions.missing("pair", range(1, 2)))
        self.base, self.new = revisions.pair("pair", 1)

    @property
    def counted(self) -> tuple[CountedPair, ...]:
        """Every pair whose counts were seen."""
        return tuple(self._counted.values())

    def take(self, stage: PairStage, count: int, metrics: Sequence[CellMetric], why: str) -> dict[str, list[float]]:
        """d = log(NEW / BASE) of the next ``count`` pairs, by metric key; NaN where a metric has no time in a pair.

        Raises:
            UserError: a pair was measured under other circumstances than the first.
            CountChangedError: its counts differ.
        """
        first = self._taken[stage] + 1
        self._progress.note(why)
        self._progress.start(self._revisions.missing(stage, range(first, first + count)))
        rows = [self._pair(stage, number, metrics) for number in range(first, first + count)]
        self._taken[stage] += count
        return {metric.key: [row[metric.key] for row in rows] for metric in metrics}

    def count(self, name: str, base: Run, new: Run) -> None:
        """Keep the counts of this pair. Raises: CountChangedError."""
        left, right = shared_prompts(base, new)
        pair = CountedPair(name=name, base=counted(left), new=counted(right))
        self._counted[name, self._revisions.taken_again] = pair
        if any(judged.state == "missed" for judged in judge_counted_pairs(self.counted, ())):
            self._progress.note(f"what is counted differs in {name}: the gate has failed")
            raise CountChangedError

    def _pair(self, stage: PairStage, number: int, metrics: Sequence[CellMetric]) -> dict[str, float]:
        """d of one pair by metric key; NaN where it is absent after repeats."""
        name = f"{stage} {number}"
        while True:
            base, new = self._revisions.pair(stage, number)
            refuse_unlike(self.base, [base, new], self._allow, ("the first pair", f"BASE of {name}", f"NEW of {name}"))
            if self._counting:
                self.count(name, base, new)
            of_base, of_new = processes_of(base), processes_of(new)
            ratios = {metric.key: log_ratios(metric, of_base, of_new) for metric in metrics}
            missing = [f"{key}: {reason}" for key, reason in ratios.items() if isinstance(reason, str)]
            if not missing or self._revisions.taken_again >= MOST_VOID_PAIRS:
                # the mean over processes where the scenario itself has several
                return {key: math.nan if isinstance(values, str) else fmean(values) for key, values in ratios.items()}
            self._progress.note(f"{name} is taken again: {'; '.join(missing)}")
            self._revisions.take_again(stage, number)
