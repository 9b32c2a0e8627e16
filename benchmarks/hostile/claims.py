"""Claims, in files and on the command line, held against a sound record."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

from benchmarks.hostile.cases import DOCUMENTED, REFUSED, Case, Place
from benchmarks.hostile.scenarios import CODE
from benchmarks.hostile.world import World, written
from tests.helpers.fuzzed_files import YAML_TEXTS, mutate

COUNT = 150
CLAIMS = {
    "claims": [
        {"name": "a", "source": "b", "metric": "nfe_speedup", "min": 3, "within_points": 1},
        {"metric": "wall_over_nfe", "min": 0.9, "max": 2},
        {"within_points": 1, "where": {"part": "reference", "batch": 1}},
    ]
}
WORDS = (
    "",
    " ",
    "x" * 100_000,
    "nfe_speedup >= nan",
    "nfe_speedup >= inf",
    "nfe_speedup >= 1e999",
    "nfe_speedup >=",
    ">= 3",
    "3-1x",
    "nfe_speedup >= 0x10",
    "nfe_speedup >= 3 at part='",
    "nfe_speedup >= 3 at part=\x00",
    "nfe_speedup >= 3 at x=y",
    "\x1b[31m",
    "nfe_speedup >= 3 and " * 300,
    "((((((((",
    "__import__('os').system('x')",
    "nfe_speedup >= 3 at part=" + "a=" * 5000,
    "٣x",
    "nfe_speedup >= 3 at batch=999999999999999999999999",
    "-3x",
    "1e400x",
    "within 1e400 points",
    "::error::x",
    "\ud800".encode("utf-8", "replace").decode(),
)


def case(world: World, number: int, chance: Random) -> Case:
    """Texts, then files."""
    if number < len(WORDS):
        return Case(f"claim {WORDS[number][:30]!r}", partial(_said, world, WORDS[number]))
    number -= len(WORDS)
    texts = (*CODE, *YAML_TEXTS)
    if number < len(texts):
        return Case(f"text {texts[number][:30]!r}", partial(_filed, world, texts[number], True))
    return Case("places of a file of claims changed", partial(_filed, world, mutate(chance, CLAIMS), False))


def _said(world: World, claim: str, place: Place) -> None:
    if "\x00" not in claim:  # no argument can hold one
        place.sbd("verify", world.good, f"--claim={claim}")


def _filed(world: World, content: Any, refused: bool, place: Place) -> None:
    file = written(place, "c.yaml", content)
    place.sbd(
        "verify", world.good, "--claims", file, exits=REFUSED if refused else DOCUMENTED, names="c.yaml" if refused else ""
    )
