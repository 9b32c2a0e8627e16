"""A scenario as it is to be run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.scenario.plan import Plan, make_plan
from harness.scenario.scenario import Scenario, load_scenario, scenario_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A scenario file with its plan, and what the record keeps of it."""

    path: Path | str
    scenario: Scenario
    plan: Plan
    resolved: dict[str, Any]
    digest: str

    @classmethod
    def of(cls, path: Path | str) -> Job:
        """Read a scenario. Raises UserError and its kind."""
        return cls.of_scenario(load_scenario(path), path)

    @classmethod
    def of_scenario(cls, scenario: Scenario, path: Path | str) -> Job:
        """A scenario that was read, ``path`` being what the record calls its file. Raises UserError and its kind."""
        resolved = scenario.model_dump(mode="json")
        return cls(
            path=path, scenario=scenario, plan=make_plan(scenario), resolved=resolved, digest=scenario_digest(resolved)
        )
