"""Paired decodes of NTP and of arms of equal speed, drawn with a known truth: log ratio = log 3 + prompt (sd 0.2) + process
(sd 0.02) + decode (sd 0.02) + what the shape adds. Half of each variance is common to all arms, for NTP is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

SPEEDUP, PROMPT_SD, PROCESS_SD, DECODE_SD, COMMON = 3.0, 0.2, 0.02, 0.02, 0.5
LENGTH_SD, TOKENS, TOKEN_S = 0.5, 128, 0.01
DRIFT, SERIAL_SD, OUTLIERS, OUTLIER, SLOW, SLOW_TOKENS, SLOW_LOSS = 0.1, 0.05, 0.05, math.log(2), 0.03, 20.0, 0.3
CROSSED_SD, STATES, WIDE_SHARE, WIDE = 0.1, 0.075, 0.1, 3.0
"""Two states: half of the processes measure a ratio that is so much lower, in logarithms."""


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
