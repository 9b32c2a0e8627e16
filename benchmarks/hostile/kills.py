"""Runs that are killed at any time, again and again, and gone on with: every sample is there at the end, once.

Full disks are the same: a limit on the size of files ends a run in the middle of its record.
"""

from __future__ import annotations

import json
import resource
from collections import Counter
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.hostile.cases import MODEL_LIMIT_S, Case, Place
from benchmarks.hostile.weights import _one_thread
from benchmarks.hostile.world import TINY, World, written
from harness.scenario.loading import load_scenario
from harness.scenario.plan import make_plan

COUNT = 60
LONGEST_S = 3.5


def case(world: World, number: int, chance: Random) -> Case:
    """One to three ends of a run, each at a time of its own."""
    ends = [chance.uniform(0.05, LONGEST_S) for _ in range(1 + number % 3)]
    full = number % 4 == 3
    return Case(f"{'full disk' if full else 'killed'} {len(ends)} times", partial(_ended, ends, chance, full))


def _ended(ends: list[float], chance: Random, full: bool, place: Place) -> None:
    file, out = written(place, "s.yaml", TINY), place.here / "out"
    words = ("run", str(file), "--out", str(out), "--no-report")
    seen: dict[tuple[object, ...], str] = {}
    for after_s in ends:
        if full:
            place.sbd(*words, setup=partial(_full, chance.randint(1_000, 60_000)), limit_s=MODEL_LIMIT_S)
        else:
            place.sbd(*words, kill_after_s=after_s, setup=_one_thread)
        held = _samples(out)
        if any(held.get(key) != text for key, text in seen.items()):
            place.found("lost", "a sample that was there is not any more")
        seen |= held
    place.sbd(*words, exits=frozenset({0}), limit_s=MODEL_LIMIT_S, setup=_one_thread)
    lines = [tuple(json.loads(line)[key] for key in KEY) for line in (out / "samples.jsonl").read_text().split("\n")[:-1]]
    wanted = {slot.key for slot in make_plan(load_scenario(file)).slots() if not slot.warmup}
    there = Counter(lines)
    if missing := len(wanted - set(there)):
        place.found("lost", f"{missing} samples of the plan are not there")
    if max(there.values(), default=1) > 1:
        place.found("lost", "a sample is there twice")
    if any(_samples(out).get(key) != text for key, text in seen.items()):
        place.found("lost", "a sample was changed")
    place.sbd("verify", out)


KEY = ("case_id", "group", "repeat", "warmup", "process")


def _samples(out: Path) -> dict[tuple[object, ...], str]:
    """The whole lines by key."""
    file = out / "samples.jsonl"
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    found = {tuple(json.loads(line)[key] for key in KEY): line for line in lines}
    return {key: line for key, line in found.items() if not json.loads(line)["warmup"]}


def _full(size: int) -> None:
    """No file may be larger."""
    _one_thread()
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
