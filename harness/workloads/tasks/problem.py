"""What every built-in task shares, and train, validation and test problems that are disjoint by construction.

A task draws problems from a random generator and judges what a model wrote. Judging only compares text or parsed data;
nothing here executes what a model wrote.

The split of a problem follows from a hash of its text, not from its order or seed. So no seed can put a test problem into
training. Every index has its own generator, so training can resume at any index.
"""

from __future__ import annotations

import hashlib
import operator
import random
from abc import ABC, abstractmethod
from collections.abc import Callable

from harness.frozen import frozen

ANSWER_MARK = "Answer:"
ARITHMETIC: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


@frozen
class Problem:
    """One problem with its worked solution.

    ``solution`` is the whole text the model should write, without end-of-sequence; ``answer`` is the canonical part of it that
    decides correctness. Tasks that may draw the same problem share a ``family`` (default: the task alone) and so its split.
    """

    task: str
    prompt: str
    solution: str
    answer: str
    level: int
    family: str = ""


class Task(ABC):
    """A family of problems whose answers a program can check."""

    name: str

    @abstractmethod
    def draw(self, rng: random.Random) -> Problem:
        """Draw one problem, using no randomness but ``rng``."""

    def is_correct(self, problem: Problem, output: str) -> bool:
        """Compare the text after the last ``Answer:`` with the answer; never raises, whatever the text."""
        _, mark, tail = output.rpartition(ANSWER_MARK)
        return bool(mark) and tail.strip() == problem.answer


_MAX_REDRAWS = 10_000


def split_of(problem: Problem) -> str:
    """Return the one split that ``problem`` belongs to: test, validation or train; it does not depend on the seed."""
    text = f"{problem.family or problem.task}\n{problem.prompt}".encode()
    bucket = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") % 16
    return {0: "test", 1: "validation"}.get(bucket, "train")


def problem_at(task: Task, split: str, seed: int, index: int) -> Problem:
    """Return problem number ``index`` of a split; depends on the arguments alone."""
    rng = random.Random(f"{seed}/{task.name}/{split}/{index}")
    for _ in range(_MAX_REDRAWS):
        problem = task.draw(rng)
        if split_of(problem) == split:
            return problem
    raise ValueError(
        f"task {task.name!r}: no {split} problem in {_MAX_REDRAWS} draws at index {index}; "
        "the task has too few distinct problems"
    )


def problems(task: Task, split: str, count: int, seed: int) -> list[Problem]:
    """Return ``count`` problems of a split, in index order.

    Prompts of validation and test are distinct: an index that repeats an earlier prompt is skipped.
    Train problems are returned as drawn, so problem ``i`` is ``problem_at(..., i)``.
    """
    if count < 0:
        raise ValueError(f"count must not be negative, got {count}")
    if split == "train":
        return [problem_at(task, split, seed, index) for index in range(count)]
    found: dict[str, Problem] = {}
    limit = 1_000 + 20 * count
    for index in range(limit):
        if len(found) == count:
            break
        problem = problem_at(task, split, seed, index)
        found.setdefault(problem.prompt, problem)
    if len(found) < count:
        raise ValueError(
            f"task {task.name!r}: only {len(found)} distinct {split} problems in {limit} tries, "
            f"{count} were asked for; ask for fewer"
        )
    return list(found.values())
