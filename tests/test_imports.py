"""Who may import whom: the layers and the two wings of the design, read off the source, and a check that the check can fail."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.house import imports_of, name_of
from tests.helpers import ROOT

# A package may import itself, its own layer and those below it.
LAYERS = {
    "harness": 0,
    **dict.fromkeys(("errors", "formatting", "frozen", "paths", "processes", "progress", "config_file"), 0),
    **dict.fromkeys(("models", "hardware", "kernels", "workloads", "stats"), 1),
    "record": 2,
    "scenario": 3,
    **dict.fromkeys(("roofline", "decoding", "meters"), 4),
    **dict.fromkeys(("capacity", "analysis"), 5),
    **dict.fromkeys(("regression", "engine", "serving"), 6),
    **dict.fromkeys(("reporting", "runner", "training", "integrations"), 7),
    "check": 8,
    **dict.fromkeys(("cli", "__main__"), 9),
}
REASONING = {"capacity", "analysis", "regression", "reporting"}
MEASURING = {"kernels", "decoding", "meters", "engine", "training", "integrations", "serving", "runner"}
"""The two wings: neither imports the other."""
# Packages from outside, pydantic apart; the longest name wins.
OUTSIDE = {
    "config_file": {"yaml"},
    "workloads.datasets": {"datasets", "huggingface_hub"},
    "hardware": {"yaml"},
    "kernels": {"torch"},
    "scenario": {"yaml"},
    "roofline": {"numpy"},
    "capacity": {"numpy"},
    "stats": {"numpy", "ruptures", "scipy"},
    "analysis": {"numpy", "pandas"},
    # In a process of its own. Answers are graded again from their ids; the library is small and need not be there.
    "models.limited_process": {"tokenizers"},
    "regression": {"numpy", "sqlalchemy"},
    "reporting": {"jinja2", "markupsafe", "matplotlib", "numpy", "pandas"},
    "decoding": {"torch"},
    "decoding.fused_walk": {"torch", "triton"},
    "meters": {"pynvml", "torch", "triton"},
    # The fixed cost of a pass is that of a transformers forward, so the bench times one; no model to be measured is loaded.
    "meters.torch_bench": {"torch", "transformers"},
    "engine": {"accelerate", "huggingface_hub", "regex", "safetensors", "tokenizers", "torch", "transformers"},
    "engine.fused_merge": {"torch", "triton"},
    "training": {"numpy", "tokenizers", "torch", "transformers"},
    "integrations": {"lm_eval", "torch", "transformers"},
    "serving": {"httpx2", "numpy", "prometheus_client"},
    "runner.local_machine": {"torch"},
    "runner.cluster.ray_cluster": {"ray"},
    "check": {"torch", "transformers", "yaml"},
    "cli": {"accelerate", "lm_eval", "rich", "torch", "typer"},
}
EVERYWHERE = {"__future__", "harness", "pydantic", "pydantic_core"}
# Closer rules of the design: what a room must not know, although its layer would allow it.
FORBIDDEN = {
    "decoding": {"harness.hardware", "harness.meters", "harness.roofline", "harness.workloads.tasks", "pathlib", "time"},
    "meters": {"harness.decoding", "harness.models"},
    "reporting": {"harness.roofline", "scipy", "statistics"},
    "runner.runner": {"torch", "transformers", "harness.engine", "harness.meters"},
    "runner.worker": {"torch", "transformers", "harness.engine"},
    "runner.sampling": {"torch", "transformers", "harness.engine"},
    "runner.cluster.scheduler": {"harness.runner.cluster.ray_cluster", "harness.engine", "harness.meters"},
    "roofline": {"harness.decoding", "harness.meters"},
    "serving": {"torch", "harness.engine", "harness.decoding"},
}


def longest(module: str, table: dict[str, set[str]]) -> set[str]:
    """What ``table`` says of the name that is ``module`` (without ``harness.``) or the closest package above it."""
    name = module.removeprefix("harness.")
    keys = [key for key in table if name == key or name.startswith(f"{key}.")]
    return table[max(keys, key=len)] if keys else set()


def room_of(module: str) -> str:
    """The package, or the flat module, directly below harness."""
    return ".".join(module.split(".")[1:2]) or "harness"


def faults(source: str, module: str) -> list[str]:
    """Every forbidden import of one module, in words."""
    own = room_of(module)
    if own not in LAYERS:
        return [f"{module} is in no layer; add it to LAYERS in {Path(__file__).name}"]
    allowed, banned = longest(module, OUTSIDE), longest(module, FORBIDDEN)
    found = []
    for line, name in imports_of(source, module):
        top, room = name.partition(".")[0], room_of(name)
        if any(name == word or name.startswith(f"{word}.") for word in banned):
            found.append(f"{module}:{line} must not know {name}")
        elif top == "harness" and room in LAYERS and LAYERS[room] > LAYERS[own]:
            found.append(f"{module}:{line} (layer {LAYERS[own]}) imports {name} (layer {LAYERS[room]})")
        elif top == "harness" and {own, room} & REASONING and {own, room} & MEASURING and {own, room} <= REASONING | MEASURING:
            found.append(f"{module}:{line} imports {name} of the other wing")
        elif top not in EVERYWHERE | allowed and top not in sys.stdlib_module_names:
            found.append(f"{module}:{line} imports {name}; allowed from outside: {', '.join(sorted(allowed)) or 'nothing'}")
    return found


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of the package with its file."""
    for file in sorted((ROOT / "harness").rglob("*.py")):
        yield name_of(file), file


