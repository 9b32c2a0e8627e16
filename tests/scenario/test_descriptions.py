"""Every key that a user writes is described: in the schema that editors show, and so in the manual's reference."""

from __future__ import annotations

import re
from typing import Any

import pytest

from harness.config_file import Count, StrictModel
from harness.scenario.claim_text import ClaimFile
from harness.scenario.scenario import Scenario
from harness.training.recipe import TrainRecipe
from harness.workloads.prompts import Prompt

MOST_WORDS = 25


def keys(schema: dict[str, Any]) -> dict[str, str]:
    """The description of every property of every object of a schema, empty where it has none."""
    objects = {schema["title"]: schema, **schema.get("$defs", {})}
    return {
        f"{name}.{key}": value.get("description", "")
        for name, one in objects.items()
        for key, value in one.get("properties", {}).items()
    }


@pytest.mark.parametrize("model", [Scenario, ClaimFile, TrainRecipe, Prompt])
def test_every_key_is_described_in_short_sentences(model: type[StrictModel]) -> None:
    """None is left out, each ends as a sentence does, and none is longer than a reader takes in at once."""
    found = keys(model.model_json_schema())
    assert found and [key for key, text in found.items() if not text.endswith(".")] == []
    long = {key for key, text in found.items() for one in re.split(r"(?<=[.:;])\s", text) if len(one.split()) > MOST_WORDS}
    assert long == set()


def test_the_check_sees_the_whole_scenario_and_can_fail() -> None:
    """It reaches the leaves of parts, arms, solvers and claims; a key without a text is found by name."""

    class Undescribed(StrictModel):
        told: Count
        """It is."""
        untold: Count

    assert {"Part.seed", "SbdArm.tau", "Server.silent_s", "ModelShape.vocab", "Claim.scope", "Table1Cell.task"} <= set(
        keys(Scenario.model_json_schema())
    )
    assert [key for key, text in keys(Undescribed.model_json_schema()).items() if not text] == ["Undescribed.untold"]
