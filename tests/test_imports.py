"""Who may import whom: the layers of the design, read off the source, and a check that the check can fail."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.house import imports_of, name_of

ROOT = Path(__file__).resolve().parent.parent

# Longest prefix wins. A module may import its own layer and those below it. A new module is added here, on purpose.
LAYERS = {
    "harness": 0,
    **dict.fromkeys(("differing", "errors", "forked", "units", "progress"), 0),
    **dict.fromkeys(("anchors", "arms", "bandwidth_scale", "claims", "datafiles", "deployment", "frozen", "hardware"), 1),
    **dict.fromkeys(("block_checkpoints", "block_families", "block_protocol", "model_facts", "model_scenario"), 1),
    **dict.fromkeys(("local_profile", "measured", "model_choice", "model_decodable", "modelshape"), 1),
    **dict.fromkeys(("dataset_choice", "paper_table1", "prompts", "ranks", "record", "train_recipe"), 1),
    **dict.fromkeys(("arms_masked", "axes", "scenario", "solver_choice", "tasks", "trace", "workload_choice", "yaml_lines"), 1),
    **dict.fromkeys(("capacity", "compare", "estimates", "exports", "gate", "health", "history"), 2),
    **dict.fromkeys(("decode_log", "eval_request", "fitting", "likeness", "machines", "metrics", "single_arm"), 2),
    "training_cost": 2,
    **dict.fromkeys(("judgement", "methods", "pace", "plan", "roofline", "stats", "verdict"), 2),
    **dict.fromkeys(("decoding", "environment", "host_memory", "journal", "meters"), 3),
    **dict.fromkeys(("dataset_prompts", "modeling", "noise_floors", "replay", "source_digest", "store", "workload"), 3),
    **dict.fromkeys(("cluster", "keeping", "ray_cluster", "ray_node", "spreading", "taking"), 4),
    **dict.fromkeys(("custom_generate", "hub_repository"), 4),
    **dict.fromkeys(("check", "continuing", "frames", "machine", "processes", "reporting", "revisions", "runner"), 4),
    **dict.fromkeys(("__main__", "cli", "lm_eval_model"), 5),
}
# Packages from outside that a module may use; longest prefix wins, a layer's number is the default of its modules.
OUTSIDE = {
    0: set[str](),
    1: {"pydantic", "pydantic_core", "yaml"},
    2: {"numpy", "pydantic"},
    3: {"pydantic", "pydantic_core"},
    4: set[str](),
    5: {"pydantic", "rich", "typer"},
}
OUTSIDE_OF = {
    "history": {"numpy", "ruptures", "sqlalchemy"},
    "stats": {"numpy", "scipy"},
    "decoding": {"torch"},
    "decoding.fused_walk": {"torch", "triton"},
    "modeling": {"accelerate", "pydantic", "safetensors", "tokenizers", "torch", "transformers"},
    "meters": {"pydantic", "torch"},
    "meters.nvml": {"pynvml"},
    # The fixed cost of a pass is that of a transformers forward, so the bench times one; no model to be measured is loaded.
    "meters.torch_bench": {"torch", "transformers"},
    "machine": {"torch"},
    "check.attention": {"torch"},
    "check.conduct": {"torch", "yaml"},
    "check.exactness": {"torch", "transformers"},
    "check.half_precision": {"torch", "transformers"},
    "cli_doctor": {"torch", "typer"},
    "cli_eval": {"lm_eval", "typer"},
    "cli_train": {"accelerate", "torch", "typer"},
    "custom_generate": {"torch", "transformers"},
    "dataset_prompts": {"datasets", "huggingface_hub", "pydantic"},
    "frames": {"numpy", "pandas"},
    "hub_repository": {"transformers"},
    "lm_eval_model": {"lm_eval"},
    "ray_cluster": {"ray"},
    "ray_node": {"pydantic"},
    "reporting": {"jinja2", "markupsafe", "matplotlib", "numpy", "pandas", "pydantic_core"},
    "single_arm": {"pydantic", "yaml"},
}
# Closer rules of the design: what a room must not know, although its layer would allow it.
FORBIDDEN = {
    "decoding": {"harness.meters", "harness.engine", "harness.hardware.profile", "harness.workloads.tasks", "pathlib", "time"},
    "meters": {"harness.decoding", "harness.engine", "harness.models"},
    "reporting": {
        "harness.roofline", "harness.meters", "harness.engine", "harness.decoding", "harness.runner.runner", "scipy", "statistics",
    },
    "runner": {"torch", "transformers", "harness.engine", "harness.meters"},
    "spreading": {"ray", "torch", "harness.runner.cluster.ray_cluster", "harness.engine", "harness.meters"},
    "taking": {"torch", "transformers", "harness.engine", "harness.meters"},
    "roofline": {"harness.decoding"},
}  # fmt: skip


def longest(module: str, table: dict[str, object]) -> str | None:
    """The key of ``table`` that names ``module`` (without ``harness.``) most closely; ``compare`` covers ``compare_arms``."""
    name = module.removeprefix("harness.")
    return max((key for key in table if name == key or name.startswith((f"{key}.", f"{key}_"))), key=len, default=None)


def faults(source: str, module: str) -> list[str]:
    """Every forbidden import of one module, in words."""
    own = longest(module, dict(LAYERS))
    if own is None:
        return [f"{module} is in no layer; add it to LAYERS in {Path(__file__).name}"]
    outside_key = longest(module, dict(OUTSIDE_OF))
    allowed = OUTSIDE_OF[outside_key] if outside_key else OUTSIDE[LAYERS[own]]
    room = longest(module, dict(FORBIDDEN))
    banned = FORBIDDEN[room] if room else set()
    found = []
    for line, name in imports_of(source, module):
        top = name.partition(".")[0]
        key = longest(name, dict(LAYERS))
        if any(name == word or name.startswith(f"{word}.") for word in banned):
            found.append(f"{module}:{line} must not know {name}")
        elif top == "harness" and key is not None and LAYERS[key] > LAYERS[own]:
            found.append(f"{module}:{line} (layer {LAYERS[own]}) imports {name} (layer {LAYERS[key]})")
        elif top not in {"harness", "__future__"} and top not in sys.stdlib_module_names and top not in allowed:
            found.append(f"{module}:{line} imports {name}; allowed from outside: {', '.join(sorted(allowed)) or 'nothing'}")
    return found


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of the package with its file."""
    for file in sorted((ROOT / "harness").rglob("*.py")):
        yield name_of(file), file


