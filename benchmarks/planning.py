"""How often a planned run decides, when the truth is what the plan assumed.

A pilot leaves a claim open. The program says how many prompts would decide it "if it stays at" the value seen; a run of that
size is then simulated with just that value as its truth, and judged by the functions that judge records. What else a plan goes
by (how prompts differ, how processes differ, how many answers differ) keeps the truth that the pilot was drawn from.

    python -m benchmarks.planning

* Speed: "at least 3x" at a truth of 3 times exp(+-distance); log ratios vary by 0.25 over prompts and, where there are
  several processes, by 0.01 over these.
* Accuracy: "at most 1 point lost" (5 points for the smallest pilots, which nothing else would plan); the arm loses nothing or
  half the margin, and a share of the answers differs. A pilot in which none differs says "at most one answer lost": the run
  planned from it loses one.

``decided_near_pct``: what the number is worth if the truth stays where the pilot was drawn from, which nobody knows.
"""

from __future__ import annotations

import math
import os
import re
import statistics
from dataclasses import dataclass

# Before numpy is loaded: one core is what is claimed.
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import numpy as np

from benchmarks.results_file import write_results
from harness.analysis.figures.accuracy import accuracy_figures
from harness.analysis.judge.check import state_of
from harness.analysis.judge.remedy import more_prompts
from harness.scenario.claims import Bound
from harness.stats import quantity
from harness.stats.quantity import Quantity
from harness.stats.ratios import geometric_mean_ratio

RUNS = 300
MOST_PROMPTS, MOST_DECODES = 60_000, 60_000
"""Plans beyond this are not simulated: the pilot is drawn again."""
SPEED = Bound(metric="wall_speedup", min=3.0)
PROMPT_SD, PROCESS_SD = 0.25, 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the program asked for, and what it assumed."""

    value: float
    prompts: int
    processes: int


def planned(bound: Bound, value: Quantity, sd: Quantity | None) -> Plan | None:
    """The number that the program says, read from its own words; None where it plans none."""
    words = more_prompts(bound, value, sd, "prompts")
    found = re.search(r"\(([\d,]+) in all(?:, each in (\d+) fresh processes)?\)", words)
    if found is None or value.value is None:
        return None
    return Plan(value=value.value, prompts=int(found[1].replace(",", "")), processes=int(found[2] or value.processes or 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Pilots of a speedup: the truth is 3x times exp(``distance``)."""

    prompts: int
    processes: int
    distance: float

    @property
    def key(self) -> str:
        """As in the names of the figures."""
        return f"speed_{self.prompts}x{self.processes}_{100 * self.distance:+.0f}pct"

    bound = SPEED
    truth = property(lambda self: 3.0 * math.exp(self.distance))

    def run(self, drawn: np.random.Generator, truth: float, prompts: int, processes: int) -> tuple[Quantity, None]:
        """The speedup of one simulated run."""
        several = processes > 1
        logs = math.log(truth) + drawn.normal(0, PROMPT_SD, (prompts, 1)) + np.zeros((1, processes))
        logs += drawn.normal(0, PROCESS_SD, (1, processes)) if several else 0.0
        where = np.indices(logs.shape).reshape(2, -1).tolist()
        pairs = [(ratio, 1.0) for ratio in np.exp(logs.ravel()).tolist()]
        return geometric_mean_ratio(pairs, where[0], where[1]), None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Pilots of a loss of accuracy against a margin, both in points; ``differing``: share of the answers that change."""

    prompts: int
    margin: float
    loss: float
    differing: float
    processes: int = 1

    @property
    def key(self) -> str:
        """As in the names of the figures."""
        return f"accuracy_{self.prompts}_within_{self.margin:g}_lost_{self.loss:g}_differing_{100 * self.differing:g}pct"

    bound = property(lambda self: Bound(metric="accuracy_loss_points", max=self.margin))
    truth = property(lambda self: self.loss)

    def run(self, drawn: np.random.Generator, truth: float, prompts: int, processes: int) -> tuple[Quantity, Quantity]:
        """The loss of one simulated run, with its standard deviation; at least as many answers differ as the loss takes."""
        differing = max(self.differing, abs(truth) / 100)
        shares = [(differing - truth / 100) / 2, (differing + truth / 100) / 2]
        gains, losses, _ = drawn.multinomial(prompts, [*shares, max(0.0, 1 - sum(shares))]).tolist()
        return judged(gains, losses, prompts)


def judged(gains: int, losses: int, prompts: int) -> tuple[Quantity, Quantity]:
    """Loss and standard deviation, as a record with these answers has them; every second of the rest is right in both."""
    rest = {("task", str(i)): float(i % 2) for i in range(gains + losses, prompts)}
    arm = {("task", str(i)): float(i < gains) for i in range(gains + losses)} | rest
    ntp = {key: 1 - right for key, right in arm.items()} | rest
    found = accuracy_figures(arm, ntp, {}, "not graded", wrong=sum(not right for right in arm.values()))
    return found["accuracy_loss_points"], found["accuracy_loss_sd_points"]


Cell = Speed | Accuracy
CELLS: list[Cell] = [
    *(Speed(prompts=n, processes=1, distance=d) for n in (8, 20, 50) for d in (0.02, 0.05, 0.1, -0.05)),
    *(Speed(prompts=n, processes=q, distance=d) for n in (8, 50) for q in (3, 5) for d in (0.05, 0.1)),
    *(Speed(prompts=200, processes=q, distance=d) for q in (1, 3, 5) for d in (0.02, 0.05, -0.03)),
    *(
        Accuracy(prompts=n, margin=5.0, loss=loss, differing=d)
        for n in (8, 20, 50, 200)
        for loss in (0.0, 2.5)
        for d in (0.03, 0.1)
    ),
    *(Accuracy(prompts=n, margin=1.0, loss=0.0, differing=d) for n in (50, 200) for d in (0.0, 0.01, 0.03)),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Of the pilots that left the claim open: how many planned runs decided it, in percent, and what they asked for."""

    assumed_pct: float
    near_pct: float
    median_prompts: float
    too_many: int


