"""The first shapes, judged on tallies and figures of their own, without a record: paired decodes of NTP and up to 60 arms.

The first 1, 5, 20 and 60 arms are judged: highlight picks the fastest, arm_metrics and stats work out its figures at 95 % and
at the simultaneous level, verdict.verdict judges "at least the truth". Whatever it decides is wrong. Unadjusted intervals of
the best of 5, 20, 60 are wrong in 9, 19, 30 % of runs. Prompts of published runs vary by 0.15 to 0.34.

* geometric mean: 1 to 60 arms. Ratio of totals, median and 90th percentile of latency: one arm.
* accuracy: every arm loses exactly the margin of 1 point; answers of related prompts are equal, or half of them are.
* power: the bound is 10 % below the truth, 50 prompts, 5 processes, 1 and 5 arms.
* one and two processes: bounds far from the truth, which nothing may decide.

``max`` figures leave out what cannot be met and cannot be seen in the data (UNMET), a shape and size with one figure each:

* two states of the machine, each in half of the processes, seen in 3 processes with 200 prompts: a quarter of such runs sees
  one state only. The same in the ratio of totals. (Of 16 prompts the interval is wide enough; of 5 processes 6 % are such.)
* three slow prompts in a hundred, ratio of totals, 16 or 50 prompts: 61 and 22 % of runs have no slow prompt, nothing to
  notice. Where there is one, the interval is refused (stats.ratios.LEAST_EFFECTIVE_SHARE).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import MISSING, dataclass, fields
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from benchmarks.verdict_errors.drawn import TOKEN_S, Drawn, Task, draw, truths
from harness.analysis.figures.arm_metrics import wall_speedups
from harness.analysis.judge.check import judged_figure
from harness.analysis.judge.highlight import ClaimedCell, highlight
from harness.analysis.judge.verdict import verdict
from harness.analysis.results import ArmResult, BaselineCheck, Cell, Comparison, Simultaneous
from harness.analysis.tally.tally import Tally
from harness.analysis.trust.health import Voids
from harness.record.schema import RunHeader
from harness.scenario.claims import Bound, Claim, Where
from harness.stats import quantity
from harness.stats.quantity import CONFIDENCE, Quantity, absent, simultaneous_confidence
from harness.stats.ratios import geometric_mean_ratio
from harness.stats.sample_size import percentile_over_processes

ARMS = (1, 5, 20, 60)
MARGIN, PAIRS, DIFFERING = 0.01, (400, 2_000), 0.04
_GIVEN: dict[str, Any] = {"scenario_name": "simulated", "scenario": {}, "cases": []}
HEADER = RunHeader.model_construct(**_GIVEN)
SHAPES = ("gaussian", "heavy_tailed", "drift", "ar_03", "ar_09", "outliers", "rare_slow", "prompt_process", "two_states")
SIZED = ("gaussian", "rare_slow", "two_states")
UNMET = frozenset(
    {
        ("two_states", 200, 3, "speedup"),
        ("two_states", 200, 3, "totals"),
        ("rare_slow", 16, 3, "totals"),
        ("rare_slow", 16, 10, "totals"),
        ("rare_slow", 50, 5, "totals"),
    }
)
BOUNDS = {
    "speedup": ("wall_speedup", "geometric_mean"),
    "totals": ("wall_speedup", "ratio_of_totals"),
    "latency_p50": ("latency_p50_s", "geometric_mean"),
    "latency_p90": ("latency_p90_s", "geometric_mean"),
}
FACTORS = {"errors": (1.0,), "power": (1 / 1.1,), "few": (0.2, 5.0)}
"""Of the truth: the bounds of each kind."""


def tasks() -> list[Task]:
    """Every cell, the long ones first."""
    sizes = [(shape, 50, 5) for shape in SHAPES] + [(s, p, q) for s in SIZED for p in (16, 200) for q in (3, 10)]
    found = [Task(kind="errors", shape=shape, prompts=p, processes=q) for shape, p, q in sizes]
    found += [Task(kind="power", shape="gaussian", prompts=50, processes=5)]
    found += [Task(kind="few", shape=shape, prompts=50, processes=q) for shape in SIZED for q in (1, 2)]
    found += [Task(kind="accuracy", shape="single", prompts=n, processes=1) for n in PAIRS]
    found += [
        Task(kind="accuracy", shape=shape, prompts=n, processes=size)
        for shape in ("alike", "half_alike")
        for n in PAIRS
        for size in (2, 5, 10)
    ]
    return sorted(found, key=lambda one: -one.prompts * one.processes)


def run_timed(task: Task, random: np.random.Generator, counts: Counter[str]) -> None:
    """One run with every number of arms, against bounds at the truth, below it, or far from it; counts by figure and arms."""
    numbers, is_few = ARMS if task.kind == "errors" else (1, 5), task.kind == "few"
    drawn, truth = draw(task, numbers[-1], random), truths(task.shape)
    ntp = _decodes(task, drawn, None)
    for arms in numbers:
        figures = ("speedup",) if arms > 1 or task.kind == "power" else tuple(BOUNDS)
        comparison, place = timed(task, drawn, ntp, arms, figures)
        for figure, factor in product(figures, FACTORS[task.kind]):
            name, side = f"{figure}_{arms}", "max" if "latency" in figure and not is_few else "min"
            _count(counts, f"{name}_{factor:g}" if is_few else name, comparison, place, figure, truth[figure] * factor, side)


def timed(task: Task, drawn: Drawn, ntp: list[Tally], arms: int, figures: tuple[str, ...]) -> tuple[Comparison, ArmResult]:
    """The comparison of NTP and the first so many arms, with all figures of the one that is picked; and that one."""
    means = np.exp(drawn.logs[:arms].mean(axis=(1, 2)))
    results = [_arm(f"arm {i}", wall_speedup=Quantity(value=float(mean))) for i, mean in enumerate(means)]
    picked = highlight("part", 1, results)
    place = next(i for i, one in enumerate(results) if one.label == picked.label)
    decodes = _decodes(task, drawn, place)
    levels = [CONFIDENCE, simultaneous_confidence(picked.picked_from)] if picked.picked_from > 1 else [CONFIDENCE]
    found = [_figures(ntp, decodes, figures, level) for level in levels]
    apart = Simultaneous(picked_from=arms, confidence=levels[-1], figures=found[-1]) if arms > 1 else None
    results[place] = _arm(
        f"arm {place}",
        wall_speedup=found[0]["wall_speedup"],
        wall_speedup_totals=found[0]["wall_speedup_totals"],
        figures=found[0],
        simultaneous=apart,
    )
    return _comparison(results, highlight("part", 1, results)), results[place]


def _figures(ntp: list[Tally], decodes: list[Tally], wanted: tuple[str, ...], level: float) -> dict[str, Quantity]:
    """As compare_result works them out of the same decodes; the bootstrap only where it is wanted."""
    pairs = list(zip(ntp, decodes, strict=True))
    if "totals" in wanted:
        mean, totals = wall_speedups(pairs, "", level)
    else:
        mean, totals = _geometric_mean(pairs, level), absent("not wanted")
    found = {"wall_speedup": mean, "wall_speedup_totals": totals}
    if "latency_p50" in wanted:
        labels = [one.key[1] for one in decodes], [one.key[3] for one in decodes]
        for percent in (50, 90):
            latencies = [one.latency_s or 0.0 for one in decodes]
            found[f"latency_p{percent}_s"] = percentile_over_processes(latencies, *labels, percent, level)
    return found


def _geometric_mean(pairs: list[tuple[Tally, Tally]], level: float) -> Quantity:
    per_token = [((n.decode_s or 0.0) / n.decode_tokens, (a.decode_s or 0.0) / a.decode_tokens) for n, a in pairs]
    return geometric_mean_ratio(per_token, [a.key[:2] for _, a in pairs], [a.key[3] for _, a in pairs], level)


def _decodes(task: Task, drawn: Drawn, arm: int | None) -> list[Tally]:
    """Every decode of an arm; None is NTP."""
    ntp = TOKEN_S * drawn.tokens[:, None] * np.ones((1, task.processes))
    table = (ntp if arm is None else ntp * np.exp(-drawn.logs[arm])).tolist()
    return [
        _blank(Tally, key=("task", prompt, 0, q), output_tokens=n, decode_tokens=n, decode_s=seconds, latency_s=seconds)
        for prompt, n in enumerate(drawn.tokens.astype(int).tolist())
        for q, seconds in enumerate(table[prompt])
    ]


def run_accuracy(task: Task, random: np.random.Generator, counts: Counter[str]) -> None:
    """Every arm loses the margin; the fastest of those shown to lose less is judged."""
    n, size = task.prompts, task.processes
    labels = [i // size for i in range(n)]
    kinds = random.random((ARMS[-1], n))
    if size > 1:
        same = np.repeat(random.random((ARMS[-1], n // size)), size, axis=1)
        kinds = np.where(random.random(kinds.shape) < (1.0 if task.shape == "alike" else 0.5), same, kinds)
    lost = (DIFFERING + MARGIN) / 2
    outcomes = (kinds < lost - MARGIN).astype(float) - (kinds > 1 - lost)
    speeds = random.random(ARMS[-1])
    for arms in ARMS:
        level = simultaneous_confidence(arms)
        bounds = {f"arm {i}": _accuracy(outcomes[i], labels if size > 1 else None, level) for i in range(arms)}
        results = [
            _arm(f"arm {i}", wall_speedup=Quantity(value=float(speeds[i])), accuracy_difference=bounds[f"arm {i}"])
            for i in range(arms)
        ]
        picked = highlight("part", 1, results, bounds=bounds)
        place = next(i for i, one in enumerate(results) if one.label == picked.label)
        figures = {"accuracy_loss_points": _loss(bounds[picked.label or ""])}
        apart = Simultaneous(picked_from=arms, confidence=level, figures=figures) if arms > 1 else None
        results[place] = _arm(
            picked.label or "",
            wall_speedup=Quantity(value=float(speeds[place])),
            figures=figures,
            simultaneous=apart,
            accuracy_difference=bounds[picked.label or ""],
        )
        (found,) = verdict(_comparison(results, picked), (Claim(within_points=100 * MARGIN),), HEADER).judgements
        counts[f"accuracy_{arms}_runs"] += 1
        counts[f"accuracy_{arms}_{found.state}"] += 1


def _accuracy(differences: np.ndarray, clusters: list[int] | None, level: float) -> Quantity:
    """The bound of stats. Not worked out where it cannot reach the margin: the mean is below, or, at 99 % and more, less than
    1.5 standard errors of unrelated pairs above.
    """
    n, mean = len(differences), float(differences.mean())
    near = 1.5 * float(differences.std()) / math.sqrt(n) if level > 0.98 else 0.0
    if mean + MARGIN <= near:
        return Quantity(value=mean, low=min(mean, -MARGIN) - 1e-6, n=n)
    if clusters is None:
        return _unrelated(n, int((differences > 0).sum()), int((differences < 0).sum()), level)
    return quantity.paired_lower_bound(differences.tolist(), level, clusters)


@cache
def _unrelated(n: int, gains: int, losses: int, level: float) -> Quantity:
    return quantity.paired_lower_bound([1.0] * gains + [-1.0] * losses + [0.0] * (n - gains - losses), level)


def _loss(difference: Quantity) -> Quantity:
    """In points; its lower end is not asked for."""
    low = difference.low
    return Quantity(
        value=-100 * (difference.value or 0.0), low=-100.0, high=None if low is None else -100 * low, n=difference.n
    )


def _blank(kind: Any, **given: Any) -> Any:
    """A value of a comparison of which only what is given is read here."""
    return kind(**(_needed(kind) | given))


@cache
def _needed(kind: Any) -> dict[str, Any]:
    """What has no default: no figure, no entries, else nothing."""
    empty: dict[str, Any] = {"Quantity": absent("not simulated"), "Voids": Voids(timed=0, void=0, reasons={}), "tuple": ()}
    needed = [one for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING]
    return {one.name: empty.get(str(one.type).partition("[")[0]) for one in needed}


def _arm(label: str, **given: Any) -> ArmResult:
    arm: ArmResult = _blank(ArmResult, label=label, is_ntp=False, paired=_Paired(), **given)
    return arm


@dataclass(frozen=True, slots=True)
class _Paired:
    """No prompt is on one side only."""

    one_sided: int = 0


def _comparison(results: list[ArmResult], picked: Any) -> Comparison:
    check = BaselineCheck(state="kept_up", modes=())
    cell: Cell = _blank(Cell, part="part", batch_size=1, is_summary=True, timed=True, arms=tuple(results), baseline_check=check)
    return Comparison(run_id="simulated", cells=(cell,), highlights=(picked,), answers=(picked,), outcomes=())


def _count(
    counts: Counter[str], name: str, comparison: Comparison, arm: ArmResult, figure: str, bound: float, side: str
) -> None:
    metric, estimator = BOUNDS[figure]
    claim = Claim(metric=metric, estimator=estimator, where=Where(), **{side: bound})
    (found,) = verdict(comparison, (claim,), HEADER).judgements
    held = Bound(metric=metric, estimator=estimator, min=bound)
    cell, picked_from = comparison.cells[0], comparison.highlights[0].picked_from
    judged = judged_figure(ClaimedCell(cell=cell, arm=arm, picked_from=picked_from if picked_from > 1 else None), held)
    counts[f"{name}_runs"] += 1
    counts[f"{name}_{found.state}"] += 1
    if judged.low is not None and judged.high is not None:
        counts[f"{name}_intervals"] += 1
        counts[f"{name}_covered"] += judged.low <= bound <= judged.high


RUN_ONE = {**dict.fromkeys(FACTORS, run_timed), "accuracy": run_accuracy}
