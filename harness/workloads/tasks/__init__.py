"""The built-in tasks: text problems that a 4.6M-parameter model can learn and a program can check.

With them every speed is reported next to the correctness of the output, without a downloaded benchmark or a judging model.
"""

from __future__ import annotations

from harness.workloads.tasks.problem import SPLITS, Problem, Task, UnknownNameError, problem_at, problems, split_of
from harness.workloads.tasks.record_to_json import RecordToJson
from harness.workloads.tasks.variable_trace import VariableTrace
from harness.workloads.tasks.word_problems import WordProblems

__all__ = ["SPLITS", "TASKS", "Problem", "Task", "UnknownNameError", "problem_at", "problems", "split_of", "task"]

_ALL: tuple[Task, ...] = (
    WordProblems(),
    RecordToJson(),
    VariableTrace("variable_trace", shortest=3, longest=5, hard_share=0.24),
    VariableTrace("short_trace", shortest=3, longest=3, hard_share=0),
)

TASKS: dict[str, Task] = {entry.name: entry for entry in _ALL}


def task(name: str) -> Task:
    """Return the task called ``name``; raises a ValueError that lists the names otherwise."""
    if name not in TASKS:
        raise UnknownNameError(f"unknown task {name!r}; the tasks are {', '.join(TASKS)}")
    return TASKS[name]
