"""Hardware profiles: shown, priced and planned with."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

from benchmarks.hostile.cases import REFUSED, Case, Place
from benchmarks.hostile.scenarios import CODE, NUMBERS
from benchmarks.hostile.world import World, written
from tests.helpers import ROOT
from tests.helpers.fuzzed_files import YAML_TEXTS, damage, mutate

COUNT = 230
MODEL = ("--model", "llama-3.1-8b")
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("hardware", "FILE"),
    ("hardware", "FILE", "--json"),
    ("roofline", *MODEL, "--hardware", "FILE"),
    ("roofline", *MODEL, "--hardware", "FILE", "--json", "--batch", "64"),
    ("roofline", "--methods", "--hardware", "FILE"),
    ("capacity", *MODEL, "--hardware", "FILE", "--nfe-speedup", "3", "--batch", "8"),
    ("capacity", *MODEL, "--hardware", "FILE", "--nfe-speedup", "3", "--break-even", "--json"),
    ("capacity", *MODEL, "--hardware", "FILE", "--nfe-speedup", "3", "--tokens-per-s", "50", "--csv"),
)


def case(world: World, number: int, chance: Random) -> Case:
    """Texts, numbers in one figure, then changes at random."""
    texts = (*CODE, *YAML_TEXTS)
    command = COMMANDS[number % len(COMMANDS)]
    if number < len(texts):
        return Case(f"text {texts[number][:30]!r}", partial(_read, texts[number], command, True))
    number -= len(texts)
    whole = (ROOT / "hardware_profiles" / "h100-sxm.yaml").read_text()
    if number < len(NUMBERS):
        return Case(f"memory {NUMBERS[number][:20]}", partial(_read, whole.replace("80e9", NUMBERS[number], 1), command, False))
    changed = mutate(chance, world.profile) if chance.random() < 0.8 else damage(chance, whole.encode())
    return Case("a profile changed", partial(_read, changed, command, False))


def _read(content: Any, command: tuple[str, ...], refused: bool, place: Place) -> None:
    file = written(place, "p.yaml", content)
    words = [str(file) if word == "FILE" else word for word in command]
    place.sbd(*words, exits=REFUSED if refused else frozenset({0, 2}), names="p.yaml")
