"""Settings of arms: typed where they are read, written as ever, and kept where their method is not installed."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from harness.errors import RecordError
from harness.record.store import HEADER, read_run
from harness.record.written import WrittenArm, WrittenPart
from harness.scenario.loading import load_scenario
from harness.scenario.method import ArmSettings
from harness.scenario.plan import make_plan
from tests.helpers import ROOT
from tests.helpers.records import changed_record, small_record

TYPED = (".arm", ".spec", ".arm.values", ".spec.values")


@pytest.mark.parametrize("name", ["quickstart", "solvers", "every_arm"])
def test_what_a_plan_yields_is_written_and_read_back(name: str) -> None:
    """Settings are of their method's class; their values, in their order, are those that a record gives back."""
    for case in make_plan(load_scenario(name)).cases:
        assert isinstance(case.arm, ArmSettings) and case.arm.values["method"] == case.arm.method
        written = json.dumps(case.arm.model_dump(mode="json"))
        assert written == json.dumps(case.arm.values) == json.dumps(case.arm.written.model_dump(mode="json"))
        read = WrittenArm.model_validate(json.loads(written))
        assert (read.temperature, read.block_size, read.lossless) == (
            case.arm.temperature,
            case.arm.block_size,
            case.arm.lossless,
        )


def test_an_arm_of_a_method_that_is_not_installed_is_kept() -> None:
    """Its own keys in their order, beside those that every reader knows."""
    values = {"method": "somebody_elses", "depth": [1, {"wide": True}], "temperature": 0.5, "values": 3, "gamma": None}
    arm = WrittenArm.model_validate(values)
    assert (arm.method, arm.temperature, arm.gamma, arm.is_check) == ("somebody_elses", 0.5, None, False)
    assert list(arm.model_dump().items()) == list(values.items())
    changed = arm | {"temperature": 0.0, "depth": 2}
    assert changed.temperature == 0 and changed.values == values | {"temperature": 0.0, "depth": 2}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("method", 3),
        ("gamma", -1.0),
        ("gamma", "0.1"),
        ("temperature", 1e9),
        ("block_size", 0),
        ("block_size", 1.5),
        ("lossless", True),
    ],
)
def test_an_arm_that_no_run_writes_is_refused(key: str, value: object, tmp_path: Path) -> None:
    """With the file and the key."""
    with pytest.raises(RecordError) as refusal:
        read_run(changed_record(tmp_path, small_record(7), (HEADER, 0, "cases", 0, "arm", key), value))
    assert HEADER in str(refusal.value) and key in str(refusal.value)


def test_a_part_is_read_as_far_as_it_is_there() -> None:
    """An imported run, or an older one, lacks much."""
    part = WrittenPart.model_validate({"name": "p", "threads": None, "workload": {"prompts": 8, "tasks": ["x"]}, "later": 1})
    assert (part.threads, part.servers, part.workload.prompts, part.workload.synthetic) == (None, {}, 8, {})
    assert part.workload.values == {"prompts": 8, "tasks": ["x"]} and part.values["later"] == 1
    assert WrittenPart.model_validate({}).workload.prompts == 1


def looked_up(source: str) -> list[str]:
    """What a module asks of an arm by the name of a key."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Subscript):
            asked, key = node.value, node.slice
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
            asked, key = node.func.value, node.args[0]
        else:
            continue
        text = ast.unparse(asked)
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and (text.endswith(TYPED) or ".written(" in text):
            found.append(ast.unparse(node))
    return found


def test_nobody_asks_an_arm_by_name() -> None:
    """Outside harness/scenario; mypy sees every setting that is read."""
    modules = [file for file in (ROOT / "harness").rglob("*.py") if "scenario" not in file.relative_to(ROOT).parts]
    assert {file.name: found for file in modules if (found := looked_up(file.read_text(encoding="utf-8")))} == {}


def test_the_search_finds_look_ups() -> None:
    """So that the test above can fail."""
    assert looked_up("case.arm['method'], case.arm.get('gamma'), one.spec['k'], held.written(part).get('seed')") == [
        "case.arm['method']",
        "case.arm.get('gamma')",
        "one.spec['k']",
        "held.written(part).get('seed')",
    ]
    assert looked_up("case.arm.method, table['arm'], case.arm.values[key]") == []
