"""Continuing an interrupted run: its directory, whether it may be continued here, what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from harness.errors import UserError
from harness.record.schema import Run
from harness.record.store import RunStore, finished_keys, read_run
from harness.runner.stopping_rule import StoppingRule
from harness.scenario.plan import Plan, Slot
from harness.scenario.scenario import Part


def refuse_other_execution(parts: Iterable[Part], held: Run, execution: Callable[[Part], str]) -> None:
    """Keep compiled and eager samples out of one case; ``execution`` is how a part's forwards run here.

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


def missing_slots(plan: Plan, held: Run, pace: StoppingRule) -> list[Slot]:
    """The samples still to be taken; a case that continues in a new process is warmed up again."""
    done = finished_keys(held)
    counting = {slot.key for slot in plan.slots() if not slot.warmup and slot.key not in done and pace.needs(slot)}
    cold = {(case_id, process) for case_id, *_, process in counting}
    return [slot for slot in plan.slots() if slot.key in counting or (slot.warmup and (slot.key[0], slot.process) in cold)]


def default_directory(name: str, digest: str, plan: Plan) -> Path:
    """reports/<name>-<digest>-<n>: the newest if it is unfinished, else the next."""
    number = 1
    while True:
        directory = Path("reports") / f"{name}-{digest[:8]}-{number}"
        if not RunStore(directory).exists or not _finished(directory, plan):
            return directory
        number += 1


def _finished(directory: Path, plan: Plan) -> bool:
    held = read_run(directory)
    return not missing_slots(plan, held, StoppingRule(plan, held))
