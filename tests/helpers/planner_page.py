"""The planner of published runs, rendered, and questions for it."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from harness.capacity.question import DEGREES
from harness.reporting.planner.panel import BATCHES, DEVICES, KV_DTYPES, REQUESTS, WEIGHTS, Panel, panel_of
from tests.helpers import ROOT
from tests.helpers.command import Cli
from tests.helpers.published import compared, published

QUICKSTART = ROOT / "reports" / "quickstart"
FIGURES = ("tokens_per_s_per_user", "tokens_per_s_per_gpu", "usd_per_million_tokens", "kwh_per_million_tokens")


def quickstart() -> Panel:
    """Its panel: Llama 8B and 70B, because its own models are small."""
    return panel_of(published("quickstart"), compared("quickstart"))


AXES = ("model", "weights", "kv", "request", "device", "degree", "arm", "batch")


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """One way to set the choices, by their places; ``degree`` 0 is auto, 1 the first TP."""

    model: int
    weights: int
    kv: int
    request: int
    device: int
    degree: int
    arm: int
    batch: int

    def arguments(self, panel: Panel) -> list[str]:
        """The question as a user of the command line puts it."""
        prompt, output = REQUESTS[self.request]
        stored, kv = tuple(WEIGHTS.values())[self.weights], tuple(KV_DTYPES.values())[self.kv]
        return [
            "capacity",
            "--json",
            "--model",
            panel.models[self.model].name,
            "--hardware",
            DEVICES[self.device],
            *(() if stored is None else ("--weights", stored)),
            *(() if kv is None else ("--kv-dtype", kv)),
            "--prompt-tokens",
            str(prompt),
            "--output-tokens",
            str(output),
            *panel.choices[self.arm].arguments,
            "--batch",
            str(BATCHES[self.batch]),
            *(() if not self.degree else ("--tensor-parallel", str(DEGREES[self.degree - 1]))),
            "--chunk",
            "2048",
            "--requests-per-s",
            "10",
        ]


def choices(panel: Panel, count: int) -> list[Chosen]:
    """So many at random, always the same ones."""
    draw = random.Random(6)
    sizes = {
        "model": len(panel.models),
        "weights": len(WEIGHTS),
        "kv": len(KV_DTYPES),
        "request": len(REQUESTS),
        "device": len(DEVICES),
        "degree": 1 + len(DEGREES),
        "arm": len(panel.choices),
        "batch": len(BATCHES),
    }
    return [Chosen(**{name: draw.randrange(size) for name, size in sizes.items()}) for _ in range(count)]


def asked(cli: Cli, arguments: list[str]) -> dict[str, Any]:
    """What `sbd capacity --json` says of the one device asked for."""
    assert cli(*arguments) in (0, 3), "3 where the device has no plan"
    (device,) = json.loads(cli.out)["devices"]
    found: dict[str, Any] = device
    return found


@cache
def with_verified() -> Panel:
    """The panel of a published run that has SBD and verified SBD."""
    return panel_of(published("verified_250m"), compared("verified_250m"))


def rendered(view: dict[str, Any]) -> str:
    """The panel's part of the page."""
    environment = Environment(loader=PackageLoader("harness.reporting"), autoescape=True, undefined=StrictUndefined)
    return environment.get_template("planner.html.j2").render(planner=view)
