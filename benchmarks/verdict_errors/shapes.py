"""Shapes of paired runs outside the laboratory, each judged as a record is. ``_power``: the truth is 10 % beyond the bound.

* named: 5, 20, 60 arms of equal speed, the fastest named by a claim typed after the run; of 5 also one that the scenario names.
* tasks: 3 tasks of 10 prompts, 10 of 2; tasks differ by TASK_SD. Claims over these tasks, and over such tasks.
* clusters: 5 groups of 6 related prompts, 10 of 3. Quiet: groups differ little, so that a claim can be decided.
* void: the slowest 2, 5, 15 % of the arm's samples lose their times.
* eight: eight claims of the scenario, each of an arm of its own, all at the truth: each alone, at least one
  of all at its own level (unadjusted), and at least one that is confirmed together with the others (Holm).
* energy: of decodes of 0.5 s and of 5 s, each with joules that do not grow with its length.
* totals: the longer an answer is, the less it gains.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import cache

import numpy as np

from benchmarks.verdict_errors.drawn import DECODE_SD, LENGTH_SD, PROCESS_SD, PROMPT_SD, SPEEDUP, TOKENS, Task, draw
from benchmarks.verdict_errors.records import claimed, judged, paired_run

TASK_SD, WITHIN_SD, QUIET_SD = 0.3, 0.1, 0.05
"""Of tasks and of clusters that differ, of prompts within one, and of clusters that hardly differ."""
CLAIMS = 8
JOULES_SD, OVERHEAD, LENGTHS = 0.1, 60.0, {"short": 1.0, "long": 12.0}
"""Energy of a prompt's decode, in logarithms; what a short decode costs besides its tokens, in tokens; how long decodes are."""
MANY = 1_000_000


def run_named(task: Task, random: np.random.Generator, counts: Counter[str]) -> None:
    """The best of so many arms; the bounds are the same for all."""
    drawn = draw(task, int(task.shape), random)
    best = 1 + int(drawn.logs.mean(axis=(1, 2)).argmax())
    judged(paired_run(drawn.tokens, drawn.logs), claimed("after", SPEEDUP, power=True, arm=best), counts)
    if len(drawn.logs) == 5:
        before = claimed("before", SPEEDUP, power=True, arm=1)
        judged(paired_run(drawn.tokens, drawn.logs, [one for _, one in before]), before, counts)


def run_tasks(task: Task, random: np.random.Generator, counts: Counter[str]) -> None:
    """Over these tasks the truth is that of their own speedups."""
    tasks, shared = _shared(task.shape, TASK_SD, random)
    tokens, logs = _tokens(task.prompts, random), _logs(task, shared[tasks], WITHIN_SD, random)
    these = SPEEDUP * math.exp(shared.mean())
    judged(paired_run(tokens, logs, tasks=tasks), claimed("these", these, power=task.prompts >= 30), counts)
    such = paired_run(tokens, logs, work={"generalise_over": "tasks"}, tasks=tasks)
    judged(such, claimed("such", SPEEDUP), counts)


def run_clusters(task: Task, random: np.random.Generator, counts: Counter[str]) -> None:
    """Prompts of a cluster share what their cluster adds."""
    sizes, _, quiet = task.shape.partition("_")
    clusters, shared = _shared(sizes, QUIET_SD if quiet else PROMPT_SD, random)
    logs = _logs(task, shared[clusters], WITHIN_SD, random)
    run = paired_run(_tokens(task.prompts, random), logs, work={"cluster": "text"}, clusters=clusters)
    judged(run, claimed("clusters", SPEEDUP, power=bool(quiet)), counts)


def run_void(task: Task, random: np.random.Generator, counts: Counter[str]) -> None:
    """What is left of the arm is faster than the arm."""
    logs = _logs(task, 0.0, PROMPT_SD, random)
    slow = logs <= np.quantile(logs, int(task.shape) / 100)
    void = np.concatenate([np.zeros_like(slow), slow])
    judged(paired_run(_tokens(task.prompts, random), logs, void=void), claimed("lost", SPEEDUP), counts)