def test_nothing_imports_what_it_must_not() -> None:
    """Every import of every module goes down the layers and stays within its room and its wing."""
    assert [fault for module, file in modules() for fault in faults(file.read_text(encoding="utf-8"), module)] == []


@pytest.mark.parametrize(
    ("module", "source", "words"),
    [
        ("harness.record.schema", "import torch", "allowed from outside: nothing"),
        ("harness.scenario.plan", "def f():\n    from transformers import AutoModel", "plan:2 imports transformers"),
        ("harness.roofline.pricing", "from harness.runner.job import read", "imports harness.runner.job (layer 7)"),
        ("harness.roofline.pricing", "from harness import runner", "imports harness.runner (layer 7)"),
        ("harness.roofline.pricing", "from .. import runner", "imports harness.runner (layer 7)"),
        ("harness.record.trace", "from harness.scenario.plan import Plan", "(layer 2) imports harness.scenario.plan (layer 3)"),
        ("harness.analysis.trust.health", "from harness.meters.window import Readings", "of the other wing"),
        ("harness.runner.worker", "from harness.analysis.results import ArmResult", "of the other wing"),
        ("harness.errors", "import yaml", "allowed from outside: nothing"),
        ("harness.decoding.set_block", "import time", "must not know time"),
        ("harness.decoding.set_block", "from harness.hardware.profile import load_profile", "must not know harness.hardware"),
        ("harness.decoding.sampling", "import triton", "imports triton"),
        ("harness.meters.clock", "from harness.models import ModelShape", "must not know harness.models"),
        ("harness.runner.runner", "import torch.cuda", "must not know torch.cuda"),
        ("harness.reporting.page", "import statistics", "must not know statistics"),
        ("harness.regression.gate.procedure", "import pandas", "allowed from outside: numpy, sqlalchemy"),
        ("harness.newcomer", "", "is in no layer"),
    ],
)
def test_the_check_can_fail(module: str, source: str, words: str) -> None:
    """Each rule catches a planted breach."""
    assert any(words in fault for fault in faults(source, module)), faults(source, module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("harness.record.store", "from harness.record.schema import Run\nimport gzip"),
        (
            "harness.scenario.plan",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from harness.runner.job import Job",
        ),
        ("harness.meters.nvml", "import pynvml"),
        ("harness.stats.quantity", "from scipy import special"),
    ],
)
def test_the_check_allows_what_the_design_allows(module: str, source: str) -> None:
    """Downward imports, type-only imports and a room's own packages pass."""
    assert faults(source, module) == []


ANNEXES = {
    "imports": ("record.imports", "scenario.imported", "cli.import_results"),
    "training": ("training", "cli.train"),
    "integrations": ("integrations",),
    "cluster": ("runner.cluster",),
    "history": ("regression.history", "reporting.trend", "cli.history"),
    "survey": (
        *("roofline.anchors", "roofline.anchor_values", "roofline.methods", "roofline.paper_steps"),
        *("cli.anchors", "cli.methods", "cli.paper"),
    ),
}
"""Capabilities that the core never imports, each with its packages and modules below harness, its commands among them.

A command of the core may import one inside a function, when it is called.
"""
BREAKS = {
    "analysis.trust.imported": "totals of an imported run are counted by the module that reads such files",
    "cli.roofline": "its modes are commands of the survey",
    "cli.run": "Ray's class, whose library is imported only where it is used",
    "reporting.side_by_side": "a page of two runs may show the history of the first",
}
"""Modules of the core that import an annex all the same, and why; to be removed one by one."""