def test_nothing_imports_what_it_must_not() -> None:
    """Every import of every module goes down the layers and stays within its room."""
    assert [fault for module, file in modules() for fault in faults(file.read_text(encoding="utf-8"), module)] == []


@pytest.mark.parametrize(
    ("module", "source", "words"),
    [
        ("harness.record.schema", "import torch", "allowed from outside: pydantic"),
        ("harness.scenario.plan", "def f():\n    from transformers import AutoModel", "harness.scenario.plan:2 imports transformers"),
        ("harness.roofline.operations", "from harness.record.store import read_run", "imports harness.record.store (layer 3)"),
        ("harness.roofline.operations", "from harness import store", "imports harness.record.store (layer 3)"),
        ("harness.roofline.operations", "from .. import runner", "imports harness.runner.runner (layer 4)"),
        ("harness.record.trace", "from harness.scenario.plan import Plan", "(layer 1) imports harness.scenario.plan (layer 2)"),
        ("harness.errors", "import yaml", "allowed from outside: nothing"),
        ("harness.decoding.set_block", "import time", "must not know time"),
        ("harness.decoding.set_block", "from harness.hardware.profile import load_profile", "must not know harness.hardware.profile"),
        ("harness.meters.clock", "from harness.engine import session", "must not know harness.engine"),
        ("harness.meters.clock", "import pynvml", "imports pynvml"),
        ("harness.decoding.sampling", "import triton", "imports triton"),
        ("harness.runner.runner", "import torch.cuda", "must not know torch.cuda"),
        ("harness.reporting.page", "import statistics", "must not know statistics"),
        ("harness.analysis.arm_metrics", "import pandas", "allowed from outside: numpy, pydantic"),
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
        ("harness.scenario.plan", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from harness.record.store import RunStore"),
        ("harness.meters.nvml", "import pynvml"),
        ("harness.analysis.stats.quantity", "from scipy import special"),
    ],
)
def test_the_check_allows_what_the_design_allows(module: str, source: str) -> None:
    """Downward imports, type-only imports and a room's own packages pass."""
    assert faults(source, module) == []


HEAVY = (
    "torch", "transformers", "pynvml", "pandas", "matplotlib", "jinja2", "scipy", "rich", "numpy", "sqlalchemy", "ruptures",
)  # fmt: skip


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
    own_torch = {"check", "custom_generate", "decoding", "hub_repository", "lm_eval_model", "modeling", "machine", "__main__"}
    names = [name for name, _ in modules() if longest(name, dict(LAYERS)) not in own_torch]
    names = [name for name in names if not name.startswith("harness.meters")]
    program = "import importlib\n" + f"for name in {names!r}: importlib.import_module(name)"
    assert loaded_by(program) & {"torch", "transformers", "pynvml"} == set()
