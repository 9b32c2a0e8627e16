"""A record in words to a JSON object: structured output, where much of the text is forced by the format.

Keys come in one fixed order whatever the order of the record. So the model must look things up, not copy left to right.
"""

from __future__ import annotations

import json
import random

from harness.workloads.tasks.problem import Problem, Task

_FIRST = (
    "Ana",
    "Mia",
    "Eva",
    "Zoe",
    "Lily",
    "Nora",
    "Ruth",
    "Jane",
    "Kate",
    "Rosa",
    "Tom",
    "Ben",
    "Max",
    "Sam",
    "Leo",
    "Paul",
    "Jack",
    "Hugo",
    "Omar",
    "Finn",
)
_LAST = (
    "Reed",
    "Stone",
    "Hill",
    "Wood",
    "King",
    "Lake",
    "Ford",
    "Bell",
    "Cole",
    "Dean",
    "Gray",
    "Hunt",
    "Lane",
    "Moss",
    "Price",
    "West",
)
_WORDS = {
    "city": ("Oslo", "Rome", "Paris", "Cairo", "Lima", "Delhi", "Tokyo", "Bern", "Riga", "Quito"),
    "role": ("engineer", "nurse", "teacher", "baker", "pilot", "farmer", "writer", "painter"),
    "team": ("red", "blue", "green", "gold", "black", "white"),
    "language": ("French", "Spanish", "Arabic", "Hindi", "Dutch", "Greek"),
}
_NUMBERS = {"id": (1000, 9999), "age": (18, 79), "since": (1990, 2024)}

KEYS = ("id", "name", "age", "city", "role", "team", "since", "language")
_OPTIONAL = tuple(key for key in KEYS if key != "name")

_CLAUSES = {
    "id": ("has id {0}", "has the number {0}"),
    "age": ("is {0} years old", "is aged {0}"),
    "city": ("lives in {0}", "comes from {0}"),
    "role": ("works as {0}", "has a job as {0}"),
    "team": ("is in team {0}", "plays for {0}"),
    "since": ("joined in {0}", "is here since {0}"),
    "language": ("speaks {0}", "knows {0}"),
}
_FRAMES = ("Write as JSON: {0}.\n", "Turn this into JSON: {0}.\n", "{0}. Give the JSON.\n", "Record: {0}. JSON?\n")

Value = int | str


def _values(rng: random.Random) -> dict[str, Value]:
    """Draw the name and three to five other fields, in an order drawn at random."""
    keys = ["name", *rng.sample(_OPTIONAL, rng.randint(3, 5))]
    rng.shuffle(keys)
    record: dict[str, Value] = {}
    for key in keys:
        if key == "name":
            record[key] = f"{rng.choice(_FIRST)} {rng.choice(_LAST)}"
        elif key in _NUMBERS:
            record[key] = rng.randint(*_NUMBERS[key])
        else:
            record[key] = rng.choice(_WORDS[key])
    return record


def _phrase(rng: random.Random, record: dict[str, Value]) -> str:
    """Put the record in words, in one of three styles."""
    style = rng.random()
    if style < 0.33:
        return ", ".join(f"{key} {value}" for key, value in record.items())
    if style < 0.6:
        return "; ".join(f"{key}: {value}" for key, value in record.items())
    clauses = [rng.choice(_CLAUSES[key]).format(value) for key, value in record.items() if key != "name"]
    return f"{record['name']} {', '.join(clauses[:-1])} and {clauses[-1]}"


class RecordToJson(Task):
    """Records of four to six fields, to be written as one JSON object in canonical key order."""

    name = "record_to_json"

    def draw(self, rng: random.Random) -> Problem:
        """Draw a record; its level is the number of fields."""
        record = _values(rng)
        ordered = {key: record[key] for key in KEYS if key in record}
        text = json.dumps(ordered, separators=(",", ":"))
        prompt = rng.choice(_FRAMES).format(_phrase(rng, record))
        return Problem(task=self.name, prompt=prompt, solution=text, answer=text, level=len(record))

    def is_correct(self, problem: Problem, output: str) -> bool:
        """Compare the parsed object with the expected one: same keys, same values, same types.

        The order of keys and white space do not matter. ``34.0`` and ``"34"`` are not ``34``.
        """
        expected: dict[str, Value] = json.loads(problem.answer)
        try:
            found: object = json.loads(output)
        except (ValueError, RecursionError):  # bad JSON, an int of too many digits, absurd nesting
            return False
        if not isinstance(found, dict) or found.keys() != expected.keys():
            return False
        return all(type(found[key]) is type(value) and found[key] == value for key, value in expected.items())
