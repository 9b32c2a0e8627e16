"""Tracing a straight-line program, in two lengths: hard enough that a small model makes mistakes.

So a decoding method that harms or helps can show it. Level 1 needs looking variables up. Level 2 needs the product of two
three-digit numbers in one step, which a tiny model almost never gets right. Short programs are the easy end of the same
distribution, with the same split. A problem held out of one task is held out of the other.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from harness.workloads.tasks.problem import ANSWER_MARK, ARITHMETIC, Problem, Task

_LETTERS = "abcdefghkmnpqrstuvwxyz"
_LIMIT = 99
_LARGEST_STEP = 9
# No space stands before a variable in any frame: " b" and "b" are two tokens, and look-up is hard enough with one.
_FRAMES = (("\n", "{0}\nprint({1})\n"), ("\n", "Run this:\n{0}\nprint({1})\n"), (";", "Trace {0};print({1})\n"))


@dataclass(slots=True)
class _Program:
    """A program while it is being written, with the value of every variable so far."""

    rng: random.Random
    names: list[str]
    lines: list[str] = field(default_factory=list)
    values: dict[str, int] = field(default_factory=dict)
    small: list[str] = field(default_factory=list)
    derived: list[str] = field(default_factory=list)

    def assign(self, expression: str, value: int) -> str:
        name = self.names[len(self.lines)]
        self.lines.append(f"{name}={expression}")
        self.values[name] = value
        return name

    def literal(self) -> None:
        """Assign a small number."""
        value = self.rng.randint(1, 9) if self.rng.random() < 0.5 else self.rng.randint(10, 30)
        self.small.append(self.assign(str(value), value))

    def operand(self, low: int, high: int) -> tuple[str, int]:
        """Draw a number in the range, as a small variable where one fits, else as a literal."""
        if self.rng.random() < 0.4:
            fitting = [name for name in self.small if low <= self.values[name] <= high]
            if fitting:
                name = self.rng.choice(fitting)
                return name, self.values[name]
        value = self.rng.randint(low, high)
        return str(value), value

    def easy(self) -> None:
        """Assign a sum, difference or one-digit product that starts from a small variable."""
        rng = self.rng
        left = self.small[-1] if rng.random() < 0.6 else rng.choice(self.small)
        value = self.values[left]
        sign = rng.choice("+-*" if value <= 9 else "+-")
        if (sign == "+" and value == _LIMIT) or (sign == "-" and value == 0):
            sign = "-" if sign == "+" else "+"
        largest = {"+": _LIMIT - value, "-": value, "*": _LARGEST_STEP}[sign]
        text, right = self.operand(2 if sign == "*" else 1, min(_LARGEST_STEP, largest))
        name = self.assign(f"{left}{sign}{text}", ARITHMETIC[sign](value, right))
        self.small.append(name)
        self.derived.append(name)

    def easy_or_literal(self) -> None:
        if self.small and self.rng.random() < 0.75:
            self.easy()
        else:
            self.literal()


def _three_digits(rng: random.Random) -> int:
    """Draw a factor that has no shortcut: no trailing 0 or 1, not near 100."""
    return 10 * rng.randint(12, 98) + rng.randint(2, 9)


def _write_easy(program: _Program, length: int) -> str:
    """Write a level 1 program and return the variable to print."""
    program.literal()
    for _ in range(length - 2):
        program.easy_or_literal()
    program.easy()
    return program.derived[-1] if program.rng.random() < 0.75 else program.rng.choice(program.derived)


def _write_hard(program: _Program, length: int) -> str:
    """Write a level 2 program, with one hard product that the printed variable depends on."""
    rng = program.rng
    variables = rng.randint(0, 2)
    core = ["factor"] * variables + ["product"] + ["change"] * (length - variables > 1 and rng.random() < 0.4)
    while len(core) < length:
        core.insert(rng.randint(0, len(core)), "other")
    factors: list[tuple[str, int]] = []
    printed = ""
    for part in core:
        if part == "factor":
            value = _three_digits(rng)
            factors.append((program.assign(str(value), value), value))
        elif part == "product":
            for _ in range(2 - len(factors)):
                value = _three_digits(rng)
                factors.append((str(value), value))
            rng.shuffle(factors)
            (left, first), (right, second) = factors
            printed = program.assign(f"{left}*{right}", first * second)
        elif part == "change":
            sign = rng.choice("+-")
            text, value = program.operand(1, _LARGEST_STEP)
            printed = program.assign(f"{printed}{sign}{text}", ARITHMETIC[sign](program.values[printed], value))
        else:
            program.easy_or_literal()
    return printed


class VariableTrace(Task):
    """Programs of ``shortest`` to ``longest`` assignments, traced line by line; a share of them is level 2."""

    def __init__(self, name: str, shortest: int, longest: int, hard_share: float) -> None:
        self.name = name
        self._shortest, self._longest = shortest, longest
        self._hard_share = hard_share

    def draw(self, rng: random.Random) -> Problem:
        """Draw a program; level 2 holds one product of two three-digit numbers."""
        level = 2 if rng.random() < self._hard_share else 1
        length = rng.randint(self._shortest, self._longest)
        program = _Program(rng, rng.sample(_LETTERS, length))
        printed = (_write_hard if level == 2 else _write_easy)(program, length)
        separator, frame = rng.choice(_FRAMES)
        answer = str(program.values[printed])
        trace = "".join(f"{name}={value}\n" for name, value in program.values.items())
        return Problem(
            task=self.name,
            family="variable_trace",
            prompt=frame.format(separator.join(program.lines), printed),
            solution=f"{trace}{ANSWER_MARK} {answer}",
            answer=answer,
            level=level,
        )
