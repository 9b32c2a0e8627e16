"""Commands that read a file of a user's, and the files that they are tried with: sound ones, changed by chance.

A kind has its commands, which write the file first, and what makes the file's bytes, or those of every file of a run.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import yaml

from harness.analysis.frames import load_run
from harness.hardware.profile import known_profiles
from harness.paths import data_dir
from harness.record.schema import CaseOutcome
from harness.roofline.methods import systems
from harness.roofline.recorded_acceptance import passes_per_block
from harness.scenario.loading import load_scenario
from tests.helpers import ROOT
from tests.helpers import synthetic_run as synthetic
from tests.helpers.fuzzed_files import damage, json_file, json_lines, mutate, yaml_file

RECORDS = ROOT / "tests" / "data" / "records"
MODEL = "llama-3.1-8b"
SCENARIO: dict[str, Any] = yaml.safe_load("""
version: 1
name: small
question: Is it faster?
parts:
  - name: one
    model: {random: llama-250m}
    device: cpu
    dtype: bfloat16
    session: static
    execution: eager
    arms:
      - {method: ntp, temperature: 0}
      - {method: sbd, block_size: [8, 16], acceptance: {replay: {nfe_speedup: 3.0}}}
    batch_sizes: [1, 2]
    health: {kernel: 0.1, steal: 0.01}
    workload: {synthetic: {prompt_tokens: 8}, prompts: 4, max_new_tokens: 16}
    repeats: {standard_error: 0.01, at_most: 4}
    processes: 2
    warmup: 2
    seed: 1
  - name: two
    model: {reference: sbd}
    dtype: float32
    arms:
      - {method: ntp}
      - {method: sbd, block_size: 16, gamma: [0, 0.35], solver: entropy_bounded}
    workload: {prompts_file: prompts.jsonl, prompts: 2, max_new_tokens: 16, stop_strings: ["."]}
    timed: false
claims:
  - {name: fast, source: somebody, metric: wall_speedup, min: 3, where: {part: one}}
""")

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
    """Where the commands run: ``root`` is theirs to write in, ``run`` is a sound record, which they read."""

    root: Path
    run: Path

    def write(self, name: str, data: bytes) -> str:
        """A file in it, by its path."""
        file = self.root / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data)
        return str(file)


@cache
def profile_trees() -> list[Any]:
    """A GPU, a CPU, and one that `sbd calibrate` has measured."""
    files = [data_dir("hardware_profiles") / f"{name}.yaml" for name in ("h100-sxm", "cpu-amx")]
    measured = json.loads((RECORDS / "v8" / "run.json").read_text())["hardware"]
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
    events: list[dict[str, Any]] = [{"session": one} for one in run.sessions]
    old = (RECORDS / "v8" / "events.jsonl").read_text().splitlines()
    events += [json.loads(line) for line in old if json.loads(line).get("session", {}).get("part")][:4]
    outcome = CaseOutcome(case_id=header["cases"][-1]["case_id"], outcome="does_not_fit", reason="too large")
    events.append({"outcome": outcome.model_dump()})
    return {"header": header, "samples": samples, "events": events}


@cache
def _sound() -> tuple[dict[str, bytes], dict[str, Any], list[list[Any]]]:
    """The files of a run as bytes and as trees, and samples of it and of older versions."""
    tree = record()
    texts = [(RECORDS / f"v{version}" / "samples.jsonl").read_text().splitlines() for version in (6, 8)]
    older = [[json.loads(line) for line in text] for text in texts]
    header, events = json.dumps(tree["header"]).encode(), "".join(f"{json.dumps(one)}\n" for one in tree["events"]).encode()
    samples = "".join(f"{json.dumps(one)}\n" for one in tree["samples"]).encode()
    return {"run.json": header, "samples.jsonl": samples, "events.jsonl": events}, tree, [tree["samples"], *older]


def run_files(chance: Random) -> dict[str, bytes]:
    """A run directory in which one file, or one thing all over, is not as it should be."""
    whole, tree, samples = _sound()
    how = chance.randrange(12)
    if how < 4:
        return whole | {"run.json": json_file(chance, tree["header"])}
    if how < 7:
        return whole | {"samples.jsonl": json_lines(chance, chance.choice(samples))}
    if how < 10:
        return whole | {"events.jsonl": json_lines(chance, tree["events"])}
    if how < 11:
        return {"run.json": json.dumps(mutate(chance, tree["header"])).encode()}
    packed = gzip.compress(json_lines(chance, chance.choice(samples)), 1)
    of_others = {name: whole[name] for name in ("run.json", "events.jsonl")}
    return of_others | {"samples.jsonl.gz": packed if chance.randrange(5) else damage(chance, packed)}


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
    commands: list[Command] = [
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
    ]
    yield commands[which % 12]
    if which % 50 == 0:
        yield ["report", bad]
    shutil.rmtree(world.root / "published", ignore_errors=True)


Commands = Callable[[World, Any, int], Iterator[Command]]
KINDS: dict[str, tuple[Commands, Callable[[Random], Any]]] = {
    "scenario": (scenario, lambda chance: yaml_file(chance, SCENARIO)),
    "claims": (claims, lambda chance: yaml_file(chance, CLAIMS)),
    "profile": (profile, lambda chance: yaml_file(chance, *profile_trees())),
    "systems": (own_systems, lambda chance: yaml_file(chance, yaml.safe_load(systems._FILE.read_text()))),
    "config": (config, lambda chance: json_file(chance, CONFIG)),
    "prompts": (prompts, lambda chance: json_lines(chance, PROMPTS)),
    "run": (run, run_files),
}