def decided(cell: Cell, runs: int) -> Found:
    """Runs planned from ``runs`` pilots: with the pilot's value as truth, and with the truth it was drawn from."""
    drawn, assumed, near, too_many = np.random.default_rng(20261123), 0, 0, 0
    asked: list[int] = []
    while len(asked) < runs and too_many < 20 * runs:
        value, sd = cell.run(drawn, cell.truth, cell.prompts, cell.processes)
        if state_of(cell.bound, value) != "inconclusive":
            continue
        plan = planned(cell.bound, value, sd)
        if plan is None or plan.prompts > MOST_PROMPTS or plan.prompts * plan.processes > MOST_DECODES:
            too_many += 1
            continue
        asked.append(plan.prompts)
        if sd is not None and sd.value == 0:
            again = judged(0, 1, plan.prompts)[0]
        else:
            again = cell.run(drawn, plan.value, plan.prompts, plan.processes)[0]
        assumed += state_of(cell.bound, again) != "inconclusive"
        near += state_of(cell.bound, cell.run(drawn, cell.truth, plan.prompts, plan.processes)[0]) != "inconclusive"
    count = max(1, len(asked))
    return Found(
        assumed_pct=100 * assumed / count,
        near_pct=100 * near / count,
        too_many=too_many,
        median_prompts=statistics.median(asked) if asked else math.nan,
    )


def main() -> None:
    """Simulate, print, write."""
    figures: dict[str, float] = {}
    print("pilot | decided, the truth as assumed | decided, the truth as drawn | median prompts | not simulated", flush=True)
    for cell in CELLS:
        found = decided(cell, RUNS)
        words = f"{found.assumed_pct:.1f} % | {found.near_pct:.1f} % | {found.median_prompts:,.0f} | {found.too_many}"
        print(f"{cell.key} | {words}", flush=True)
        figures[f"decided_pct_{cell.key}"] = round(found.assumed_pct, 1)
        figures[f"decided_near_pct_{cell.key}"] = round(found.near_pct, 1)
    assumed = [value for key, value in figures.items() if key.startswith("decided_pct_")]
    figures = {
        "decided_pct_min": min(assumed),
        "decided_pct_mean": round(statistics.fmean(assumed), 1),
        "pairs_needed_one_lost": quantity.pairs_needed(0.01, losses=1),
    } | figures
    print(write_results("planning", figures))


if __name__ == "__main__":
    main()
