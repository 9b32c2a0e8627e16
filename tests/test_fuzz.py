"""Whatever stands in a file, a command that reads it ends with an answer or a refusal: no traceback, no hang, no stray file.

`make test` tries a few hundred files, the same ones each time; `make verify` 20,000 others.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from benchmarks.hostile.world import SCENARIO
from harness.analysis.answer import compare, to_json
from harness.analysis.frames import load_run
from harness.analysis.judge.verdict import claims_for, verdict
from harness.cli.judged import table
from harness.errors import RecordError
from harness.hardware.profile import known_profiles
from harness.paths import data_dir
from harness.record.schema import CaseOutcome
from harness.record.store import read_on_one_machine
from harness.regression.history.derive import Revision, record_of
from harness.roofline.methods import systems
from harness.roofline.recorded_acceptance import passes_per_block
from harness.scenario.loading import load_scenario
from tests.helpers import ROOT
from tests.helpers import synthetic_run as synthetic
from tests.helpers.fuzzed_files import JUNK, json_files, json_lines, mutated, packed, weighted, yaml_files
from tests.helpers.records import NUMBERS, changed_record, small_record
from tests.helpers.two_runs import stored
from tests.helpers.watched_command import Fault, fault_of

RECORDS = ROOT / "tests" / "data" / "records"
FEW = {"scenario": 110, "claims": 40, "profile": 80, "systems": 20, "config": 30, "prompts": 20, "run": 100}
FULL = {"scenario": 6000, "claims": 1500, "profile": 4000, "systems": 1000, "config": 1500, "prompts": 1000, "run": 6000}
MODEL = "llama-3.1-8b"

PROMPTS: list[Any] = [{"prompt": "2+2=", "answer": "4", "check": "number"}, {"prompt": "Say hi", "check": "none"}]
CLAIMS = {
    "claims": [
        {"name": "a", "source": "b", "metric": "nfe_speedup", "min": 3, "within_points": 1},
        {"metric": "wall_over_nfe", "min": 0.9, "max": 2},
        {"within_points": 1},
    ]
}
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "vocab_size": 100,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
    "rope_theta": 10000.0,
    "torch_dtype": "bfloat16",
}


Command = list[str] | Callable[[], object]


@dataclass(frozen=True)
class World:
    """Where the commands run: ``root`` is theirs to write in, ``file`` and ``run`` are read."""

    root: Path
    run: Path
    other: Path

    def write(self, name: str, data: bytes) -> str:
        """A file in it, by its path."""
        file = self.root / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data)
        return str(file)


def profile_trees() -> list[Any]:
    """A GPU, a CPU, and one that `sbd calibrate` has measured."""
    files = [data_dir("hardware_profiles") / f"{name}.yaml" for name in ("h100-sxm", "cpu-amx")]
    measured = json.loads((RECORDS / "v6" / "run.json").read_text())["hardware"]
    return [*(yaml.safe_load(file.read_text()) for file in files), measured]


def record() -> dict[str, Any]:
    """Every file of a small run, as trees."""
    part = synthetic.Part(prompts=2, blocks=1, tasks=("word_problems", "code"), jitter=0.1, arms=synthetic.ARMS[:2])
    run = synthetic.build(part, calibration=synthetic.calibration())
    header = json.loads(run.header.model_dump_json())
    header["scenario"] = {**SCENARIO, "parts": [{**SCENARIO["parts"][0], "name": "reference"}]}
    header["environment"] |= {"logical_cores": 2, "commit": "a" * 40}
    header["hardware"] = json.loads(known_profiles()["cpu-amx"].model_dump_json())
    samples = [json.loads(sample.model_dump_json()) for sample in run.samples]
    samples[1]["meters"] = {"kernel_before_s": 0.1, "kernel_after_s": 0.1, "energy_j": 3.0, "dram_bandwidth_pct": 5.0}
    events = [{"session": one} for one in run.sessions]
    old = (RECORDS / "v6" / "events.jsonl").read_text().splitlines()
    events += [json.loads(line) for line in old if json.loads(line).get("session", {}).get("part")][:4]
    outcome = CaseOutcome(case_id=header["cases"][-1]["case_id"], outcome="does_not_fit", reason="too large")
    events.append({"outcome": outcome.model_dump()})
    return {"header": header, "samples": samples, "events": events}


def runs() -> st.SearchStrategy[dict[str, bytes]]:
    """Run directories in which one file, or one thing all over, is not as it should be."""
    tree = record()
    older = [json.loads(line) for line in (RECORDS / "v6" / "samples.jsonl").read_text().splitlines()]
    header, events = json.dumps(tree["header"]).encode(), "".join(f"{json.dumps(one)}\n" for one in tree["events"]).encode()
    samples = "".join(f"{json.dumps(one)}\n" for one in tree["samples"]).encode()
    whole = {"run.json": header, "samples.jsonl": samples, "events.jsonl": events}
    some = st.one_of([json_lines(lines) for lines in (tree["samples"], older)])
    return weighted(
        (4, json_files(tree["header"]).map(lambda data: whole | {"run.json": data})),
        (3, some.map(lambda data: whole | {"samples.jsonl": data})),
        (1, packed(some).map(lambda data: {"run.json": header, "samples.jsonl.gz": data, "events.jsonl": events})),
        (3, json_lines(tree["events"]).map(lambda data: whole | {"events.jsonl": data})),
        (1, mutated(tree["header"]).map(lambda one: {"run.json": json.dumps(one).encode()})),
    )


def scenario(world: World, data: bytes, which: int) -> Iterator[Command]:
    """`plan` reads every scenario; `run` only what is refused: the rest would be measured."""
    file = world.write("s.yaml", data)
    yield [["plan", file], ["plan", file, "--json"], ["plan", file, "--hardware", "h100-sxm"]][which % 3]
    with contextlib.suppress(Exception):  # `plan` has told of it
        load_scenario(file)
        return
    yield ["run", file]


def claims(world: World, data: bytes, which: int) -> Iterator[Command]:
    """Held against a sound run."""
    yield ["verify", str(world.run), "--claims", world.write("c.yaml", data)]


def profile(world: World, data: bytes, which: int) -> Iterator[Command]:
    """Shown, priced and planned with."""
    file = world.write("p.yaml", data)
    yield ["hardware", file, *(["--json"] if which % 2 else [])]
    yield [
        ["roofline", "--model", MODEL, "--hardware", file],
        ["roofline", "--methods", "--hardware", file],
        ["roofline", "--model", MODEL, "--hardware", file, "--json", "--batch", "64"],
        ["capacity", "--model", MODEL, "--hardware", file, "--nfe-speedup", "3", "--batch", "8"],
        ["capacity", "--model", MODEL, "--hardware", file, "--nfe-speedup", "3", "--break-even", "--json"],
        ["capacity", "--model", MODEL, "--hardware", file, "--nfe-speedup", "3", "--tokens-per-s", "50", "--csv"],
        ["plan", str(world.root / "good.yaml"), "--hardware", file],
    ][which % 7]


def own_systems(world: World, data: bytes, which: int) -> Iterator[Command]:
    """A user's own list of decoding systems."""
    file = world.write("systems.yaml", data)
    yield ["roofline", "--methods", "--systems", file, *(["--json"] if which % 2 else [])]


