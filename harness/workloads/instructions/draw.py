"""Prompts of a domain and split: as many distinct ones as asked for, in an order that the seed alone decides.

Two prompts are the same if they differ in case, white space or numbers alone. A domain is a grammar of texts: rules in YAML,
drawn from with a random generator.

    start: ["Write {a tone} note to {name} about {topic}.", ...]      one of these texts
    topic: {train: [...], held_out: [...]}                            one of the texts of the side that is drawn for
    age: {span: [18, 80]}                                             a whole number, both ends included
    facts: {of: fact, least: 3, most: 5, between: " "}                so many different ones of another rule, joined
    fact: [{say: "It was built in {year}.", ask: "When was it built?"}, ...]    texts that belong together

``{rule}`` stands for the same draw wherever a text names it. ``{rule2}`` stands for another draw that differs from it.
``{Rule}`` starts with a capital letter; ``{a rule}`` and ``{A rule}`` add a or an. ``{facts.ask}`` is one of the texts that
belong together; ``between`` may name a joint for each of them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from harness.config_file import Count, StrictModel, Text, read_yaml
from harness.errors import InvariantError

Split = Literal["train", "test", "unseen"]
"""train and test: the domains that are trained on, with separate content; unseen: test prompts of the domains that are not."""
TRAINED = ("extraction", "rewriting", "lists", "questions", "code", "arithmetic", "summaries", "dialogue")
UNSEEN = ("tables", "letters")
DOMAINS = TRAINED + UNSEEN
MOST_PROMPTS = 5_000
"""Prompts of a domain and split, at most; every domain has as many distinct ones."""
NUMBER = re.compile(r"\d+(?:[.,:]\d+)*|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)\b")
_FOLDER = Path(__file__).parent
_SHARED = ("names", "topics")
Side = Literal["train", "held_out"]
REFERENCE = re.compile(r"\{(?:([aA]) )?([A-Za-z][a-z_]*)(\d*)(?:\.([a-z]+))?\}")
MOST_REDRAWS = 1_000

Choice = str | dict[str, str]
Choices = Annotated[tuple[Choice, ...], Field(min_length=1)]


class Sides(StrictModel):
    """Choices of training prompts, and those of held-out prompts."""

    train: Choices
    held_out: Choices


class Number(StrictModel):
    """A whole number of ``span``: from the first to the last, both included."""

    span: tuple[int, int]
    step: Count = 1


class Several(StrictModel):
    """``least`` to ``most`` different choices of the rule ``of``, joined by ``between``."""

    of: Text
    least: Count
    most: Count
    between: str | dict[Text, str] = " "


Rule = Choices | Sides | Number | Several
"""One entry of a file."""


def instructions(domain: str, split: Split, count: int, seed: int) -> tuple[str, ...]:
    """The first ``count`` prompts of a domain; a larger count continues a smaller one.

    Raises:
        ValueError: more than MOST_PROMPTS, or a domain that the split does not have.
    """
    if count > MOST_PROMPTS or domain not in domains_of(split)[1]:
        raise ValueError(
            f"{count} {split} prompts of {domain!r}: ask for at most {MOST_PROMPTS}, of {', '.join(domains_of(split)[1])}"
        )
    side: Side = "train" if split == "train" else "held_out"
    rules, found, index = rules_of(domain), dict[str, str](), 0
    while len(found) < count:
        text = write(rules, side, random.Random(f"{seed}/{domain}/{side}/{index}"))
        found.setdefault(NUMBER.sub("#", normalised(text)), text)
        index += 1
    return tuple(found.values())


def domains_of(split: Split) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The domains that a split stands for, and those that it may be asked for by name."""
    return {"train": (TRAINED, TRAINED), "test": (TRAINED, DOMAINS), "unseen": (UNSEEN, UNSEEN)}[split]


def normalised(text: str) -> str:
    """The text in lower case, every run of white space one space."""
    return " ".join(text.lower().split())


@cache
def rules_of(domain: str) -> dict[str, Rule]:
    """The rules of a domain, with those that all share."""
    return {name: rule for file in (*_SHARED, domain) for name, rule in read_rules(_FOLDER / f"{file}.yaml").items()}


def read_rules(file: Path) -> dict[str, Rule]:
    """The rules of one file, by name.

    Raises:
        ScenarioError: the file is not YAML.
        InvariantError: what it holds, which ships with the program, is no rules; the message has file and line.
    """
    return read_yaml(file, InvariantError).value(dict[str, Rule])


def write(rules: Mapping[str, Rule], side: Side, rng: random.Random) -> str:
    """One text of the rule ``start``, with content of ``side``. Uses ``rng.random`` alone, whose sequence no release changes.

    Raises:
        InvariantError: a rule has fewer choices than a text asks for, or a text names an unknown rule.
    """
    return _Draw(rules, side, rng).text("start", "", None)


class _Draw:
    """One text while it is being written, with every choice so far."""

    def __init__(self, rules: Mapping[str, Rule], side: Side, rng: random.Random) -> None:
        self._rules, self._side, self._rng = rules, side, rng
        self._chosen: dict[tuple[str, str], tuple[Choice, ...]] = {}

    def text(self, name: str, number: str, part: str | None) -> str:
        """What the rule stands for under this number; ``part``: which of the texts that belong together."""
        rule = self._rules.get(name)
        if rule is None:
            raise InvariantError(f"a text names the rule {name!r}, which is in no file of the grammar")
        key = name, number
        if key not in self._chosen:
            self._chosen[key] = self._another(name, rule)
        between = rule.between if isinstance(rule, Several) else ""
        joint = between if isinstance(between, str) else between[part or ""]
        return joint.join(self._expanded(one if isinstance(one, str) else one[part or ""]) for one in self._chosen[key])

    def _another(self, name: str, rule: Rule) -> tuple[Choice, ...]:
        """A draw that differs from those under the rule's other numbers."""
        taken = [chosen for (other, _), chosen in self._chosen.items() if other == name]
        for _ in range(MOST_REDRAWS):
            found = self._choose(rule)
            if found not in taken:
                return found
        raise InvariantError(f"the rule {name!r} has too few choices: {len(taken)} of them are taken in one text")

    def _choose(self, rule: Rule) -> tuple[Choice, ...]:
        if isinstance(rule, Number):
            first, last = rule.span
            return (str(first + rule.step * self._below((last - first) // rule.step + 1)),)
        if isinstance(rule, Several):
            left = list(self._choices(self._rules[rule.of]))
            wanted = rule.least + self._below(rule.most - rule.least + 1)
            return tuple(left.pop(self._below(len(left))) for _ in range(wanted))
        choices = self._choices(rule)
        return (choices[self._below(len(choices))],)

    def _choices(self, rule: Rule) -> tuple[Choice, ...]:
        if isinstance(rule, Sides):
            return rule.train if self._side == "train" else rule.held_out
        assert isinstance(rule, tuple), "several are drawn of a list"
        return rule

    def _below(self, end: int) -> int:
        return int(self._rng.random() * end)

    def _expanded(self, text: str) -> str:
        return REFERENCE.sub(self._replaced, text)

    def _replaced(self, reference: re.Match[str]) -> str:
        article, name, number, part = reference.groups()
        found = self.text(name[0].lower() + name[1:], number, part)
        if article:
            found = f"{article}{'n' if found[0].lower() in 'aeiou' else ''} {found}"
        return found[0].upper() + found[1:] if name[0].isupper() else found
