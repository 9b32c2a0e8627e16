"""Whatever stands in a file, a command that reads it ends with an answer or a refusal: no traceback, no hang, no stray file.

`make test` tries a few hundred files, the same ones each time; `make verify` 20,000 others.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from harness.analysis.answer import Derived, compare, to_json
from harness.analysis.judge.verdict import claims_for, verdict
from harness.cli.judged import table
from harness.errors import RecordError
from harness.record.store import read_on_one_machine
from harness.regression.history.store import Revision, record_of
from tests.helpers import ROOT
from tests.helpers import synthetic_run as synthetic
from tests.helpers.fuzzed_commands import KINDS, SCENARIO, World
from tests.helpers.fuzzed_files import JUNK, by_chance
from tests.helpers.records import NUMBERS, changed_record, small_record
from tests.helpers.two_runs import stored
from tests.helpers.watched_command import Fault, fault_of

FEW = {"scenario": 110, "claims": 40, "profile": 80, "systems": 20, "config": 30, "prompts": 20, "run": 100}
FULL = {"scenario": 6000, "claims": 1500, "profile": 4000, "systems": 1000, "config": 1500, "prompts": 1000, "run": 6000}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A folder of its own with a sound run, a sound scenario, and nothing of this user's."""
    small = synthetic.Part(prompts=2, blocks=1, tasks=("word_problems", "code"), arms=synthetic.ARMS[:2])
    good = stored(synthetic.build(small, calibration=synthetic.calibration()), tmp_path / "good")
    made = World(root=tmp_path, run=good)
    made.write("prompts.jsonl", b'{"prompt": "hi"}\n{"prompt": "ho"}\n')
    made.write("good.yaml", yaml.safe_dump(SCENARIO).encode())
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    return made


def fuzz(kind: str, count: int, world: World, *, same_each_time: bool) -> int:
    """Try so many files; returns how many were tried. Fails with the file of the first fault, made as small as can be."""
    commands, make = KINDS[kind]
    tried = 0

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=same_each_time,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    @given(by_chance(make), st.integers(0, 2**31))
    def every(data: Any, which: int) -> None:
        nonlocal tried
        tried += 1
        for arguments in commands(world, data, which):
            fault = fault_of(arguments, world.root)
            assert fault is None, f"sbd {arguments}: {fault.kind}\n{fault.details}"

    every()
    return tried


@pytest.mark.parametrize("kind", KINDS)
def test_a_few_hundred_files(kind: str, world: World) -> None:
    """The same ones each time."""
    assert fuzz(kind, FEW[kind], world, same_each_time=True) >= 0.9 * FEW[kind]


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_twenty_thousand_files(kind: str, world: World) -> None:
    """Others each time."""
    assert sum(FULL.values()) >= 20_000
    assert fuzz(kind, FULL[kind], world, same_each_time=False) >= FULL[kind]


def places_of(tree: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a tree, of a list the first two."""
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree[:2]) if isinstance(tree, list) else ()
    for key, one in inner:
        yield (*place, key)
        yield from places_of(one, (*place, key))


def judged(folder: Path) -> object:
    """All that is said of a record, but for its page."""
    run = read_on_one_machine(folder)
    comparison = compare(run)
    found = verdict(comparison, claims_for(run.header, ["3-5x fewer passes within 1 point"], ["ours"]), run.header)
    return table(found, found.exit_code("report")), to_json(comparison), record_of(Derived(run, ()), "/run", Revision())


@pytest.mark.parametrize("version", [6, 7])
def test_one_value_of_a_record_is_changed(version: int, world: World) -> None:
    """Each file as often, each of its branches as often, to values of every type; infinite and absurd ones among them."""
    lines, chosen, tried = small_record(version), random.Random(version), 0
    branches: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for place in places_of(lines):
        if len(place) > 2:
            branches.setdefault((place[0], *place[2:5]), []).append(place)
    while tried < 12:
        place = chosen.choice(branches[chosen.choice(list(branches))])
        folder = changed_record(world.root / "changed", lines, place, chosen.choice((*JUNK, *NUMBERS)))
        fault = fault_of(lambda folder=folder: judged(folder), world.root)  # type: ignore[misc]
        assert fault is None, f"{place}: {fault.kind}\n{fault.details}"
        with contextlib.suppress(RecordError):
            read_on_one_machine(folder)
            tried += 1


@pytest.mark.parametrize(("command", "kind"), [("plan", "ZeroDivisionError"), ("hardware", "hang"), ("schema", "wrote open /")])
def test_the_watch_sees_what_it_is_there_for(command: str, kind: str, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A traceback, an endless loop and a file written elsewhere are told as such."""
    from harness.cli import hardware, plan
    from harness.scenario import scenario

    def endless(name: str) -> None:
        while True:
            pass

    def elsewhere(*given: object) -> dict[str, Any]:
        (ROOT / "tests" / "__stray__").open("a").close()
        (ROOT / "tests" / "__stray__").unlink()
        return {}

    if kind == "hang":  # only there: a slow machine takes longer for a command that ends
        monkeypatch.setattr("tests.helpers.watched_command.LONGEST_CPU_S", 0.3)
    monkeypatch.setattr(plan, "load_scenario", lambda path: 1 / 0)
    monkeypatch.setattr(hardware, "load_profile", endless)
    monkeypatch.setattr(scenario.Scenario, "model_json_schema", elsewhere)
    fault = fault_of([command] if command == "schema" else [command, "x"], world.root)
    assert isinstance(fault, Fault) and fault.kind.startswith(kind)
    monkeypatch.undo()
    assert fault_of(["hardware", "--json"], world.root) is None
