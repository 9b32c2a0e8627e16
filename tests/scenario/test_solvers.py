"""Solvers as a scenario names them: registry, knobs of an arm, ids and labels, and that older files say what they said."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.analysis.answer import compare
from harness.errors import ScenarioError
from harness.reporting.cells import arm as in_words
from harness.scenario.arms import SbdArm
from harness.scenario.loading import load_scenario, scenario_digest
from harness.scenario.plan import make_plan
from harness.scenario.scenario import Scenario
from harness.scenario.solvers import KNOBS, SOLVERS
from tests.helpers import ROOT
from tests.helpers import synthetic_run as synthetic
from tests.helpers.plans import plan_of
from tests.helpers.scenarios import GOOD, write

PUBLISHED = sorted(folder.parent for folder in (ROOT / "reports").glob("*/run.json"))
ARM = "parts.0.arms.1"


def scenario_with(folder: Path, arm: str) -> Scenario:
    """GOOD with these keys on its SBD arm."""
    return load_scenario(write(folder, GOOD.replace("block_size: 16, gamma: [0, 0.35]", arm)))


def arms_of(folder: Path, arm: str) -> list[tuple[str, str, dict[str, Any]]]:
    """(end of the case id, label, values of the knobs) of the SBD cases."""
    cases = [case for case in make_plan(scenario_with(folder, arm)).cases if case.arm.method == "sbd"]
    return [(case.case_id.rpartition("/")[2], case.label, case.arm.knobs) for case in cases]


def test_every_name_has_a_rule_and_every_rule_a_name() -> None:
    """The registry, which needs no torch, and the functions have the same names."""
    pytest.importorskip("torch")
    from tests.helpers import solver_rules

    assert [rule.__name__ for rule in solver_rules.SOLVERS.values()] == list(SOLVERS)


@pytest.mark.parametrize("folder", PUBLISHED, ids=lambda folder: folder.name)
def test_runs_from_before_other_solvers_are_what_they_were(folder: Path) -> None:
    """Their resolved scenarios read back have the same digest, and plan the same ids, labels and arms, in the same order, but
    for a width that was left to the machine.
    """

    def fixed(arm: Mapping[str, Any]) -> list[tuple[str, Any]]:
        return [(key, value) for key, value in arm.items() if key != arm.get("auto")]

    header = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    scenario = Scenario.model_validate(header["scenario"])
    assert scenario_digest(scenario.model_dump(mode="json")) == header["scenario_digest"]
    planned = [(case.case_id, case.label, fixed(case.arm.values)) for case in make_plan(scenario).cases]
    assert planned == [(case["case_id"], case["label"], fixed(case["arm"])) for case in header["cases"]]


def test_there_are_such_runs() -> None:
    """The quickstart's real and replayed arms among them."""
    assert {"quickstart", "reference_accuracy"} <= {folder.name for folder in PUBLISHED}


@pytest.mark.parametrize("name", SOLVERS)
def test_an_arm_takes_every_solver_at_its_usual_settings(name: str) -> None:
    """Distinct ids and labels that name the solver and its values; the resolved arm is read back the same."""
    sweep = SOLVERS[name].sweep
    plan = plan_of(arms=[{"method": "ntp"}, {"method": "sbd", "solver": name} | {knob: list(v) for knob, v in sweep.items()}])
    cases = [case for case in plan.cases if case.arm.method == "sbd"]
    assert len(cases) == len(next(iter(sweep.values()))) == 3 and KNOBS.keys() >= sweep.keys()
    assert len({case.case_id for case in cases}) == len({case.label for case in cases}) == 3
    assert all(case.case_id.endswith(f"-{name}") and SOLVERS[name].words in case.label for case in cases)
    assert all(f"{value:g}" in case.label for case in cases for value in case.arm.knobs.values())
    dumped = json.loads(json.dumps(plan.scenario.model_dump(mode="json")))
    assert Scenario.model_validate(dumped) == plan.scenario
    assert KNOBS.keys() & dumped["parts"][0]["arms"][1].keys() == {"gamma", *sweep}


def test_the_usual_settings_go_from_cautious_to_bold() -> None:
    """By the side that the knob is bolder on."""
    for spec in SOLVERS.values():
        for knob, values in spec.sweep.items():
            assert list(values) == sorted(values, reverse=KNOBS[knob].bolder == "less")


def test_ids_and_labels() -> None:
    """By hand, one knob and two; γ keeps its own short form."""
    arms = {
        "sbd-k16-g0.1-t0-entropy_bounded": ("SBD k=16 γ=0.1", {"gamma": 0.1}),
        "sbd-k16-g0.1-t0-entropy_bounded_margin": (
            "SBD k=16 margin order γ=0.1",
            {"solver": "entropy_bounded_margin", "gamma": 0.1},
        ),
        "sbd-k16-f1-t0-factor": ("SBD k=16 factor f=1", {"solver": "factor", "factor": 1}),
        "sbd-k16-tau0.95-t0-threshold": ("SBD k=16 threshold τ=0.95", {"solver": "threshold", "tau": 0.95}),
        "sbd-k16-d0.25-t0-frechet": ("SBD k=16 Fréchet δ=0.25", {"solver": "frechet", "delta": 0.25}),
        "sbd-k16-n4-t0-top_k": ("SBD k=16 top-k tokens=4", {"solver": "top_k", "tokens": 4}),
        "sbd-k16-tau0.9-s8-t0-low_confidence_dynamic": (
            "SBD k=16 dynamic τ=0.9 steps=8",
            {"solver": "low_confidence_dynamic", "tau": 0.9, "steps": 8},
        ),
    }
    plan = plan_of(arms=[{"method": "ntp"}, *({"method": "sbd"} | keys for _, keys in arms.values())])
    found = {case.case_id.rpartition("/")[2]: case.label for case in plan.cases if case.arm.method == "sbd"}
    assert found == {id_: label for id_, (label, _) in arms.items()}


