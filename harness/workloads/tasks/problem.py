"""The shape every built-in task shares, so that training, decoding and scoring never look inside a task.

A task draws problems from a random generator and judges what a model wrote. Judging only compares
text or parsed data; nothing here ever executes what a model wrote.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol

from harness.errors import UnknownTaskError

ANSWER_MARK = "Answer:"


class UnknownNameError(UnknownTaskError, ValueError):
    """A task or split name that does not exist; the message lists the names that do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem with its worked solution.

    ``solution`` is the whole text the model should write, without end-of-sequence;
    ``answer`` is the canonical part of it that decides correctness. Tasks that may draw the same
    problem share a ``family`` (default: the task alone), so that its split is the same in all of them.
    """

    task: str
    prompt: str
    solution: str
    answer: str
    level: int
    family: str = ""


class Task(Protocol):
    """A family of problems whose answers a program can check."""

    name: str
    description: str

    def draw(self, rng: random.Random) -> Problem:
        """Draw one problem, using no randomness but ``rng``."""
        ...

    def is_correct(self, problem: Problem, output: str) -> bool:
        """Say whether ``output`` answers ``problem``; never raises, whatever the text."""
        ...


def final_answer(output: str) -> str | None:
    """Return the stripped text after the last ``Answer:``, or None if the mark is absent."""
    _, mark, tail = output.rpartition(ANSWER_MARK)
    return tail.strip() if mark else None
