"""How often a verdict is wrong, in records simulated with a known truth and judged by the functions that judge records.

A run is the paired decodes of NTP and up to 60 arms of equal speed: log ratio = log 3 + prompt (sd 0.2) + process (sd 0.02) +
decode (sd 0.02) + what the shape adds; half of each variance is common to all arms, for NTP is (so that unadjusted intervals
of the best of 5, 20, 60 are wrong in 9, 19, 30 % of runs). Prompts of published runs vary by 0.15 to 0.34. The first 1, 5, 20
and 60 arms are judged: compare_accuracy.highlight picks the fastest, compare_arms and stats_* work out its figures at 95 % and
at the simultaneous level, verdict.verdict judges "at least the truth". Whatever it decides is wrong.

* geometric mean: 1 to 60 arms. Ratio of totals, median and 90th percentile of latency: one arm.
* accuracy: every arm loses exactly the margin of 1 point; answers of related prompts are equal, or half of them are.
* power: the bound is 10 % below the truth, 50 prompts, 5 processes, 1 and 5 arms.
* one and two processes: bounds far from the truth, which nothing may decide.

``max`` figures leave out what cannot be met and cannot be seen in the data (UNMET), a shape and size with one figure each:

* two states of the machine, each in half of the processes, seen in 3 processes with 200 prompts: a quarter of such runs sees
  one state only. The same in the ratio of totals. (Of 16 prompts the interval is wide enough; of 5 processes 6 % are such.)
* three slow prompts in a hundred, ratio of totals, 16 or 50 prompts: 61 and 22 % of runs have no slow prompt, nothing to
  notice. Where there is one, the interval is refused (stats_ratios.LEAST_EFFECTIVE_SHARE).

    python -m benchmarks.verdict_errors [--runs 2000] [--workers 2] [--partial FOLDER]

Finished pieces are kept in FOLDER and read again, so that the same command continues.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from functools import cache
from multiprocessing import Pool
from pathlib import Path
from typing import Any

# Before numpy is loaded: one core for each worker.
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import numpy as np

from benchmarks.results_file import write_results
from harness.analysis.figures.arm_metrics import wall_speedups
from harness.analysis.judge.check import judged_figure
from harness.analysis.judge.highlight import ClaimedCell, highlight
from harness.analysis.judge.verdict import verdict
from harness.analysis.results import ArmResult, BaselineCheck, Cell, Comparison, Simultaneous
from harness.analysis.tally.tally import Tally
from harness.record.schema import RunHeader
from harness.scenario.claims import Bound, Claim, Where
from harness.stats import quantity
from harness.stats.quantity import CONFIDENCE, Quantity, absent, simultaneous_confidence
from harness.stats.ratios import geometric_mean_ratio
from harness.stats.sample_size import percentile_over_processes

RUNS, PIECE = 2_000, 100
ARMS = (1, 5, 20, 60)
SPEEDUP, PROMPT_SD, PROCESS_SD, DECODE_SD, COMMON = 3.0, 0.2, 0.02, 0.02, 0.5
LENGTH_SD, TOKENS, TOKEN_S = 0.5, 128, 0.01
DRIFT, SERIAL_SD, OUTLIERS, OUTLIER, SLOW, SLOW_TOKENS, SLOW_LOSS = 0.1, 0.05, 0.05, math.log(2), 0.03, 20.0, 0.3
CROSSED_SD, STATES, WIDE_SHARE, WIDE = 0.1, 0.075, 0.1, 3.0
"""Two states: half of the processes measure a ratio that is so much lower, in logarithms."""
MARGIN, PAIRS, DIFFERING = 0.01, (400, 2_000), 0.04
OFTEN = 10.0
"""Percent of runs: an interval that is given more rarely has no coverage of its own; it counts among the false verdicts."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A shape at a size. ``kind``: errors (the bound at the truth), power (10 % below it), few (far from it), accuracy.

    For accuracy ``prompts`` are pairs and ``processes`` the prompts of a cluster; ``shape`` says how alike they are.
    """

    kind: str
    shape: str
    prompts: int
    processes: int

    @property
    def name(self) -> str:
        """As in the file of a finished piece."""
        return f"{self.kind}-{self.shape}-{self.prompts}x{self.processes}"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """One run: tokens of each prompt, shape (prompts,), and log ratios of every arm, shape (arms, prompts, processes)."""

    tokens: np.ndarray
    logs: np.ndarray


def draw(task: Task, arms: int, random: np.random.Generator) -> Drawn:
    """One run of ``task``."""
    p, q, shape = task.prompts, task.processes, task.shape

    def normal(*size: int) -> np.ndarray:
        shared, own = random.normal(size=(1, *size)), random.normal(size=(arms, *size))
        return math.sqrt(COMMON) * shared + math.sqrt(1 - COMMON) * own

    wide = np.where(random.random((1, p, 1)) < WIDE_SHARE, WIDE, 1.0) if shape == "heavy_tailed" else 1.0
    slow = random.random(p) < SLOW if shape == "rare_slow" else np.zeros(p, dtype=bool)
    tokens = np.maximum(2.0, np.round(TOKENS * np.exp(LENGTH_SD * random.normal(size=p)) * np.where(slow, SLOW_TOKENS, 1.0)))
    logs = math.log(SPEEDUP) + PROMPT_SD * normal(p, 1) * wide - SLOW_LOSS * slow[None, :, None]
    logs = logs + PROCESS_SD * normal(1, q) + DECODE_SD * normal(p, q)
    if shape == "drift":
        logs = logs + DRIFT * (np.argsort(random.random((p, q)), axis=0) / (p - 1) - 0.5)
    elif shape.startswith("ar_"):
        logs = logs + SERIAL_SD * _serial(normal(p, q), int(shape[3:]) / 10)
    elif shape == "outliers":
        hit = random.random((arms, p, q))
        logs = logs + OUTLIER * ((hit < OUTLIERS / 2).astype(float) - (hit > 1 - OUTLIERS / 2))
    elif shape == "prompt_process":
        logs = logs + CROSSED_SD * normal(p, q)
    elif shape == "two_states":
        logs = logs - STATES * (random.random((1, 1, q)) < 0.5)
    return Drawn(tokens=tokens, logs=logs)


def _serial(noise: np.ndarray, correlation: float) -> np.ndarray:
    """Noise over the decodes of a process, each correlated with the one before."""
    found = noise.copy()
    for i in range(1, noise.shape[1]):
        found[:, i] = correlation * found[:, i - 1] + math.sqrt(1 - correlation**2) * noise[:, i]
    return found


@cache
def truths(shape: str) -> dict[str, float]:
    """True figures, over all prompts and processes, from a million prompts drawn once (one decode and process each)."""
    random = np.random.default_rng(1)
    drawn = [draw(Task(kind="", shape=shape, prompts=100, processes=1), 1, random) for _ in range(10_000)]
    tokens, logs = np.concatenate([one.tokens for one in drawn]), np.concatenate([one.logs[0, :, 0] for one in drawn])
    quiet = _without_noise(shape, len(tokens), random)
    return {
        "speedup": math.exp(logs.mean()),
        "totals": tokens.sum() / (tokens * np.exp(-logs)).sum(),
        "latency_p50": float(np.quantile(quiet, 0.5)),
        "latency_p90": float(np.quantile(quiet, 0.9)),
    }


def _without_noise(shape: str, n: int, random: np.random.Generator) -> np.ndarray:
    """Expected latency of so many prompts of their own: what processes and decodes add is averaged."""
    slow = random.random(n) < SLOW if shape == "rare_slow" else np.zeros(n, dtype=bool)
    wide = np.where(random.random(n) < WIDE_SHARE, WIDE, 1.0) if shape == "heavy_tailed" else 1.0
    tokens = np.maximum(2.0, np.round(TOKENS * np.exp(LENGTH_SD * random.normal(size=n)) * np.where(slow, SLOW_TOKENS, 1.0)))
    latency = TOKEN_S * tokens * np.exp(-(math.log(SPEEDUP) + PROMPT_SD * random.normal(size=n) * wide - SLOW_LOSS * slow))
    variance = PROCESS_SD**2 + DECODE_SD**2 + (SERIAL_SD**2 if shape.startswith("ar_") else 0.0)
    variance += CROSSED_SD**2 if shape == "prompt_process" else 0.0
    factor = math.exp(variance / 2)
    if shape == "drift":
        factor *= 2 * math.sinh(DRIFT / 2) / DRIFT
    elif shape == "outliers":
        factor *= 1 - OUTLIERS + OUTLIERS / 2 * (math.exp(OUTLIER) + math.exp(-OUTLIER))
    elif shape == "two_states":
        factor *= (1 + math.exp(STATES)) / 2
    return np.asarray(latency * factor)


def run_errors(task: Task, random: np.random.Generator, counts: Counter[str]) -> None:
    """One run with every number of arms; counts by figure and arms."""
    drawn, truth = draw(task, ARMS[-1], random), truths(task.shape)
    ntp = [_tally(task, place, s) for place, s in _seconds(task, drawn, None)]
    for arms in ARMS:
        figures = ("speedup",) if arms > 1 else tuple(BOUNDS)
        comparison, place = timed(task, drawn, ntp, arms, figures)
        for figure in figures:
            side = "max" if "latency" in figure else "min"
            _count(counts, f"{figure}_{arms}", comparison, place, figure, truth[figure], side)


def run_power(task: Task, random: np.random.Generator, counts: Counter[str]) -> None:
    """A bound 10 % below the truth, for the best of 1 and of 5 arms."""
    drawn = draw(task, 5, random)
    ntp = [_tally(task, place, s) for place, s in _seconds(task, drawn, None)]
    for arms in (1, 5):
        comparison, place = timed(task, drawn, ntp, arms, ("speedup",))
        _count(counts, f"speedup_{arms}", comparison, place, "speedup", truths(task.shape)["speedup"] / 1.1, "min")


def run_few(task: Task, random: np.random.Generator, counts: Counter[str]) -> None:
    """One or two processes: far below and far above every figure, for the best of 1 and of 5 arms."""
    drawn, truth = draw(task, 5, random), truths(task.shape)
    ntp = [_tally(task, place, s) for place, s in _seconds(task, drawn, None)]
    for arms in (1, 5):
        figures = ("speedup",) if arms > 1 else tuple(BOUNDS)
        comparison, place = timed(task, drawn, ntp, arms, figures)
        for figure in figures:
            for factor in (0.2, 5.0):
                _count(counts, f"{figure}_{arms}_{factor:g}", comparison, place, figure, truth[figure] * factor, "min")


def timed(task: Task, drawn: Drawn, ntp: list[Tally], arms: int, figures: tuple[str, ...]) -> tuple[Comparison, ArmResult]:
    """The comparison of NTP and the first so many arms, with all figures of the one that is picked; and that one."""
    means = np.exp(drawn.logs[:arms].mean(axis=(1, 2)))
    results = [_arm(f"arm {i}", wall_speedup=Quantity(value=float(mean))) for i, mean in enumerate(means)]
    picked = highlight("part", 1, results)
    place = next(i for i, one in enumerate(results) if one.label == picked.label)
    decodes = [_tally(task, where, s) for where, s in _seconds(task, drawn, place)]
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


def _seconds(task: Task, drawn: Drawn, arm: int | None) -> Iterator[tuple[tuple[int, int, int], float]]:
    """(prompt, process, tokens) and decode seconds of every decode; None is NTP."""
    ntp = TOKEN_S * drawn.tokens[:, None] * np.ones((1, task.processes))
    table = (ntp if arm is None else ntp * np.exp(-drawn.logs[arm])).tolist()
    tokens = drawn.tokens.astype(int).tolist()
    for prompt in range(task.prompts):
        for process in range(task.processes):
            yield (prompt, process, tokens[prompt]), table[prompt][process]


def _tally(task: Task, place: tuple[int, int, int], seconds: float) -> Tally:
    prompt, process, tokens = place
    found: Tally = _blank(
        Tally, key=("task", prompt, 0, process), output_tokens=tokens, decode_tokens=tokens, decode_s=seconds, latency_s=seconds
    )
    return found


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
def _needed(kind: Any) -> dict[str, None]:
    return {one.name: None for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING}


def _arm(label: str, **given: Any) -> ArmResult:
    nothing = absent("not simulated")
    known = {"accuracy_difference": nothing, "nfe_speedup": nothing, "wall_speedup": nothing, "wall_speedup_totals": nothing}
    arm: ArmResult = _blank(ArmResult, label=label, is_ntp=False, paired=_Paired(), **(known | given))
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


RUN_ONE = {"errors": run_errors, "power": run_power, "few": run_few, "accuracy": run_accuracy}


def piece(job: tuple[Task, int, int, Path]) -> None:
    """So many runs of a task, kept in a file; one that is there is not done again."""
    task, number, runs, folder = job
    file = folder / f"{task.name}-{number}-{runs}.json"
    if file.exists():
        return
    seed = [ord(letter) for letter in task.name]
    random, counts = np.random.default_rng([number, *seed]), Counter[str]()
    for _ in range(runs):
        RUN_ONE[task.kind](task, random, counts)
    part = file.with_suffix(".part")
    part.write_text(json.dumps({name: int(times) for name, times in counts.items()}))
    part.rename(file)


def gathered(task: Task, jobs: list[tuple[Task, int, int, Path]]) -> Counter[str]:
    """Counts of all pieces of a task."""
    found = Counter[str]()
    for one, number, runs, folder in jobs:
        if one == task:
            found.update(json.loads((folder / f"{task.name}-{number}-{runs}.json").read_text()))
    return found


def figures_of(all_counts: dict[Task, Counter[str]]) -> dict[str, float]:
    """What the issue asks for, and every cell's own rates in the printed table."""
    confirmed, refuted, met_confirmed, met_refuted, coverage, unmarked, accuracy, power = ([] for _ in range(8))
    few, worst = 0, []
    for task, counts in all_counts.items():
        for name in sorted({key.removesuffix("_runs") for key in counts if key.endswith("_runs")}):
            rate = {state: 100 * counts[f"{name}_{state}"] / counts[f"{name}_runs"] for state in ("met", "missed", "intervals")}
            print(f"{task.name} | {name} | " + " | ".join(f"{state} {pct:.2f}" for state, pct in rate.items()), flush=True)
            if task.kind == "accuracy":
                accuracy.append(rate["met"])
            elif task.kind == "power":
                power.append(rate["met"])
            elif task.kind == "few":
                few += counts[f"{name}_met"] + counts[f"{name}_missed"]
            else:
                confirmed.append(rate["met"])
                refuted.append(rate["missed"])
                figure = name.rpartition("_")[0]
                if task.shape == "gaussian" and figure in ("speedup", "totals"):
                    unmarked.append(rate["intervals"])
                if (task.shape, task.prompts, task.processes, figure) in UNMET:
                    continue
                met_confirmed.append(rate["met"])
                met_refuted.append(rate["missed"])
                if rate["intervals"] >= OFTEN:
                    coverage.append(100 * counts[f"{name}_covered"] / counts[f"{name}_intervals"])
                    worst.append((coverage[-1], f"{task.name} {name}"))
    print("lowest coverage:", "; ".join(f"{name} {pct:.1f}" for pct, name in sorted(worst)[:6]))
    found: dict[str, Any] = {
        "false_confirmed_pct_mean": np.mean(confirmed),
        "false_confirmed_pct_max": max(met_confirmed),
        "false_refuted_pct_mean": np.mean(refuted),
        "false_refuted_pct_max": max(met_refuted),
        "false_confirmed_pct_mean_met_cells": np.mean(met_confirmed),
        "accuracy_false_confirmed_pct_mean": np.mean(accuracy),
        "accuracy_false_confirmed_pct_max": max(accuracy),
        "coverage_pct_min": min(coverage),
        "unmet_cells": len(UNMET),
        "confirmed_when_true_pct_min": min(power),
        "unmarked_pct": min(unmarked),
        "verdicts_below_three_processes": few,
    }
    return {name: round(float(value), 2) for name, value in found.items()}


def main() -> None:
    """Simulate what is missing, print every cell, write."""
    parser = argparse.ArgumentParser(description="How often a verdict is wrong where the truth is known.")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--partial", type=Path, default=Path(tempfile.gettempdir()) / "sbd-verdict-errors")
    parser.add_argument("--print-only", action="store_true", help="do not write benchmarks/results")
    given = parser.parse_args()
    given.partial.mkdir(parents=True, exist_ok=True)
    each = min(PIECE, given.runs)
    jobs = [(task, i, each, given.partial) for i in range(given.runs // each) for task in tasks()]
    with Pool(given.workers) as pool:
        for _ in pool.imap_unordered(piece, jobs):
            pass
    figures = figures_of({task: gathered(task, jobs) for task in tasks()})
    print(json.dumps(figures, indent=1) if given.print_only else write_results("verdict_errors", figures))


if __name__ == "__main__":
    main()
