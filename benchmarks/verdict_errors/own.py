"""Processes with prompts of their own, as a run has them by default; and the same, looked at after each process.

* own: a claim at the truth, after all processes. looks: at most so many, of which the fourth is the first that may end it.
* quiet: processes differ by PROCESS_SD, luck: by LUCK_SD, as on shared cores. two_states: half of them are slower by STATES.
* slow_7s: within a process the machine is in a state of two, each for 7 s on average, with half a second a decode.

A truth that is met or missed at any look is a wrong verdict. The interval that is counted is that of the last look.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from benchmarks.verdict_errors.drawn import DECODE_SD, PROCESS_SD, PROMPT_SD, SPEEDUP, STATES, TOKENS, Task
from benchmarks.verdict_errors.records import Asked, claimed, judged, paired_run
from harness.record.schema import Looks, Run

LUCK_SD, SLOW, STATE_S, DECODE_S = 0.16, 0.15, 7.0, 0.5
KINDS = ("quiet", "luck", "two_states", "slow_7s")
LOOKS = Looks(first=4, last=12, error=0.025)


def logs_of(task: Task, random: np.random.Generator) -> np.ndarray:
    """Log ratios, shape (1, prompts, processes), each of a prompt of its own; their mean is that of SPEEDUP."""
    p, q = task.prompts, task.processes
    luck = (LUCK_SD if task.shape == "luck" else PROCESS_SD) * random.normal(size=(1, q))
    if task.shape == "two_states":
        luck = luck + STATES * (0.5 - (random.random((1, q)) < 0.5))
    found: np.ndarray = math.log(SPEEDUP) + math.hypot(PROMPT_SD, DECODE_SD) * random.normal(size=(p, q)) + luck
    if task.shape == "slow_7s":
        changes = random.random((p, q)) < -math.expm1(-DECODE_S / STATE_S)
        changes[0] = random.random(q) < 0.5
        found = found + SLOW * (0.5 - changes.cumsum(axis=0) % 2)
    return found[None]


def asked_of(task: Task) -> Asked:
    """At the truth; and for its power where processes are quiet."""
    return claimed(task.kind, SPEEDUP, power=task.shape == "quiet" and task.processes >= 6)


def run_own(task: Task, random: np.random.Generator, counts: Counter[str]) -> None:
    """All processes at once."""
    asked = asked_of(task)
    judged(_first(logs_of(task, random), task.processes), asked, counts)


def run_looks(task: Task, random: np.random.Generator, counts: Counter[str]) -> None:
    """Each claim is a run of its own, which ends at the look that decides it."""
    logs = logs_of(task, random)
    for one in asked_of(task):
        for processes in range(LOOKS.first, task.processes + 1):
            last = Counter[str]()
            run = _first(logs, processes)
            seen = run.model_copy(update={"header": run.header.model_copy(update={"looks": LOOKS})})
            (found,) = judged(seen, [one], last)
            if found.state != "inconclusive":
                break
        counts.update(last)


def _first(logs: np.ndarray, processes: int) -> Run:
    """Of the first so many processes."""
    return paired_run(np.full(logs.shape[1], float(TOKENS)), logs[:, :, :processes], own=True)


SHAPES = {"own": run_own, "looks": run_looks}
