"""Scenarios, claims, profiles and configs as tests/test_fuzz tries them: refused texts, then files changed by chance."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from random import Random

from benchmarks.hostile.cases import REFUSED, Case, Place
from benchmarks.hostile.world import World, written
from tests.helpers import fuzzed_commands
from tests.helpers.fuzzed_commands import SCENARIO
from tests.helpers.fuzzed_files import JSON_TEXTS, YAML_TEXTS


@dataclass(frozen=True)
class Files:
    """A kind of file: how many cases it has, the texts that are refused, what a refusal names, and the codes of other files."""

    kind: str
    COUNT: int
    texts: tuple[str, ...]
    names: str
    exits: frozenset[int]

    def case(self, world: World, number: int, chance: Random) -> Case:
        """Texts, then changes at random."""
        if number < len(self.texts):
            text = self.texts[number]
            return Case(f"text {text[:30]!r}", partial(self._read, world, text.encode(), REFUSED, self.names, number))
        _, make = fuzzed_commands.KINDS[self.kind]
        return Case(f"{self.kind} changed", partial(self._read, world, make(chance), self.exits, "", number))

    def _read(self, world: World, data: bytes, exits: frozenset[int], names: str, number: int, place: Place) -> None:
        commands, _ = fuzzed_commands.KINDS[self.kind]
        written(place, "prompts.jsonl", '{"prompt": "hi"}\n{"prompt": "ho"}\n')
        written(place, "good.yaml", SCENARIO)
        for words in commands(fuzzed_commands.World(root=place.here, run=world.good), data, number):
            if not callable(words):
                place.sbd(*words, exits=exits, names=names)


OF_FILES = {
    "scenarios": Files("scenario", 430, YAML_TEXTS, "s.yaml:", frozenset({0, 2})),
    "claims": Files("claims", 150, YAML_TEXTS, "c.yaml", frozenset({0, 1, 2, 3, 4})),
    "profiles": Files("profile", 230, YAML_TEXTS, "p.yaml", frozenset({0, 2, 3})),
    "configs": Files("config", 200, JSON_TEXTS, "", frozenset({0, 2, 3})),
}
