"""Prompts of a domain and split: as many distinct ones as asked for, in an order that the seed alone decides.

Two prompts are the same if they differ in case, white space or numbers alone.
"""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path
from typing import Literal

from harness.workloads.instructions.grammar import Rule, Side, read_rules, write

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
