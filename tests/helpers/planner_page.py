"""The planner of the published quickstart, rendered."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from jinja2 import Environment, PackageLoader, StrictUndefined

from harness.analysis.comparison import Comparison, compare
from harness.models.choice import REFERENCE_DIR
from harness.record.schema import Run
from harness.record.store import read_run
from harness.reporting.planner.panel import BATCHES, CONTEXTS, DEVICES, LOADS, OUTPUT_TOKENS, Panel, panel_of
from tests.helpers import ROOT
from tests.helpers.command import sbd

QUICKSTART = ROOT / "reports" / "quickstart"
FIGURES = ("tokens_per_s_per_user", "tokens_per_s_per_gpu", "usd_per_million_tokens", "kwh_per_million_tokens")


@cache
def compared() -> tuple[Run, Comparison]:
    """The published quickstart."""
    run = read_run(QUICKSTART)
    return run, compare(run)


def quickstart() -> Panel:
    """Its panel: two small models of its own and the paper's."""
    return panel_of(*compared())


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """One way to set the choices, by their places."""

    model: int
    device: int
    context: int
    batch: int
    choice: int
    load: int

    def arguments(self, panel: Panel) -> list[str]:
        """The question as a user of the command line puts it."""
        name, load = panel.models[self.model].name, LOADS[self.load]
        model = str(REFERENCE_DIR / "sbd") if name == "reference-sbd" else name
        context, batch = str(CONTEXTS[self.context]), str(BATCHES[self.batch])
        place = ["--hardware", DEVICES[self.device], "--context", context, "--batch", batch]
        served = [] if load is None else ["--output-tokens", str(OUTPUT_TOKENS), "--requests-per-s", str(load)]
        return ["capacity", "--json", "--model", model, *place, *panel.choices[self.choice].arguments, *served]


def choices(panel: Panel, count: int) -> list[Chosen]:
    """So many at random, always the same ones."""
    draw = random.Random(6)
    sizes = {"model": len(panel.models), "device": len(DEVICES), "context": len(CONTEXTS), "batch": len(BATCHES),
             "choice": len(panel.choices), "load": len(LOADS)}  # fmt: skip
    return [Chosen(**{name: draw.randrange(size) for name, size in sizes.items()}) for _ in range(count)]


def asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> dict[str, Any]:
    """What `sbd capacity --json` says of the one device asked for."""
    assert sbd(monkeypatch, *arguments) in (0, 3), "3 where the device has no plan"
    (device,) = json.loads(capsys.readouterr().out)["devices"]
    found: dict[str, Any] = device
    return found


def rendered(view: dict[str, Any]) -> str:
    """The panel's part of the page."""
    environment = Environment(loader=PackageLoader("harness.reporting"), autoescape=True, undefined=StrictUndefined)
    return environment.get_template("planner.html.j2").render(planner=view)
