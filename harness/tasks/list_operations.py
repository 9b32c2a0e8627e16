"""Operations on a short list of numbers: exact symbol handling with long, predictable runs of text.

Much of a solution copies what is already on the page, which is where decoding several tokens at
once should win most, and where one wrong token makes the answer wrong.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from harness.tasks.problem import ANSWER_MARK, Problem, final_answer

_LARGEST = 9


@dataclass(frozen=True, slots=True)
class _Operation:
    """One operation: its label in the solution, how a prompt may put it, and what it does.

    ``{0}`` stands for the operand, drawn from 1 to ``most``; operations without one have ``most`` 0.
    """

    label: str
    phrases: tuple[str, ...]
    apply: Callable[[list[int], int], list[int]]
    most: int = 0


_OPERATIONS = (
    _Operation("reverse", ("reverse it", "turn it around", "reverse the list"), lambda v, n: v[::-1]),
    _Operation("sort up", ("sort it", "sort ascending", "order it from low to high"), lambda v, n: sorted(v)),
    _Operation(
        "sort down",
        ("sort descending", "order it from high to low", "sort it downwards"),
        lambda v, n: sorted(v, reverse=True),
    ),
    _Operation(
        "drop odd", ("drop odd numbers", "remove the odd numbers"), lambda v, n: [x for x in v if x % 2 == 0]
    ),
    _Operation(
        "drop even", ("drop even numbers", "remove the even numbers"), lambda v, n: [x for x in v if x % 2 == 1]
    ),
    _Operation(
        "add {0}", ("add {0} to each", "increase each number by {0}"), lambda v, n: [x + n for x in v], 5
    ),
    _Operation(
        "above {0}",
        ("keep the numbers above {0}", "keep only numbers above {0}"),
        lambda v, n: [x for x in v if x > n],
        6,
    ),
    _Operation("double", ("double each", "double every number"), lambda v, n: [2 * x for x in v]),
    _Operation("rotate", ("rotate left by one", "move the first number to the end"), lambda v, n: v[1:] + v[:1]),
    _Operation("first {0}", ("take the first {0}", "keep the first {0} numbers"), lambda v, n: v[:n], 5),
)

_PROMPTS_ONE = (
    "Start with {0} and {1}.\n",
    "Take the list {0}. Please {1}.\n",
    "List: {0}. Task: {1}.\n",
)
_PROMPTS_TWO = (
    "Start with {0}, {1}, then {2}.\n",
    "Take the list {0}. First {1}, then {2}.\n",
    "List: {0}. Task: {1} and after that {2}.\n",
)


def _show(values: list[int]) -> str:
    return f"[{','.join(map(str, values))}]"


def _step(rng: random.Random, values: list[int], previous: str, least: int) -> tuple[str, str, int, list[int]]:
    """Draw an operation that leaves at least ``least`` numbers.

    Returns its phrase, its label, its operand and the new list. ``previous`` is the label of the
    operation before, which is not repeated.
    """
    while True:
        operation = rng.choice(_OPERATIONS)
        operand = rng.randint(1, operation.most) if operation.most else 0
        result = operation.apply(values, operand)
        if len(result) < least or operation.label == previous:
            continue
        if operation.label == "first {0}" and not 2 <= operand < len(values):
            continue
        return rng.choice(operation.phrases).format(operand), operation.label, operand, result


class ListOperations:
    """A list of small integers and one or two operations on it."""

    name = "list_operations"
    description = "one or two operations on a list of 4-6 small integers"

    def draw(self, rng: random.Random) -> Problem:
        """Draw a list and its operations; the level is the number of operations."""
        level = 1 + (rng.random() < 0.6)
        values = [rng.randint(0, _LARGEST) for _ in range(rng.randint(4, 6))]
        start = _show(values)
        phrases: list[str] = []
        lines: list[str] = []
        label = ""
        for left in range(level, 0, -1):
            phrase, label, operand, values = _step(rng, values, label, left)
            phrases.append(phrase)
            lines.append(f"{label.format(operand)}: {_show(values)}\n")
        frame = rng.choice(_PROMPTS_ONE if level == 1 else _PROMPTS_TWO)
        answer = _show(values)
        return Problem(
            task=self.name,
            prompt=frame.format(start, *phrases),
            solution=f"{''.join(lines)}{ANSWER_MARK} {answer}",
            answer=answer,
            level=level,
        )

    def is_correct(self, problem: Problem, output: str) -> bool:
        """Compare the list after the last ``Answer:`` with the answer, ignoring spaces between numbers.

        Spaces inside a number count: ``[1 2]`` is not ``[12]``.
        """
        found = final_answer(output)
        if found is None or not (found.startswith("[") and found.endswith("]")):
            return False
        numbers = [number.strip(" ") for number in found[1:-1].split(",")]
        return f"[{','.join(numbers)}]" == problem.answer
