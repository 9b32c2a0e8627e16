"""Files of another tool for NTP and an arm, imported and judged as a record is: 3, 5 and 10 of each side, one start each.

* same: every file has the same requests, so they are paired. All files tell their prompts.
* other: each side has requests of its own, the same in all of its files.
* fresh: each file has requests of its own.
* failed: as fresh, and the arm's slowest 2, 5, 15 % of requests failed, which leaves no time of them.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from benchmarks.verdict_errors.drawn import DECODE_SD, LENGTH_SD, PROCESS_SD, PROMPT_SD, SPEEDUP, TOKEN_S, TOKENS, Task
from benchmarks.verdict_errors.records import PROMPT_S, claimed, judged
from harness.record.imports.measured import MeasuredRequest, ResultFile
from harness.record.schema import Run
from harness.scenario.imported import About, ImportedArm, imported_run

ABOUT = About(model=None, machine="simulated", claims=(), command="")
NTP_SD = 0.05
"""Of NTP's time per token over requests; those of the arm differ by PROMPT_SD."""


def run_imports(task: Task, random: np.random.Generator, counts: Counter[str]) -> None:
    """As many files of NTP as of the arm."""
    logs = _logs(task, random)
    asked = claimed("imports", SPEEDUP, power=task.processes >= 5)
    judged(_run(logs, np.ones(logs.shape, dtype=bool), task.shape, random), asked, counts)


def run_failed(task: Task, random: np.random.Generator, counts: Counter[str]) -> None:
    """All that is left of the arm is faster than the arm."""
    logs = _logs(task, random)
    answered = logs <= np.quantile(logs[1], 1 - int(task.shape) / 100)
    answered[0] = True
    judged(_run(logs, answered, "fresh", random), claimed("lost", SPEEDUP), counts)


def _logs(task: Task, random: np.random.Generator) -> np.ndarray:
    """Log seconds per token, shape (sides, files, requests)."""
    q, p = task.processes, task.prompts
    own = random.normal(size=(2, q if task.kind == "failed" or task.shape == "fresh" else 1, p))
    noise = PROCESS_SD * random.normal(size=(2, q, 1)) + DECODE_SD * random.normal(size=(2, q, p))
    means, spreads = np.array([0.0, -math.log(SPEEDUP)]), np.array([NTP_SD, PROMPT_SD])
    found: np.ndarray = math.log(TOKEN_S) + means[:, None, None] + spreads[:, None, None] * own + noise
    return found


def _run(logs: np.ndarray, answered: np.ndarray, shape: str, random: np.random.Generator) -> Run:
    """Lengths belong to requests, so files with the same requests have the same lengths."""
    sides, files, requests = logs.shape
    kinds = (sides if shape != "same" else 1, files if shape == "fresh" else 1, requests)
    tokens = np.maximum(2, np.round(TOKENS * np.exp(LENGTH_SD * random.normal(size=kinds)))).astype(int)
    tokens = np.broadcast_to(tokens, logs.shape)
    seconds = (np.exp(logs) * tokens).tolist()
    lists = np.broadcast_to(np.arange(kinds[0] * kinds[1]).reshape(kinds[:2]), logs.shape[:2]).tolist()

    def file(side: int, number: int) -> ResultFile:
        found = tuple(
            _request(place, int(tokens[side, number, place]), seconds[side][number][place], lists[side][number])
            for place in range(requests)
            if answered[side, number, place]
        )
        name = f"{side}-{number}.json"
        return ResultFile(
            format="vllm",
            tool="vllm bench serve",
            requests=found,
            sent=requests,
            printed={},
            lacks={},
            concurrency=1,
            name=name,
            sha256=name.encode().hex().zfill(64),
        )

    arms = [
        ImportedArm(name=name, is_ntp=not side, files=tuple(file(side, number) for number in range(files)))
        for side, name in enumerate(("ntp", "arm"))
    ]
    header, samples = imported_run(arms, ABOUT)
    return Run.model_construct(header=header, samples=samples, outcomes=[], sessions=[], seal=None)


def _request(place: int, tokens: int, decode_s: float, of_list: int) -> MeasuredRequest:
    """``of_list``: which list of requests it is of; equal places of one list are one prompt."""
    return MeasuredRequest(
        place=place,
        prompt_tokens=40 + place,
        output_tokens=tokens + 1,
        first_token_s=PROMPT_S,
        last_token_s=PROMPT_S + decode_s,
        request_s=PROMPT_S + decode_s,
        prompt=f"request {of_list}/{place}",
    )


SHAPES = {"imports": run_imports, "failed": run_failed}