def run_eight(task: Task, random: np.random.Generator, counts: Counter[str]) -> None:
    """Their arms have nothing in common but their prompts, so that more of them are wrong somewhere than of alike ones."""
    logs = np.concatenate([_logs(task, 0.0, PROMPT_SD, random) for _ in range(CLAIMS)])
    asked = [one for arm in range(1, 1 + CLAIMS) for one in claimed("each", SPEEDUP, arm=arm)]
    found = judged(paired_run(_tokens(task.prompts, random), logs, [one for _, one in asked]), asked, counts)
    wrong = {"unadjusted": any(one.state == "met" for one in found), "together": any(one.together for one in found)}
    counts.update(f"{name}_runs" for name in wrong)
    counts.update(f"{name}_met" for name, is_wrong in wrong.items() if is_wrong)


def run_energy(task: Task, random: np.random.Generator, counts: Counter[str]) -> None:
    """NTP's energy is asked by nobody."""
    length = LENGTHS[task.shape]
    tokens, noise = length * _tokens(task.prompts, random), _logs(task, -math.log(SPEEDUP), JOULES_SD, random)
    joules = (tokens[None, :, None] + OVERHEAD * length) * np.exp(noise) * np.ones((2, 1, 1))
    run = paired_run(tokens, _logs(task, 0.0, PROMPT_SD, random), joules=joules)
    judged(run, claimed("joules", true_joules(length), power=True, metric="joules_per_token"), counts)


def run_totals(task: Task, random: np.random.Generator, counts: Counter[str]) -> None:
    """Log speedup falls by ``shape`` for each factor e of length."""
    tokens, slope = _tokens(task.prompts, random), float(task.shape)
    logs = _logs(task, -slope * np.log(tokens / TOKENS), PROMPT_SD, random)
    asked = claimed("totals", true_totals(slope), power=task.prompts >= 30, estimator="ratio_of_totals")
    judged(paired_run(tokens, logs), asked, counts)


def _shared(sizes: str, sd: float, random: np.random.Generator) -> tuple[list[int], np.ndarray]:
    """``3x10``: which of 3 groups each of 30 prompts is of, and what each group adds."""
    number, each = map(int, sizes.split("x"))
    return [i // each for i in range(number * each)], sd * random.normal(size=number)


def _tokens(prompts: int, random: np.random.Generator) -> np.ndarray:
    return np.maximum(2.0, np.round(TOKENS * np.exp(LENGTH_SD * random.normal(size=prompts))))


def _logs(task: Task, known: np.ndarray | float, prompt_sd: float, random: np.random.Generator) -> np.ndarray:
    """Log ratios of one arm, shape (1, prompts, processes): what is ``known`` of each prompt, and noise."""
    p, q = task.prompts, task.processes
    of_prompts = (known + prompt_sd * random.normal(size=p))[:, None]
    noise = PROCESS_SD * random.normal(size=(1, q)) + DECODE_SD * random.normal(size=(p, q))
    found: np.ndarray = (math.log(SPEEDUP) + of_prompts + noise)[None]
    return found


@cache
def true_joules(length: float) -> float:
    """Energy of all decodes by the tokens of all."""
    tokens, variance = length * _tokens(MANY, np.random.default_rng(1)), JOULES_SD**2 + PROCESS_SD**2 + DECODE_SD**2
    return float((tokens + OVERHEAD * length).mean() * math.exp(variance / 2) / (tokens + 1).mean())


@cache
def true_totals(slope: float) -> float:
    """Ratio of NTP's total time to the arm's over very many prompts."""
    tokens, variance = _tokens(MANY, np.random.default_rng(1)), PROMPT_SD**2 + PROCESS_SD**2 + DECODE_SD**2
    slower = tokens * (tokens / TOKENS) ** slope
    return float(SPEEDUP * tokens.sum() / slower.sum() / math.exp(variance / 2))


SHAPES = {
    "named": run_named,
    "tasks": run_tasks,
    "clusters": run_clusters,
    "void": run_void,
    "eight": run_eight,
    "energy": run_energy,
    "totals": run_totals,
}
