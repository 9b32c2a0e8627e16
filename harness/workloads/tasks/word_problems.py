"""Arithmetic stories of two or three steps: the form of GSM8K at a size a tiny model can learn.

Steps are one-digit sums and differences, and products of at most 5 times 5. So a wrong answer means that the story was
misread or that decoding corrupted the text, not that the arithmetic was too hard.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from harness.workloads.tasks.problem import ANSWER_MARK, ARITHMETIC, Problem, Task

_SHE = ("Mia", "Ana", "Eva", "Zoe", "Lily", "Nora", "Ruth", "Jane", "Kate", "Rosa")
_HE = ("Tom", "Ben", "Max", "Sam", "Leo", "Paul", "Jack", "Hugo", "Omar", "Finn")
_ITEMS = (
    "apples",
    "pens",
    "books",
    "cards",
    "coins",
    "eggs",
    "plums",
    "shells",
    "stamps",
    "stones",
    "roses",
    "cups",
    "balls",
    "keys",
)
_PACKS = ("bags", "boxes", "jars", "baskets")
_LEADS = ("", "", "Then ", "Next ", "Later ")
_LIMIT = 99
_LARGEST_STEP = 9
_LARGEST_FACTOR = 5


@dataclass(slots=True)
class _Story:
    """A story while it is being told: what has been said, and what the person has so far."""

    rng: random.Random
    name: str
    pronoun: str
    friend: str
    item: str
    value: int = 0
    sentences: list[str] = field(default_factory=list)
    equations: list[str] = field(default_factory=list)
    question: str = ""

    def compute(self, left: int, sign: str, right: int) -> int:
        result = ARITHMETIC[sign](left, right)
        self.equations.append(f"{left}{sign}{right}={result}.")
        return result

    def act(self, deed: str) -> None:
        lead = self.rng.choice(_LEADS)
        subject = self.name if self.rng.random() < 0.3 else self.pronoun
        self.sentences.append(f"{lead}{subject if lead else subject.capitalize()} {deed}.")

    def pack(self, most: int) -> tuple[int, int]:
        """Draw a number of packs and a size whose product is at most ``most`` (at least 4)."""
        size = self.rng.randint(2, min(_LARGEST_FACTOR, most // 2))
        return self.rng.randint(2, min(_LARGEST_FACTOR, most // size)), size


def _open_plain(story: _Story) -> None:
    story.value = story.rng.randint(2, 9) if story.rng.random() < 0.4 else story.rng.randint(10, 30)
    start = story.rng.choice(("{0} has {1} {2}.", "{0} starts with {1} {2}.", "There are {1} {2} on the desk of {0}."))
    story.sentences.append(start.format(story.name, story.value, story.item))


def _open_packs(story: _Story) -> None:
    count, size = story.pack(_LIMIT)
    pack = story.rng.choice(_PACKS)
    start = story.rng.choice(
        (
            "{0} has {1} {4} with {2} {3} each.",
            "{0} has {1} {4}. There are {2} {3} in each.",
            "{0} gets {2} {3} a day for {1} days.",
            "{0} puts {2} {3} in each of {1} {4}.",
        )
    )
    story.sentences.append(start.format(story.name, count, size, story.item, pack))
    story.value = story.compute(count, "*", size)


def _open_two_kinds(story: _Story) -> None:
    first, second = story.rng.randint(2, 20), story.rng.randint(2, _LARGEST_STEP)
    start = story.rng.choice(
        (
            "{0} has {1} red and {2} blue {3}.",
            "{0} has {1} old {3} and {2} new {3}.",
            "{0} gets {1} {3} from {4} and {2} at school.",
        )
    )
    story.sentences.append(start.format(story.name, first, second, story.item, story.friend))
    story.value = story.compute(first, "+", second)


_GAINS = ("buys {0} more", "finds {0} {1}", "gets {0} {1} from {2}", "buys {0} {1}", "picks {0} more {1}")
_LOSSES = ("gives {0} {1} to {2}", "loses {0} {1}", "sells {0} of them", "uses {0} {1}", "gives {2} {0} of them")
_GAINED_PACKS = ("buys {0} {3} with {1} {2} each", "gets {0} {3} of {1} {2} from {4}")
_LOST_PACKS = ("sells {0} {3} with {1} {2} each", "gives {1} {2} to each of {0} friends")


def _change(sign: str, deeds: tuple[str, ...], story: _Story) -> bool:
    """Gain (+) or lose (-) a few, where the limits leave room for it."""
    room = _LIMIT - story.value if sign == "+" else story.value
    if room < 2:
        return False
    amount = story.rng.randint(2, min(_LARGEST_STEP, room))
    story.act(story.rng.choice(deeds).format(amount, story.item, story.friend))
    story.value = story.compute(story.value, sign, amount)
    return True


def _change_by_packs(sign: str, deeds: tuple[str, ...], story: _Story) -> bool:
    """Gain (+) or lose (-) some packs of the same size, where the limits leave room for it."""
    room = _LIMIT - story.value if sign == "+" else story.value
    if room < 4:
        return False
    count, size = story.pack(room)
    deed = story.rng.choice(deeds)
    story.act(deed.format(count, size, story.item, story.rng.choice(_PACKS), story.friend))
    story.value = story.compute(story.value, sign, story.compute(count, "*", size))
    return True


def _multiply(story: _Story) -> bool:
    if not 2 <= story.value <= 9:
        return False
    factor = story.rng.randint(2, _LARGEST_FACTOR)
    growth = story.rng.choice(("After a year there are {0} times as many.", "The number of {1} becomes {0} times as large."))
    story.sentences.append(growth.format(factor, story.item))
    story.value = story.compute(story.value, "*", factor)
    return True


def _compare(story: _Story) -> bool:
    """Finish with a friend who has more or fewer, and ask for both together."""
    if not 4 <= story.value <= 20:
        return False
    more = story.rng.random() < 0.5
    amount = story.rng.randint(2, min(_LARGEST_STEP, _LIMIT - 2 * story.value if more else story.value))
    word = "more" if more else "fewer"
    story.sentences.append(f"{story.friend} has {amount} {word} {story.item} than {story.name}.")
    other = story.compute(story.value, "+" if more else "-", amount)
    story.value = story.compute(story.value, "+", other)
    ending = story.rng.choice(("do they have together", "do both have in total"))
    story.question = f"How many {story.item} {ending}?"
    return True


_GAIN, _LOSE = partial(_change, "+", _GAINS), partial(_change, "-", _LOSSES)
_ONE_STEP: tuple[Callable[[_Story], bool], ...] = (_GAIN, _LOSE, _multiply, _GAIN, _LOSE)
_TWO_STEP: tuple[Callable[[_Story], bool], ...] = (
    partial(_change_by_packs, "+", _GAINED_PACKS),
    partial(_change_by_packs, "-", _LOST_PACKS),
    _compare,
)
_OPENINGS: tuple[Callable[[_Story], None], ...] = (_open_plain, _open_plain, _open_packs, _open_two_kinds)


class WordProblems(Task):
    """Stories of two or three arithmetic steps, solved one equation at a time."""

    name = "word_problems"

    def draw(self, rng: random.Random) -> Problem:
        """Draw a story; its level is the number of equations in the solution."""
        level = 2 + (rng.random() < 0.5)
        woman, man = rng.choice(_SHE), rng.choice(_HE)
        if rng.random() < 0.5:
            story = _Story(rng, woman, "she", man, rng.choice(_ITEMS))
        else:
            story = _Story(rng, man, "he", woman, rng.choice(_ITEMS))
        rng.choice(_OPENINGS)(story)
        while (left := level - len(story.equations)) and not story.question:
            rng.choice(_TWO_STEP if left >= 2 and rng.random() < 0.45 else _ONE_STEP)(story)
        question = story.question or rng.choice(
            (
                f"How many {story.item} does {story.name} have now?",
                f"How many {story.item} does {story.pronoun} have in the end?",
                f"How many {story.item} are there now?",
            )
        )
        return Problem(
            task=self.name,
            prompt=f"{' '.join(story.sentences)} {question}\n",
            solution=f"{' '.join(story.equations)} {ANSWER_MARK} {story.value}",
            answer=str(story.value),
            level=len(story.equations),
        )