def test_solvers_of_one_knob_share_an_arm(tmp_path: Path) -> None:
    """A list of solvers is an axis beside the values of their knob; two knobs are two axes."""
    found = arms_of(tmp_path, "solver: [threshold, threshold_strict], tau: [0.9, 0.95]")
    assert [knobs for *_, knobs in found] == [{"tau": 0.9}, {"tau": 0.9}, {"tau": 0.95}, {"tau": 0.95}]
    found = arms_of(tmp_path, "solver: low_confidence_dynamic, tau: [0.9, 0.95], steps: [4, 8]")
    assert len({id_ for id_, *_ in found}) == 4 and found[0][2] == {"tau": 0.9, "steps": 4}


@pytest.mark.parametrize(
    ("arm", "key", "words"),
    [
        ("solver: threshold", ARM, ["tau is missing", "threshold", "0 to 1", "add tau: [0.95, 0.9, 0.8]"]),
        ("solver: low_confidence_dynamic, tau: 0.9", ARM, ["steps is missing", "whole numbers, 1 or more"]),
        ("solver: threshold, gamma: 0.1", ARM, ["gamma is no knob of threshold", "which takes tau", "entropy_bounded"]),
        ("tau: 0.9", ARM, ["tau is no knob of entropy_bounded", "which takes gamma", "threshold, threshold_strict"]),
        ("solver: [threshold, factor], tau: 0.9", ARM, ["threshold (tau), factor (factor)", "each its own arm"]),
        ("solver: treshold, tau: 0.9", f"{ARM}.solver", ["unknown solver 'treshold'", "did you mean 'threshold'"]),
        ("solver: [factor, factor], factor: 1", f"{ARM}.solver", ["factor given twice"]),
        ("solver: threshold, tau: 1.5", f"{ARM}.tau", ["1.5", "less than or equal to 1"]),
        ("solver: top_k, tokens: 0", f"{ARM}.tokens", ["0", "greater than or equal to 1"]),
        ("solver: top_k, tokens: 1.5", f"{ARM}.tokens", ["1.5", "integer"]),
        ("tau: 0.9, acceptance: {replay: {nfe_speedup: 2}}", ARM, ["tau decides nothing", "remove tau"]),
        ("solver: factor, acceptance: {replay: {nfe_speedup: 2}}", ARM, ["solver decides nothing", "remove solver"]),
    ],
)
def test_a_knob_that_is_missing_or_belongs_to_another_solver(tmp_path: Path, arm: str, key: str, words: list[str]) -> None:
    """The message says where, what was given, what the solver takes, and what to do."""
    with pytest.raises(ScenarioError) as caught:
        scenario_with(tmp_path, arm)
    message = next(line for line in str(caught.value).splitlines() if line.startswith(f"{tmp_path / 's.yaml'}:9: {key}"))
    assert all(word in message for word in words), message


def test_the_schema_knows_the_names_and_the_ranges_of_the_registry() -> None:
    """Editors complete the names; each knob's range there is the one that messages and tables give."""
    definitions = SbdArm.model_json_schema()
    properties = definitions["properties"]
    assert [one["enum"] for one in _leaves(properties["solver"]) if "enum" in one] == [list(SOLVERS)] * 2
    for name, knob in KNOBS.items():
        numbers = [one for one in _leaves(properties[name]) if one.get("type") in ("number", "integer")]
        assert {one["type"] for one in numbers} == {"integer" if knob.whole else "number"}
        assert {(one.get("minimum"), one.get("maximum")) for one in numbers} == {(knob.least, knob.most)}


def _leaves(schema: Any) -> list[dict[str, Any]]:
    """Every mapping within a schema."""
    if isinstance(schema, list):
        return [leaf for item in schema for leaf in _leaves(item)]
    return [schema, *_leaves(list(schema.values()))] if isinstance(schema, dict) else []


def test_a_report_tells_arms_of_other_solvers_apart() -> None:
    """In a sentence such an arm goes by its label; the default solver keeps its own words."""
    bounded = next(arm for arm in compare(synthetic.build()).cells[0].arms if arm.gamma == 0.1)
    assert in_words(bounded) == "SBD with block size 16 and bound γ=0.1"
    assert in_words(replace(bounded, solver="factor", gamma=None, label="SBD k=16 factor f=1")) == "SBD k=16 factor f=1"


def test_the_shipped_scenario_has_every_solver_at_three_settings() -> None:
    """In each of its parts; a solver that is added is compared, too."""
    for part in load_scenario("solvers").parts:
        plain = [arm for one in part.arms for arm in one.variants() if arm.method == "sbd"]
        settings = [(arm.solver, *arm.knobs.values()) for arm in plain]
        names = [name for name, *_ in settings]
        assert len(set(settings)) == len(settings)
        assert {name: names.count(name) for name in SOLVERS} == dict.fromkeys(SOLVERS, 3)
