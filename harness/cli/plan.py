"""`sbd plan`: the cases of a scenario with memory and expected time, as a table or as JSON; loads no model and no torch."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import groupby
from operator import add, attrgetter
from shutil import which
from typing import Annotated

from typer import Option

from harness.cli.calibrate import profile_of_scenario
from harness.cli.output import AsJson, by_reason, give, grid, json_text, lines_of
from harness.cli.progress import format_duration
from harness.errors import UnknownHardwareError
from harness.formatting import one_line
from harness.frozen import frozen
from harness.hardware.profile import HardwareProfile, engine_words, load_profile
from harness.meters.calibration import kept_at
from harness.meters.environment_host import cpu_name
from harness.models import DTYPE_BYTES
from harness.models.choice import model_name
from harness.paths import cache_dir
from harness.roofline.ceilings import Ceilings, ceilings_from_calibration, ceilings_of
from harness.roofline.storage import shard
from harness.runner.estimates import (
    MemoryEstimate,
    TimeEstimate,
    beside_samples_s,
    estimate_memory,
    estimate_time,
    process_bytes,
)
from harness.scenario.loading import load_scenario
from harness.scenario.part import Part
from harness.scenario.plan import PLAN_VERSION, Case, Plan, make_plan
from harness.scenario.scenario import Scenario
from harness.stats.quantity import CONFIDENCE, FEWEST_PROCESSES, t_reach

RIGHT = ("samples", "memory", "time")
OF_PROCESSES, OF_PROMPTS = (0.01, 0.16), 0.2
"""Standard deviations of the log speedup: of processes in claim_llama31_8b_h200 and quickstart_native, of prompts in both."""
CeilingsFor = Callable[[Case], tuple[Ceilings | None, str | None]]


def plan_command(
    scenario: str,
    hardware: str | None = None,
    calibrate: bool = False,
    whole: Annotated[bool, Option("--all")] = False,
    as_json: AsJson = False,
) -> None:
    """List the cases of a scenario, with the memory and time they will need. Touches no model.

    Args:
        scenario (FILE): a scenario file, or the name of a shipped one
        hardware: price on this hardware profile instead of this machine's calibration
        calibrate: price on this machine's own profile, measured now where none is kept
        whole: a row for every case, with its id
    """
    loaded = load_scenario(scenario)
    if calibrate:
        hardware = profile_of_scenario(loaded, hardware).name
    plan = make_plan(loaded)
    estimate = estimated(plan, partial(_profile_ceilings, load_profile(hardware)) if hardware else cached_ceilings)
    give(as_json, estimate.plain, lambda: render(estimate, whole))


def schema_command() -> None:
    """Print the JSON schema of scenario files, for editors that complete them."""
    print(json_text(Scenario.model_json_schema()))


@frozen
class CaseEstimate:
    """A case with the memory and the time it needs, each absent one with its reason."""

    case: Case
    memory: MemoryEstimate | None
    memory_reason: str | None
    time: TimeEstimate | None
    time_reason: str | None

    @property
    def process_bytes(self) -> int | None:
        """Of a whole process on a CPU."""
        return None if self.memory is None else process_bytes(self.case, self.memory)

    def plain(self) -> dict[str, object]:
        """For JSON."""
        case, memory = self.case, self.memory
        return {
            "case_id": case.case_id,
            "label": case.label,
            "model": model_name(case.part.model),
            "device": case.part.device,
            "dtype": case.part.dtype,
            "batch_size": case.batch_size,
            "prompts": case.workload.prompt_count,
            "max_new_tokens": case.workload.max_new_tokens,
            "processes": case.part.processes,
            "samples": case.sample_count,
            "execution": case.part.execution,
            "replayed": case.replay.to_dict() if case.replay else None,
            "memory": memory and asdict(memory) | {"total_bytes": memory.total_bytes, "process_bytes": self.process_bytes},
            "memory_reason": self.memory_reason,
            "time": self.time and asdict(self.time),
            "time_reason": self.time_reason,
        }


@frozen
class PlanEstimate:
    """The cases of a plan with what they need. ``total_s``: of all samples; ``run_s``: of the whole run; None: not known."""

    plan: Plan
    cases: tuple[CaseEstimate, ...]
    total_s: float | None
    run_s: float | None
    total_reason: str | None

    @property
    def samples(self) -> int:
        """Of all cases."""
        return sum(one.case.sample_count for one in self.cases)

    def plain(self) -> dict[str, object]:
        """For JSON."""
        return {
            "version": PLAN_VERSION,
            "scenario": self.plan.scenario.name,
            "question": self.plan.scenario.question,
            "samples": self.samples,
            "total_s": self.total_s,
            "run_s": self.run_s,
            "total_reason": self.total_reason,
            "cases": [one.plain() for one in self.cases],
        }


def estimated(plan: Plan, ceilings_for: CeilingsFor) -> PlanEstimate:
    """What every case of a plan needs."""
    cases = []
    for case in plan.cases:
        memory, memory_reason = estimate_memory(case)
        ceilings, time_reason = ceilings_for(case)
        time, time_reason = (None, time_reason) if ceilings is None else estimate_time(case, ceilings)
        cases.append(CaseEstimate(case=case, memory=memory, memory_reason=memory_reason, time=time, time_reason=time_reason))
    missing = sum(one.time is None for one in cases)
    if missing:
        reason = f"{missing} of {len(cases)} cases have no estimate"
        return PlanEstimate(plan=plan, cases=tuple(cases), total_s=None, run_s=None, total_reason=reason)
    total = 0.0
    run: float | None = 0.0
    for part in plan.scenario.parts:
        own = [one for one in cases if one.case.part.name == part.name]
        seconds, shapes = sum(one.time.total_s for one in own if one.time), [one.case.shape for one in own if one.case.shape]
        total += seconds
        beside = beside_samples_s(part, shapes[0].layers, seconds) if shapes else None
        run = None if run is None or beside is None else run + seconds + beside
    return PlanEstimate(plan=plan, cases=tuple(cases), total_s=total, run_s=run, total_reason=None)


def render(estimate: PlanEstimate, whole: bool = False) -> str:
    """The arms of every part and batch size, all tasks together; ``whole``: every case in a row. Then totals and reasons.

    What the cases of a part share is in a line above them; arms that differ in one number have one row.
    """
    tables = []
    if whole:
        rows = [
            [case.case_id, model_name(case.part.model), f"{case.part.device} {case.part.dtype}", *_needed([one])]
            for one in estimate.cases
            for case in [one.case]
        ]
        tables.append(grid(("case", "model", "device", *RIGHT), rows, right=RIGHT, folds=("case",)))
    place = attrgetter("case.part.name", "case.batch_size")
    for (name, batch), of_place in groupby(() if whole else estimate.cases, key=place):
        cases, arms = list(of_place), dict[str, list[CaseEstimate]]()
        for one in cases:
            arms.setdefault(one.case.label, []).append(one)
        part, tasks = cases[0].case.part, list(dict.fromkeys(one.case.task for one in cases))
        head = f"part {name}, batch {batch}: {model_name(part.model)} on {part.device} {part.dtype}"
        head += f"; {len(tasks)} tasks: {', '.join(tasks)}" if len(tasks) > 1 else f"; task {tasks[0]}"
        rows = [
            [label, *_needed([one for name in labels for one in arms[name]])] for label, labels in joined(list(arms)).items()
        ]
        tables.append(f"{one_line(head)}\n{grid(('arm', *RIGHT), rows, right=RIGHT, folds=('arm',))}")
    return "\n\n".join([*tables, lines_of(*_remarks(estimate))])


NUMBER = re.compile(r"(?<==)[\d.]+")


def joined(labels: Sequence[str]) -> dict[str, list[str]]:
    """Labels that differ in one number under one name: ``SBD k=16 γ=0.003, 0.1``."""
    names: dict[str, list[str]] = {}
    for members in by_reason((label, NUMBER.sub("#", label)) for label in labels).values():
        numbers = [dict.fromkeys(values) for values in zip(*map(NUMBER.findall, members), strict=True)]
        if sum(len(values) > 1 for values in numbers) == 1:
            texts = [*map(", ".join, numbers), ""]
            names["".join(map(add, NUMBER.split(members[0]), texts))] = members
        else:
            names |= {label: [label] for label in members}
    return names


def _needed(cases: Sequence[CaseEstimate]) -> tuple[str, str, str]:
    """Under RIGHT: all samples, the most memory that any of the cases needs, and all time."""
    sizes = [one.process_bytes or one.memory.total_bytes for one in cases if one.memory]
    times = [one.time for one in cases if one.time]
    memory = f"{max(sizes) / 1e9:.2f} GB" if len(sizes) == len(cases) else "?"
    at_most = "≤ " if any(time.bound == "at_most" for time in times) else ""
    total = f"{at_most}{format_duration(sum(time.total_s for time in times))}" if len(times) == len(cases) else "?"
    return str(sum(one.case.sample_count for one in cases)), memory, total


def _remarks(estimate: PlanEstimate) -> Iterator[str]:
    """Totals, what the figures hold, and the reasons for missing ones."""
    cases, parts = estimate.cases, estimate.plan.scenario.parts
    bounded = any(one.time and one.time.bound == "at_most" for one in cases)
    total = estimate.total_reason or f"{'at most ' if bounded else 'about '}{format_duration(estimate.total_s or 0.0)}"
    yield f"{len(cases)} cases, {estimate.samples} samples; time: {total}"
    if estimate.run_s is not None:
        yield (
            f"the whole run: about {format_duration(estimate.run_s)}, with calibration, loading, a compiled generate() and "
            "measured passes as they took on two CPU cores"
        )
    if margin := max((one.memory.margin_bytes for one in cases if one.memory), default=0):
        yield f"memory: CUDA graphs and the sampler's float32 copies take up to {margin / 1e9:.2f} GB more"
    if any(one.process_bytes for one in cases):
        yield "memory of a CPU case: of its whole process at its peak, with the framework and packed weights, to some 20 %"
    compiler = os.environ.get("CXX", "g++")
    if which(compiler) is None and any((part.device, part.execution) == ("cpu", "auto") for part in parts):
        yield f"execution: auto is eager on the CPU, and slower, without a C++ compiler: {compiler} is not here"
    if any(part.processes > 1 for part in parts):
        counts = ", ".join(f"part {part.name} {part.processes}" for part in parts)
        yield f"fresh processes, counted above: {counts}"
    yield from map(_design, (part for part in parts if part.timed))
    if bounded:
        yield "≤: all new tokens are written, one a pass, and no draft is right; stops and acceptance shorten it"
    if any(one.case.replay and one.case.replay.assumed for one in cases):
        yield "replayed: passes per block follow a stated mean; their distribution is assumed"
    reasons = (reason for one in cases for reason in (one.memory_reason, one.time_reason))
    yield from (f"?: {reason}" for reason in dict.fromkeys(reason for reason in reasons if reason))


def _design(part: Part) -> str:
    """What its interval of a speedup is over, and how wide it is to be expected."""
    count, prompts = part.processes, part.workload.prompt_count * len(part.workload.task_names)
    if count < FEWEST_PROCESSES:
        return f"design of part {part.name}: {count} of {FEWEST_PROCESSES} processes that a verdict on time needs"
    own = 1 if part.own_prompts else count
    halves = (
        math.expm1(t_reach(count - 1, CONFIDENCE) * math.sqrt((luck**2 + own * OF_PROMPTS**2 / prompts) / count))
        for luck in OF_PROCESSES
    )
    quiet, shared = (f"{100 * half:.0f} %" for half in halves)
    whose = "prompts of its own" if part.own_prompts else "prompts, the same in each"
    return (
        f"design of part {part.name}: {count} processes, {prompts} {whose}, t with {count - 1} degrees of freedom: "
        f"a speedup to \u00b1 {quiet} on a quiet machine, \u00b1 {shared} on shared cores, as published runs spread"
    )


def _profile_ceilings(profile: HardwareProfile, case: Case) -> tuple[Ceilings | None, str | None]:
    try:
        return ceilings_of(profile, case.part.dtype), None
    except UnknownHardwareError as error:
        return None, str(error)


def cached_ceilings(case: Case) -> tuple[Ceilings | None, str | None]:
    """Ceilings from this machine's cached calibration for the case's device, dtype and model size.

    Of several the one that is nearest to how a run will go; file names depend on torch's version, so the contents are
    compared. Where the scenario leaves it open, a run is native, or captured, where it can be, and takes every core; then the
    newest counts.
    """
    if case.shape is None:
        return None, case.shape_reason
    part = case.part
    model_bytes = shard(case.shape, part.tensor_parallel).streamed_params * DTYPE_BYTES[part.dtype]
    ways = ("native", "graphs", "eager") if part.execution == "auto" else (part.execution,)
    kept = (kept_at(file, part.dtype) for file in sorted(cache_dir().glob("calibration-*.json")))
    fitting = [
        one
        for one in filter(None, kept)
        if one.device == part.device
        and one.model_bytes == model_bytes
        and (part.threads is None or one.threads == part.threads)
        and (part.device != "cpu" or one.device_name == cpu_name())
        and one.engine in {engine_words(part.session, how) for how in ways}
    ]
    if not fitting:
        return None, "this machine is not calibrated for this model; `sbd run` does it, or give --hardware (see `sbd hardware`)"
    eager = engine_words(part.session, "eager")
    nearest = max(fitting, key=lambda one: (one.engine != eager, one.threads or 0, one.created_at))
    return ceilings_from_calibration(nearest, part.dtype), None
