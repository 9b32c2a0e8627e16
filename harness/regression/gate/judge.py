"""Gates two stored runs, or two revisions by running them in pairs.

Counted figures are judged on every pair, and a change fails at once. Timed figures of revisions take as many pairs as the gate
asks for, and new pairs confirm a suspicion. Those of stored runs have their processes as pairs, the first with the first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field, replace
from functools import partial

from harness.analysis.judge.judgement import Judgement, Judgements, to_json
from harness.frozen import frozen
from harness.progress import Progress
from harness.record.schema import Run, RunHeader
from harness.regression.comparability import refuse_unlike, shared_prompts
from harness.regression.gate.counts import judge_counted, judge_counted_pairs
from harness.regression.gate.noise import NoiseFloor, margin
from harness.regression.gate.procedure import GatePlan, NeedPairs, PairOrder, judge_in_pairs, judge_pairs
from harness.regression.gate.revisions import CountChangedError, Pairs, Revisions
from harness.regression.metrics import MARGIN, CellMetric, Moved, TimedMetric, primary_metrics, speedup_reasons
from harness.regression.timed import Process, log_ratios, processes_of
from harness.stats.quantity import FEWEST_PROCESSES, absent

Floors = Callable[[RunHeader], Mapping[str, NoiseFloor]]
"""Known noise floors of the machine and the work of a run, by metric key."""
Answers = tuple[Judgement, ...]
TIME_ALONE = "imported: judged by times alone, because its files tell neither passes nor answers"
ON_A_QUIET_MACHINE = "see `sbd compare`; take the run again on a quiet machine"
IN_TURN = "measure both revisions in turn: sbd gate --base-cmd ... --new-cmd ...; or take both runs again with `processes: 3`"


@frozen
class GateOptions:
    """What the user asks of a gate besides the two sides."""

    metrics: Sequence[str] = ()
    deterministic_only: bool = False
    allow: Collection[str] = ()
    least_margin: float = MARGIN
    plan: GatePlan = field(default_factory=GatePlan)


def gate_runs(base: Run, new: Run, names: tuple[str, ...], wish: GateOptions, floors: Floors) -> Judgements:
    """The answers from two stored runs; with ``deterministic_only`` their hardware may differ.

    Raises:
        UserError: the runs are not alike.
    """
    allow = [*wish.allow, "hardware"] if wish.deterministic_only else wish.allow
    allowed = refuse_unlike(base, [new], allow, names)
    base, new = shared_prompts(base, new)
    timed: Answers = ()
    if not wish.deterministic_only:
        of_base, of_new = processes_of(base), processes_of(new)
        timed = judge_timed(of_base, of_new, timed_metrics_of(base, wish, floors, min(len(of_base), len(of_new))))
    alone = f" ({TIME_ALONE})" if base.header.imported or new.header.imported else ""
    title = f"gate: {base.header.scenario_name}{alone}"
    return Judgements(title=title, runs=names, judgements=with_reasons((*timed, *judge_counted(base, new, allowed))))


def gate_revisions(revisions: Revisions, wish: GateOptions, floors: Floors, progress: Progress) -> Judgements:
    """Run pairs until every metric has its answer, which is written to the work folder too.

    Raises:
        UserError: the sides are not alike. ProcessEndedError: a command failed.
    """
    pairs = Pairs(revisions, wish.allow, progress, counting=True)
    allowed = refuse_unlike(pairs.base, [pairs.new], wish.allow, ("--base-cmd", "--new-cmd"))
    timed: Answers = ()
    with suppress(CountChangedError):
        pairs.count("pair 1", pairs.base, pairs.new)
        if not wish.deterministic_only:
            timed = _timed(pairs, revisions.order, wish, floors)
    judgements = Judgements(
        title=f"gate: {pairs.base.header.scenario_name}",
        judgements=with_reasons((*timed, *judge_counted_pairs(pairs.counted, allowed))),
        runs=(str(revisions.work / "pair-*/base"), str(revisions.work / "pair-*/new")),
    )
    revisions.finish(to_json(judgements))
    return judgements


def _timed(pairs: Pairs, order: PairOrder, wish: GateOptions, floors: Floors) -> Answers:
    """Raises: CountChangedError."""
    metrics = {metric.key: metric for metric in timed_metrics_of(pairs.base, wish, floors, wish.plan.looks[-1])}
    if not metrics:
        return ()

    def take(step: NeedPairs) -> dict[str, list[float]]:
        return pairs.take(step.stage, step.pairs, [metrics[key] for key in step.keys], step.why)

    return judge_in_pairs(tuple(metrics.values()), take, wish.plan, order)


def timed_metrics_of(run: Run, wish: GateOptions, floors: Floors, pairs: int) -> list[TimedMetric]:
    """The metrics that decide, each with its margin in a gate of at most so many pairs of fresh processes."""
    metrics, known = primary_metrics(run, wish.metrics), floors(run.header)
    return [judged_metric(metric, known, pairs, wish.least_margin) for metric in metrics]


def judged_metric(
    metric: CellMetric, floors: Mapping[str, NoiseFloor], pairs: int, least_margin: float = MARGIN
) -> TimedMetric:
    """``metric`` for the gate, with the greater of ``least_margin`` and the machine's noise floor as its margin."""
    ratio, source = margin(floors.get(metric.key), max(1, pairs), least_margin)
    return TimedMetric(**asdict(metric), margin=ratio, margin_source=source)


def judge_timed(base: Sequence[Process], new: Sequence[Process], metrics: Sequence[TimedMetric]) -> Answers:
    """The timed figures of two stored runs, their processes as replicates, the first with the first and so on.

    Metrics without a time on some side are void. Where a run has fewer than three processes all are inconclusive, because
    chance and change look alike.
    """
    count = min(len(base), len(new))
    ratios = {metric: log_ratios(metric, base, new) for metric in metrics}
    enough = ratios if count >= FEWEST_PROCESSES else {}
    known = {metric: values for metric, values in enough.items() if not isinstance(values, str)}
    answers = judge_pairs(list(known), {metric.key: values for metric, values in known.items()}) if known else ()
    judged = dict(zip(known, answers, strict=True))
    few = f"processes: {len(base)} of BASE, {len(new)} of NEW; their luck cannot be told from a code change"
    return tuple(judged.get(metric) or _open(metric, ratios[metric], few, count) for metric in metrics)


def _open(metric: TimedMetric, values: Sequence[float] | str, few: str, processes: int) -> Judgement:
    """Void for want of times, whose reason ``values`` then is, or inconclusive because there are too few processes."""
    bound = f"at most {100 * metric.margin:.3g} % slower"
    judgement = partial(metric.judgement, bound=bound, sizes={"processes": processes})
    if isinstance(values, str):
        return judgement(state="void", value=absent(values), reason=values, remedy=ON_A_QUIET_MACHINE)
    return judgement(state="inconclusive", value=absent(few), reason=few, remedy=IN_TURN)


def with_reasons(judgements: Sequence[Judgement]) -> Answers:
    """The same, and of each speedup that did not pass whether the arm or NTP moved."""
    moved = [Moved(answer.metric, answer.cell, answer.value.value) for answer in judgements]
    answers = list(judgements)
    for at, why in speedup_reasons(moved).items():
        if answers[at].state in ("missed", "inconclusive"):
            answers[at] = replace(answers[at], reason=f"{answers[at].reason}; {why}")
    return tuple(answers)