def config(world: World, data: bytes, which: int) -> Iterator[Command]:
    """A folder with the config.json of a model."""
    folder = str(Path(world.write("model/config.json", data)).parent)
    yield [
        ["roofline", "--model", folder, "--hardware", "h100-sxm"],
        ["capacity", "--model", folder, "--hardware", "h100-sxm", "--nfe-speedup", "3", "--batch", "8"],
    ][which % 2]


def prompts(world: World, data: bytes, which: int) -> Iterator[Command]:
    """The prompts of a scenario."""
    world.write("prompts.jsonl", data)
    yield ["plan", str(world.root / "good.yaml")]


def frames_of(folder: Path) -> list[object]:
    """All that a notebook can ask for."""
    frames = load_run(folder)
    return [frames.samples, frames.rows, frames.passes, frames.arms, frames.predictions]


def run(world: World, files: dict[str, bytes], which: int) -> Iterator[Command]:
    """Everything that reads a record; the page itself, which takes seconds, of every fiftieth."""
    folder = world.root / "fuzzed"
    shutil.rmtree(folder, ignore_errors=True)
    for name, data in files.items():
        world.write(f"fuzzed/{name}", data)
    bad, good, junit = str(folder), str(world.run), world.root / "junit.xml"
    yield [
        ["report", bad, "--json"],
        ["report", good, bad, "--json"],
        ["compare", good, bad],
        ["gate", bad, good],
        ["verify", bad],
        ["verify", bad, "--claim", "wall_speedup >= 3 within 1 point", "--to", f"junit={junit}"],
        ["publish", bad, str(world.root / "published")],
        ["history", "add", bad, "--db", str(world.root / "h.sqlite")],
        ["capacity", "--model", MODEL, "--hardware", "h100-sxm", "--from-run", bad],
        ["roofline", "--model", MODEL, "--hardware", "h100-sxm", "--from-run", bad],
        lambda: passes_per_block(folder, 16),
        lambda: frames_of(folder),
    ][which % 12]
    if which % 50 == 0:
        yield ["report", bad]
    shutil.rmtree(world.root / "published", ignore_errors=True)


Commands = Callable[[World, Any, int], Iterator[Command]]
KINDS: dict[str, tuple[Commands, Callable[[], st.SearchStrategy[Any]]]] = {
    "scenario": (scenario, lambda: yaml_files(SCENARIO)),
    "claims": (claims, lambda: yaml_files(CLAIMS)),
    "profile": (profile, lambda: yaml_files(*profile_trees())),
    "systems": (own_systems, lambda: yaml_files(yaml.safe_load(systems._FILE.read_text()))),
    "config": (config, lambda: json_files(CONFIG)),
    "prompts": (prompts, lambda: json_lines(PROMPTS)),
    "run": (run, runs),
}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A folder of its own with a sound run, a sound scenario, and nothing of this user's."""
    small = synthetic.Part(prompts=2, blocks=1, tasks=("word_problems", "code"), arms=synthetic.ARMS[:2])
    good = stored(synthetic.build(small, calibration=synthetic.calibration()), tmp_path / "good")
    made = World(root=tmp_path, run=good, other=tmp_path / "other")
    made.write("prompts.jsonl", b'{"prompt": "hi"}\n{"prompt": "ho"}\n')
    made.write("good.yaml", yaml.safe_dump(SCENARIO).encode())
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    return made


def fuzz(kind: str, count: int, world: World, *, same_each_time: bool) -> int:
    """Try so many files; returns how many were tried. Fails with the file of the first fault, made as small as can be."""
    commands, files = KINDS[kind]
    tried = 0

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=same_each_time,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    @given(files(), st.integers(0, 2**31))
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
    return table(found, found.exit_code("report")), to_json(comparison), record_of(run, "/run", Revision())


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
