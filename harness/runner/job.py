"""A scenario with its plan, and the header of a run: all that is known before its first sample."""

from __future__ import annotations

import shlex
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.meters.environment import snapshot
from harness.paths import data_dir
from harness.progress import Progress
from harness.record.schema import RunHeader
from harness.runner.protocols import Machine
from harness.scenario.loading import load_scenario, scenario_digest
from harness.scenario.plan import Plan, make_plan
from harness.scenario.scenario import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A scenario file with its plan, and the record's copy of it."""

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
        """A loaded scenario; the record calls its file ``path``. Raises UserError and its kind."""
        resolved = scenario.model_dump(mode="json")
        return cls(path=path, scenario=scenario, plan=make_plan(scenario), resolved=resolved, digest=scenario_digest(resolved))


def make_header(job: Job, machine: Machine, progress: Progress) -> RunHeader:
    """All that is known before the first sample, calibration included; it may open the model for its shape."""
    hardware, reason = machine.profile(job.scenario)
    if reason is not None:
        progress.note(f"no hardware profile in this record: {reason}")
    shapes = {case.part.name: case.shape for case in job.plan.cases}
    parts = {part.name: part for part in job.scenario.parts}
    known = {name: shape or machine.shape_of(parts[name]) for name, shape in shapes.items()}
    calibration = {
        name: found
        for name, part in parts.items()
        if part.timed and (found := machine.calibrate(part, known[name], progress)) is not None
    }
    return RunHeader(
        run_id=uuid.uuid4().hex,
        scenario_name=job.scenario.name,
        question=job.scenario.question,
        scenario=job.resolved,
        scenario_digest=job.digest,
        command=shlex.join(["sbd", "run", _seen_from_here(job.path)]),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        cases=[case.header(known[case.part.name], machine.execution(case.part)) for case in job.plan.cases],
        hardware=hardware,
        hardware_reason=reason,
        calibration=calibration or None,
        environment=snapshot(),
    )


def _seen_from_here(path: Path | str) -> str:
    """The path relative to where the run began, or the name of a shipped scenario, because records are published.

    A path elsewhere stays unchanged.
    """
    here, whole = Path.cwd(), Path(path).absolute()
    if whole.is_relative_to(here):
        return str(whole.relative_to(here))
    return whole.stem if whole.parent == data_dir("scenarios") else str(path)
