"""The built-in tasks: text problems that a 4.6M-parameter model can learn and a program can check.

With them every speed is reported next to the correctness of the output, without a downloaded benchmark or a judging model.
"""

from __future__ import annotations

from harness.workloads.tasks.problem import Problem, Task, problem_at, problems, split_of
from harness.workloads.tasks.record_to_json import RecordToJson
from harness.workloads.tasks.variable_trace import VariableTrace
from harness.workloads.tasks.word_problems import WordProblems

__all__ = ["TASKS", "Problem", "Task", "problem_at", "problems", "split_of"]

_ALL: tuple[Task, ...] = (
    WordProblems(),
    RecordToJson(),
    VariableTrace("variable_trace", shortest=3, longest=5, hard_share=0.24),
    VariableTrace("short_trace", shortest=3, longest=3, hard_share=0),
)

TASKS: dict[str, Task] = {entry.name: entry for entry in _ALL}
