"""Sound files that the cases damage: a scenario, a record and a model folder; and how a case writes its own."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from benchmarks.hostile.cases import Place
from harness.engine import reference
from harness.hardware.profile import known_profiles
from harness.record.schema import Run
from tests.helpers import ROOT
from tests.helpers import synthetic_run as synthetic
from tests.helpers.fuzzed_files import as_yaml
from tests.helpers.synthetic_run import NTP
from tests.helpers.two_runs import MORE_PASSES, SBD, stored

MODEL = Path(next(iter(reference.__path__)))
PUBLISHED = ROOT / "reports" / "quickstart"
OLDER = ROOT / "tests" / "data" / "records"
CONFIRMED, REFUTED = "nfe_speedup >= 1.5", "nfe_speedup >= 6"
"""Claims that the sound record meets and misses: every second prompt takes 4 passes per block of 16 tokens, the others 8."""
TINY: dict[str, Any] = yaml.safe_load("""
version: 1
name: tiny
question: Is it faster?
parts:
  - name: one
    model: {reference: sbd}
    dtype: float32
    threads: 1
    timed: false
    arms:
      - {method: ntp}
      - {method: sbd, block_size: 16, gamma: 0.1}
    workload: {tasks: [word_problems], split: test, prompts: 12, max_new_tokens: 32}
    seed: 1
""")


@dataclass(frozen=True)
class World:
    """``root`` holds files that cases copy; made once, then only read."""

    root: Path

    @property
    def good(self) -> Path:
        """A sound record of this version, written by arithmetic."""
        return self.root / "good"

    def build(self) -> None:
        """Write the sound files."""
        part = synthetic.Part(prompts=12, blocks=2, jitter=0.02, arms=(NTP, SBD))
        run = synthetic.build(part, calibration=synthetic.calibration())
        slower = synthetic.build(replace(part, arms=(NTP, MORE_PASSES)))
        samples = [(fast, slow)[fast.group % 2] for fast, slow in zip(run.samples, slower.samples, strict=True)]
        environment = run.header.environment | {"logical_cores": 2, "commit": "a" * 40}
        hardware = json.loads(known_profiles()["cpu-amx"].model_dump_json())
        header = run.header.model_copy(update={"environment": environment, "hardware": hardware})
        stored(Run(header=header, samples=samples, outcomes=[], sessions=run.sessions), self.good)


def copied(place: Place, source: Path, name: str = "run") -> Path:
    """A copy of a record, without its pages, or of a model's folder, in the case's folder."""
    return Path(shutil.copytree(source, place.here / name, ignore=shutil.ignore_patterns("report.*")))


def written(place: Place, name: str, content: Any) -> Path:
    """A file in the case's folder: bytes as they are, text with the path of the canary, other values as YAML or JSON."""
    file = place.here / name
    file.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        content = content.replace("CANARY", str(place.canary)).encode("utf-8", "surrogatepass")
    elif not isinstance(content, bytes):
        content = as_yaml(content) if file.suffix == ".yaml" else json.dumps(content).encode()
    file.write_bytes(content)
    return file


def at(tree: Any, path: str, value: Any) -> Any:
    """A copy of the tree with the value at a dotted path (numbers are places in lists), or a function of the old one."""
    tree = copy.deepcopy(tree)
    *way, last = [int(one) if one.isdigit() else one for one in path.split(".")]
    holder = tree
    for one in way:
        holder = holder[one]
    holder[last] = value(holder[last]) if isinstance(value, Callable) else value  # type: ignore[arg-type]
    return tree