def annex_of(module: str) -> str | None:
    """The annex that a module is part of; None for the core."""
    name = module.removeprefix("harness.")
    parts = {part: annex for annex, parts in ANNEXES.items() for part in parts}
    return next((annex for part, annex in parts.items() if name == part or name.startswith(f"{part}.")), None)


def annexes_imported(source: str, module: str) -> set[str]:
    """The annexes that a module of the core imports; by a command, when its module is loaded."""
    if annex_of(module) is not None:
        return set()
    loaded = {node.lineno for node in ast.parse(source).body}
    names = (name for line, name in imports_of(source, module) if room_of(module) != "cli" or line in loaded)
    return {annex for name in names if (annex := annex_of(name)) is not None}


def test_the_core_imports_no_annex() -> None:
    """Exactly the modules of BREAKS do."""
    breaking = {module for module, file in modules() if annexes_imported(file.read_text(encoding="utf-8"), module)}
    assert breaking == {f"harness.{name}" for name in BREAKS}


@pytest.mark.parametrize(
    ("module", "source", "annexes"),
    [
        ("harness.engine.loading", "from harness.training import recipe", {"training"}),
        ("harness.engine.loading", "def f():\n    import harness.integrations.lm_eval", {"integrations"}),
        ("harness.cli.plan", "from harness.roofline.methods.calls import price_method", {"survey"}),
        ("harness.cli.plan", "def f():\n    from harness.training.recipe import load_recipe", set()),
        ("harness.training.trainer", "from harness.training.recipe import load_recipe", set()),
        ("harness.roofline.pricing", "from harness.roofline.anchored import constants", set()),
    ],
)
def test_an_import_of_an_annex_is_seen(module: str, source: str, annexes: set[str]) -> None:
    """A module of the core that imports one is found; a command may, once it is called."""
    assert annexes_imported(source, module) == annexes


@pytest.mark.parametrize("part", [part for parts in ANNEXES.values() for part in parts])
def test_an_annex_is_there(part: str) -> None:
    """The list names modules that exist."""
    assert importlib.util.find_spec(f"harness.{part}") is not None


HEAVY = (
    "torch",
    "transformers",
    "pynvml",
    "pandas",
    "matplotlib",
    "jinja2",
    "scipy",
    "rich",
    "numpy",
    "sqlalchemy",
    "ruptures",
)


def loaded_by(program: str) -> set[str]:
    """The heavy packages in sys.modules after a program."""
    code = f"{program}\nimport sys; print(' '.join(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


def test_importing_the_package_and_its_command_line_is_light() -> None:
    """`import harness` and `sbd --help` load none of the heavy packages."""
    assert loaded_by("import harness; harness.__version__; harness.__all__") == set()
    assert "pandas" in loaded_by("import harness; harness.load_run"), "the interface is there when it is asked for"
    assert loaded_by("import harness.cli") == set()


def test_predicting_and_reporting_never_load_torch() -> None:
    """Everything below the runner that has no torch of its own, and reporting, leave torch, transformers and pynvml out."""
    own_torch = {"check", "decoding", "engine", "integrations", "kernels", "meters", "training", "__main__"}
    names = [name for name, _ in modules() if room_of(name) not in own_torch and name != "harness.runner.local_machine"]
    program = "import importlib\n" + f"for name in {names!r}: importlib.import_module(name)"
    assert loaded_by(program) & {"torch", "transformers", "pynvml"} == set()


@pytest.mark.parametrize("file", sorted((ROOT / "benchmarks").rglob("*.py")), ids=lambda file: file.stem)
def test_a_benchmark_imports_what_is_there(file: Path) -> None:
    """Benchmarks that no test runs, because they take a server or an hour, still name what the program has."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "harness":
            module = importlib.import_module(node.module or "")
            missing = [one.name for one in node.names if not hasattr(module, one.name)]
            there = [importlib.util.find_spec(f"{node.module}.{name}") for name in missing]
            assert all(there), f"{file.name}: {node.module} has no {', '.join(missing)}"


DOORS = {"harness.reporting", "harness.reporting.gallery"}
"""They read runs and hand their answers to the renderers."""


def test_no_renderer_judges() -> None:
    """Whoever shows an answer is handed it; the values that it is made of may be named."""
    making = ("answer", "cells", "figures.arms", "judge.check", "judge.highlight", "judge.verdict")
    names = {f"harness.analysis.{name}" for name in making}
    found = {
        module
        for module, file in modules()
        if room_of(module) == "reporting"
        and any(name.startswith(tuple(names)) for _, name in imports_of(file.read_text(encoding="utf-8"), module))
    }
    assert found == DOORS
