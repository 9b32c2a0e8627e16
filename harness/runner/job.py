"""A scenario with its plan, the header of a run, and what a directory holds of it that can be continued."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import cast

from harness.errors import UserError
from harness.frozen import frozen
from harness.meters.environment import snapshot
from harness.models.choice import model_name, refuse_missing, refuse_remote_code
from harness.paths import data_dir
from harness.progress import Progress
from harness.record.schema import MOST_LOOKS, Looks, Run, RunHeader
from harness.record.store import RunStore, read_run
from harness.record.written import WrittenScenario
from harness.runner.options import RunOptions
from harness.runner.protocols import Machine
from harness.runner.stopping_rule import StoppingRule, missing_slots
from harness.runner.widths import choose_widths, with_widths
from harness.scenario.loading import load_scenario, scenario_digest
from harness.scenario.part import Part
from harness.scenario.plan import Plan, make_plan
from harness.scenario.scenario import Scenario
from harness.scenario.speculative_arms import draft_models
from harness.workloads.loader import given_prompts

FIRST_LOOK, MOST_PROCESSES = 4, 12
"""Of a run until decided: the process after which it is looked at first, and the last one."""
ERROR = 0.025
"""Of all its looks together on one side of a claim: that of a 95 % interval."""


@frozen
class Job:
    """A scenario file with its plan, the record's copy of it, and what else was asked for."""

    path: Path | str
    scenario: Scenario
    plan: Plan
    resolved: WrittenScenario
    digest: str
    options: RunOptions

    @classmethod
    def of(cls, path: Path | str, options: RunOptions | None = None, loaded: Scenario | None = None) -> Job:
        """The scenario of a file, or one ``loaded`` that the record calls by ``path``. Raises UserError and its kind."""
        options = options or RunOptions()
        scenario = loaded or load_scenario(path, options.trust_remote_code)
        if options.engines:
            asked = {"baseline_engines": ("installed",)}
            parts = tuple(part.model_copy(update=asked) if part.takes_engines else part for part in scenario.parts)
            if not any(part.takes_engines for part in parts):
                raise UserError("--engines: no part decodes a checkpoint, in one process, as other engines would; remove it")
            scenario = scenario.model_copy(update={"parts": parts})
        if options.until:
            scenario = scenario.model_copy(update={"parts": tuple(map(_with_more_processes, scenario.parts))})
            if not any(part.own_prompts for part in scenario.parts):
                raise UserError(
                    "--until decided: no part has processes with prompts of their own to be looked at one by one; write "
                    "processes: 6, with generated prompts or a longer prompts_file"
                )
        resolved = cast(WrittenScenario, scenario.model_dump(mode="json"))
        plan = make_plan(scenario)
        for case in plan.cases:
            for model in (case.part.model, *draft_models(case.arm)):
                refuse_remote_code(model)
                refuse_missing(model)
            if case.workload.chat_template == "auto":
                raise UserError(
                    f"part {case.part.name}: {model_name(case.part.model)} is not on this machine, so nothing says whether it "
                    "has a chat template; fetch it first (hf download), or write chat_template: true or false into the workload"
                )
        digest = scenario_digest(resolved)
        return cls(path=path, scenario=scenario, plan=plan, resolved=resolved, digest=digest, options=options)

    def directory(self, out_dir: Path | None) -> Path:
        """Where the run is kept: ``out_dir``, else the newest folder of the scenario if it is unfinished, else the next.

        Raises:
            UserError and its kind: a dataset cannot be read; nothing is begun then.
        """
        for part in self.scenario.parts:
            given_prompts(part.workload)
        numbered = (Path("reports") / f"{self.scenario.name}-{self.digest[:8]}-{number}" for number in count(1))
        return out_dir or next(directory for directory in numbered if not _finished(directory, self.plan))

    @property
    def looks(self) -> Looks | None:
        """When the run may stop before its last process."""
        if not self.options.until:
            return None
        last = max(part.processes for part in self.scenario.parts if part.own_prompts)
        return Looks(first=min(FIRST_LOOK, last), last=last, error=ERROR, at_most_s=self.options.at_most)

    def part(self, name: str) -> Part:
        """A part of the scenario by its name."""
        return next(part for part in self.scenario.parts if part.name == name)


def _with_more_processes(part: Part) -> Part:
    """A part whose processes have prompts of their own, with as many as there may be and as there are prompts for."""
    if not part.own_prompts:
        return part
    count = part.workload.prompt_count
    most = next(n for n in range(min(max(MOST_PROCESSES, part.processes), MOST_LOOKS), 0, -1) if part.workload.holds(n * count))
    return part.model_copy(update={"processes": most})


def machine_here(logs: Path | None = None) -> Machine:
    """The machine of this process; torch is loaded here and not before. ``logs``: folder for the logs of started servers."""
    from harness.runner.local_machine import this_machine

    return this_machine(logs)


def make_header(job: Job, machine: Machine, progress: Progress) -> RunHeader:
    """All that is known before anything is measured, chosen widths included; it may open the model for them.

    Raises:
        UserError and its kind: a width is left to the machine, and there is nothing to choose it by.
    """
    hardware, reason = machine.profile(job.scenario)
    if reason is not None:
        progress.note(f"no hardware profile in this record: {reason}")
    cases = {case.part.name: case for case in job.plan.cases}
    known = {name: case.shape or machine.shape(case.part) for name, case in cases.items()}
    plan = with_widths(job.plan, choose_widths(job.plan.cases, machine, progress))
    return RunHeader(
        run_id=uuid.uuid4().hex,
        scenario_name=job.scenario.name,
        question=job.scenario.question,
        scenario=job.resolved,
        scenario_digest=job.digest,
        command=shlex.join(["sbd", "run", _seen_from_here(job.path), *job.options.flags]),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        cases=[case.header(known[case.part.name], machine.execution(case.part)) for case in plan.cases],
        hardware=hardware,
        hardware_reason=reason,
        environment=snapshot(),
        looks=job.looks,
    )


def _seen_from_here(path: Path | str) -> str:
    """The path relative to where the run began, or the name of a shipped scenario, because records are published.

    A path elsewhere stays unchanged.
    """
    here, whole = Path.cwd(), Path(path).absolute()
    if whole.is_relative_to(here):
        return str(whole.relative_to(here))
    return whole.stem if whole.parent == data_dir("scenarios") else str(path)


def refuse_other_execution(parts: Iterable[Part], held: Run, execution: Callable[[Part], str]) -> None:
    """Keep samples of two ways of execution out of one case; ``execution`` is how a part's forwards run here.

    Raises:
        UserError: they run differently here than where the run began.
    """
    then = {case.part: case.execution for case in held.header.cases if not case.is_check}
    for part in parts:
        before, now = then[part.name], execution(part)
        if now != before:
            raise UserError(
                f"part {part.name}: the forwards of this run were {before}, here they would be {now}; "
                "go on where it was begun, or start a new run with --out"
            )


def _finished(directory: Path, plan: Plan) -> bool:
    if not RunStore(directory).exists:
        return False
    held = read_run(directory)
    if held.header.looks and held.unended is None:
        return True
    return not missing_slots(plan, held, StoppingRule(plan, held))
