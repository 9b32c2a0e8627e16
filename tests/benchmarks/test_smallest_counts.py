"""Every benchmark that stores figures runs its smallest count, here or in a test of its own; the rest are named."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from benchmarks import client, results_file, sampled_real_model
from benchmarks.house import imports_of, name_of
from harness.meters.environment import snapshot
from harness.models.choice import REFERENCE_DIR
from tests.helpers import ROOT

TESTED = {
    "decision": "tests/benchmarks/test_decision.py",
    "engines": "tests/benchmarks/test_engines.py",
    "faults": "tests/integration/test_ray.py",
    "gate_real": "tests/integration/test_gate_real.py",
    "hostile": "tests/benchmarks/test_hostile.py",
    "launches": "tests/benchmarks/test_launches.py",
    "verdict_errors": "tests/benchmarks/test_verdict_errors.py",
}
"""Benchmarks whose smallest count another test runs."""
CANNOT = {
    "adapter_training": "a model of the package registry and the answers that a training wrote with it",
    "served_divergences": "a record of real servers, and its model in float64",
    "served_faults": "a real vLLM, killed and stopped forty times",
}
"""Benchmarks that nothing runs in a test, and what they need."""


@dataclass(frozen=True, kw_only=True)
class Smallest:
    """How ``main`` is called. ``constants`` of the module; ``fixed`` arguments of its functions, by name.

    ``missing``: a pattern of stored figures that so few cases do not have.
    """

    arguments: tuple[str, ...] = ()
    constants: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    missing: str = "none"
    is_long: bool = False


def ragged_run() -> Any:
    """One batch of two rows: in lockstep they wait in turns, four passes for three of their own; ragged ones wait for none."""
    cases, samples = [], []
    for batching, active in (("lockstep", [[1, 1], [1, 0], [0, 1], [1, 1]]), ("ragged", [[1, 1], [1, 1], [1, 1]])):
        cases.append(
            SimpleNamespace(case_id=batching, arm=SimpleNamespace(method="sbd", gamma=0.1, values={"batching": batching}))
        )
        passes = SimpleNamespace(role=["prefill", *["decide"] * len(active)], active=[[1, 1], *active])
        passes.padded_query = [16] * (1 + len(active))
        rows = [None, None]
        samples.append(SimpleNamespace(case_id=batching, warmup=False, repeat=0, decode_s=1.0, passes=passes, rows=rows))
    return SimpleNamespace(header=SimpleNamespace(cases=cases, environment=snapshot()), samples=samples)


SMALLEST = {
    "anchored": Smallest(),
    "auto_width": Smallest(arguments=("reports/real_model_native",), missing="real_model_auto_.*", is_long=True),
    "baseline": Smallest(arguments=("reports/quickstart",), missing=".*_250m.*"),
    "compare_false_alarms": Smallest(
        constants={"TRIALS": {16: 1, 200: 1}, "FINDING_TRIALS": 1},
        fixed={"found_pct": {"trials": 1}, "of_one_code": {"trials": 1}},
    ),
    "gate_power": Smallest(fixed={"simulate": {"trials": 1}}),
    "golden": Smallest(arguments=("HEAD",), is_long=True),
    "history_trend": Smallest(
        constants={"MACHINES": 1, "SCENARIOS": 1, "COMMITS": 12, "REPEATS": 1, "LAST": 40}
        | {"HISTORIES": 1, "PAGES": 1, "YEARS": 4, "YEAR": 2, "DELAYS": 1},
        missing=".*seconds_10000_records.*",
        is_long=True,
    ),
    "interval_coverage": Smallest(constants={"RUNS": 2, "HARDER_RUNS": 1}),
    "large_run": Smallest(
        constants={"PARTS": 1, "TASKS": ("code",), "BATCH_SIZES": (1,), "PROMPTS": 2, "BLOCKS": 1, "REPEATS": 1}
        | {"PASSES_PER_BLOCK": (4,)},
        is_long=True,
    ),
    "lossless": Smallest(arguments=("reports/quickstart",), missing="identical_to_ntp/.*"),
    "overhead": Smallest(constants={"ROUNDS": 1, "WARM_ROUNDS": 0, "VOCAB_OF_8B": 512}, missing=".*_250m"),
    "planning": Smallest(constants={"RUNS": 1, "MOST_PROMPTS": 1_000, "MOST_DECODES": 1_000}, missing="decided_.*pct"),
    "prediction": Smallest(arguments=("reports/quickstart",), missing=".*(?<!_reference)"),
    "prediction_published": Smallest(
        arguments=("reports/quickstart",), missing=".*(?<!quickstart_reference)(?<!pct_reference)"
    ),
    "ragged": Smallest(missing=".*_gamma_0.003"),
    "real_model": Smallest(arguments=("reports/real_model",), missing="sampled_.*"),
    "real_model_passes": Smallest(arguments=("reports/real_model_passes",), constants={"DRAWS": 2}),
    # By today's rule no claim of that record's accuracy can be decided: no arm is wrong in one of 100.
    "reference_model": Smallest(arguments=("reports/reference_accuracy",), missing="best_nfe_speedup_within_1pt", is_long=True),
    "report_size": Smallest(
        constants={"PARTS": 1, "ARMS": 2, "TASKS": ("code",), "PROMPTS": 2, "REPEATS": 1, "ROUNDS": 1}, is_long=True
    ),
    "roofline_throughput": Smallest(constants={"CELLS": 100, "ROUNDS": 1}),
    "second_roofline": Smallest(),
    "served": Smallest(arguments=("reports/served_vllm", "reports/served_vllm"), constants={"GATES": 1}, missing="delay.*"),
    "served_queue": Smallest(arguments=("reports/served_load",)),
    "solvers": Smallest(arguments=("reports/quickstart",), missing="untimed_.*|.*_variable_trace|.*_lossy_.*"),
}
OWN = ("client", "sampled_real_model")
"""Benchmarks with a test below that calls a part of ``main``."""


def writers() -> set[str]:
    """The benchmarks that call write_results: a module of benchmarks/, or a package with a __main__."""
    found = set()
    for file in (ROOT / "benchmarks").rglob("*.py"):
        calls = (one.func for one in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(one, ast.Call))
        if any(isinstance(one, ast.Name) and one.id == "write_results" for one in calls):
            found.add(name_of(file).removeprefix("benchmarks.").removesuffix(".__main__"))
    return found


def test_every_benchmark_that_stores_figures_is_run_or_says_why_not() -> None:
    """By exactly one of the tables; a test of another file imports the benchmark."""
    assert sorted([*SMALLEST, *TESTED, *CANNOT, *OWN]) == sorted(writers())
    for name, file in TESTED.items():
        imported = {module for _, module in imports_of((ROOT / file).read_text(encoding="utf-8"), file)}
        assert any(module.startswith(f"benchmarks.{name}") for module in imported), file


def with_fixed(function: Callable[..., Any], given: Mapping[str, Any]) -> Callable[..., Any]:
    """The function with some arguments replaced, however it is called."""

    def called(*arguments: Any, **by_name: Any) -> Any:
        bound = inspect.signature(function).bind(*arguments, **by_name)
        bound.arguments.update(given)
        return function(*bound.args, **bound.kwargs)

    return called


def made_small(name: str, module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no constant does."""
    if name == "anchored":
        monkeypatch.setattr(module, "fit", lambda *_: module.START)
        monkeypatch.setattr(module, "FILE", tmp_path / "anchored.yaml")
    elif name == "golden":
        monkeypatch.setattr(module, "questions", lambda _: [module.Question("plan --help")])
        monkeypatch.setattr(module, "records_into", lambda folder: folder.mkdir())
    elif name == "overhead":
        whole = module.parts()
        parts = [one for one in whole.parts if one.name == "reference"]
        monkeypatch.setattr(module, "parts", lambda: whole.model_copy(update={"parts": parts}))
    elif name == "planning":
        few = ("speed_8x1_+10pct", "accuracy_8_within_5_lost_0_differing_10pct")
        monkeypatch.setattr(module, "CELLS", [one for one in module.CELLS if one.key in few])
    elif name == "ragged":
        monkeypatch.setattr(module, "measured_run", lambda _: ragged_run())
    elif name == "reference_model":
        monkeypatch.setattr(module, "HERE", tmp_path)
    elif name == "roofline_throughput":
        monkeypatch.delitem(sys.modules, "torch")
    elif name == "served_queue":
        once = partial(module.optimize.least_squares, max_nfev=1)
        monkeypatch.setattr(module, "optimize", SimpleNamespace(least_squares=once))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if one.is_long else []) for name, one in SMALLEST.items()]
)
def test_the_smallest_count_has_the_figures_that_are_stored(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each a finite number, of sources that are named; but for those of cases that are left out, all of them."""
    is_package, small = (ROOT / "benchmarks" / name).is_dir(), SMALLEST[name]
    module, stored = importlib.import_module(f"benchmarks.{name}{'.__main__' * is_package}"), results_file.stored()
    monkeypatch.setattr(results_file, "RESULTS", tmp_path / "results")
    monkeypatch.setattr("sys.argv", [name, *small.arguments])
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(ROOT)
    for constant, value in small.constants.items():
        monkeypatch.setattr(module, constant, value)
    for function, given in small.fixed.items():
        monkeypatch.setattr(module, function, with_fixed(getattr(module, function), given))
    made_small(name, module, tmp_path, monkeypatch)
    module.main()
    found = json.loads((tmp_path / "results" / f"{name}.json").read_text(encoding="utf-8"))
    before = stored[name]["figures"]
    assert found["figures"] and all(math.isfinite(value) for value in found["figures"].values())
    assert [key for key in before.keys() - found["figures"].keys() if not re.fullmatch(small.missing, key)] == []
    assert found["by"] == module.__name__ and f"benchmarks/{name}" in found["sources"]
    assert {word for word in small.arguments if word.startswith("reports/")} <= found["sources"].keys()


def test_streams_of_the_client_arrive_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two streams of three chunks; the capture of packets, which needs root, is left out."""
    for name, value in {"STREAMS": 2, "CHUNKS": 3}.items():
        monkeypatch.setattr(client, name, value)

    async def both() -> tuple[list[Any], float, float]:
        server = await asyncio.start_server(client.stream, "127.0.0.1", port := client.free_port())
        async with server:
            return await client.drive(port)

    answers, cpu_s, wall_s = asyncio.run(both())
    assert [[chunk.ids for chunk in answer.chunks] for answer in answers] == [[(0,), (1,), (2,)], [(3,), (4,), (5,)]]
    assert cpu_s > 0 and wall_s > 0


def test_samples_of_the_model_itself_are_uniform_and_those_of_another_temperature_are_not() -> None:
    """200 answers of the reference model by transformers alone: drawn at 0.7, and at 2, which the test must tell apart."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(REFERENCE_DIR / "sbd", dtype=torch.float32)
    prompt = list(range(10, 22))

    def places(temperature: float) -> list[float]:
        asked = torch.tensor([prompt] * 200)
        drawn = model.generate(asked, do_sample=True, temperature=temperature, top_k=0, max_new_tokens=6, eos_token_id=None)
        answers = drawn[:, len(prompt) :].tolist()
        return sampled_real_model.places(model, prompt, answers, np.random.default_rng(0))

    assert len(places(sampled_real_model.TEMPERATURE)) == 200 * (6 - sampled_real_model.FIRST_CHECKED)
    assert sampled_real_model.test(places(sampled_real_model.TEMPERATURE))[1] > 1e-3
    assert sampled_real_model.test(places(2.0))[1] < 1e-6
