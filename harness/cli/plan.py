"""`sbd plan`: the cases of a scenario with memory and expected time, as a table or as JSON; loads no model and no torch."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from shutil import which
from typing import Annotated, Any

import typer

from harness.cli.calibrate import profile_of_scenario
from harness.cli.output import AsJson, give, grid, json_text, lines_of
from harness.cli.progress import format_duration
from harness.errors import UnknownHardwareError
from harness.formatting import one_line
from harness.hardware.profile import Calibration, engine_words, load_profile
from harness.meters.calibration import kept_at
from harness.meters.environment_host import cpu_name
from harness.models import DTYPE_BYTES
from harness.models.choice import model_name
from harness.paths import cache_dir
from harness.roofline.ceilings import Ceilings, ceilings_from_calibration, ceilings_of
from harness.roofline.storage import shard
from harness.runner.estimates import beside_samples_s, estimate_memory, estimate_time, process_bytes
from harness.scenario.loading import load_scenario
from harness.scenario.part import Part
from harness.scenario.plan import PLAN_VERSION, Case, Plan, make_plan
from harness.scenario.scenario import Scenario

RIGHT = ("samples", "memory", "time")
Described = dict[str, Any]
"""A case or a plan as plain values."""
CeilingsFor = Callable[[Case], tuple[Ceilings | None, str | None]]


def plan_command(
    scenario: Annotated[str, typer.Argument(metavar="FILE", help="a scenario file, or the name of a shipped one")],
    hardware: Annotated[
        str | None, typer.Option(help="price on this hardware profile instead of this machine's calibration")
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="price on this machine's own profile, measured now where none is kept")
    ] = False,
    whole: Annotated[bool, typer.Option("--all", help="a row for every case, with its id")] = False,
    as_json: AsJson = False,
) -> None:
    """List the cases of a scenario, with the memory and time they will need. Touches no model."""
    loaded = load_scenario(scenario)
    if calibrate:
        hardware = profile_of_scenario(loaded, hardware).name
    plan = make_plan(loaded)
    described = describe_plan(plan, _profile_ceilings(hardware) if hardware else cached_ceilings)
    give(as_json, lambda: described, lambda: render(described, whole))


def schema_command() -> None:
    """Print the JSON schema of scenario files, for editors that complete them."""
    print(json_text(Scenario.model_json_schema()))


def describe_plan(plan: Plan, ceilings_for: CeilingsFor) -> Described:
    """The plan as plain data: per case id, counts, memory and time, each absent value with its reason."""
    cases = [_describe_case(case, ceilings_for) for case in plan.cases]
    times = [case["time"]["total_s"] if case["time"] else None for case in cases]
    known = [time for time in times if time is not None]
    missing = len(times) - len(known)
    beside = [_beside(part, plan, cases) for part in plan.scenario.parts]
    whole = None if missing or None in beside else sum(known) + sum(one or 0.0 for one in beside)
    return {
        "version": PLAN_VERSION,
        "scenario": plan.scenario.name,
        "question": plan.scenario.question,
        "samples": sum(case["samples"] for case in cases),
        "total_s": None if missing else sum(known),
        "run_s": whole,
        "total_reason": f"{missing} of {len(times)} cases have no estimate" if missing else None,
        "cases": cases,
    }


def _beside(part: Part, plan: Plan, described: list[Described]) -> float | None:
    """Seconds of a part beside its samples."""
    ids = {case.case_id for case in plan.cases if case.part.name == part.name}
    layers = next((case.shape.layers for case in plan.cases if case.case_id in ids and case.shape), None)
    times = [one["time"] for one in described if one["case_id"] in ids]
    if layers is None or None in times:
        return None
    return beside_samples_s(part, layers, sum(time["total_s"] for time in times))


def _describe_case(case: Case, ceilings_for: CeilingsFor) -> Described:
    memory, memory_reason = estimate_memory(case)
    ceilings, time_reason = ceilings_for(case)
    time = None
    if ceilings is not None:
        time, time_reason = estimate_time(case, ceilings)
    parts = ("weight_bytes", "kv_bytes", "logit_bytes", "total_bytes", "margin_bytes")
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
        "memory": memory and {name: getattr(memory, name) for name in parts} | {"process_bytes": process_bytes(case, memory)},
        "memory_reason": memory_reason,
        "time": time and asdict(time),
        "time_reason": time_reason,
    }


def render(described: Described, whole: bool = False) -> str:
    """The arms of every part and batch size, all tasks together; ``whole``: every case in a row. Then totals and reasons."""
    cases = described["cases"]
    blocks = [_every_case(cases)] if whole else [_block(list(found)) for _, found in groupby(cases, key=_place)]
    return "\n\n".join([*blocks, lines_of(*_remarks(described))])


def _every_case(cases: list[Described]) -> str:
    rows = [
        [
            case["case_id"],
            case["model"],
            f"{case['device']} {case['dtype']}",
            str(case["samples"]),
            _memory(case),
            _time(case["time"]),
        ]
        for case in cases
    ]
    return grid(("case", "model", "device", *RIGHT), rows, right=RIGHT, folds=("case",))


def _place(case: Described) -> tuple[str, int]:
    return case["case_id"].partition("/")[0], case["batch_size"]


def _block(cases: list[Described]) -> str:
    """What the cases share in a line, then a row for each arm, or for several that differ in one number."""
    part, batch = _place(cases[0])
    tasks = list(dict.fromkeys(case["case_id"].split("/")[1] for case in cases))
    head = f"part {part}, batch {batch}: {cases[0]['model']} on {cases[0]['device']} {cases[0]['dtype']}"
    head += f"; {len(tasks)} tasks: {', '.join(tasks)}" if len(tasks) > 1 else f"; task {tasks[0]}"
    arms: dict[str, list[Described]] = {}
    for case in cases:
        arms.setdefault(case["label"], []).append(case)
    rows = []
    for label, labels in joined(list(arms)).items():
        held = [case for one in labels for case in arms[one]]
        samples, times = sum(case["samples"] for case in held), (case["time"] for case in held)
        rows.append([label, str(samples), _memory(*held), _time(*times)])
    return f"{one_line(head)}\n{grid(('arm', *RIGHT), rows, right=RIGHT, folds=('arm',))}"


NUMBER = re.compile(r"(?<==)[\d.]+")


def joined(labels: Sequence[str]) -> dict[str, list[str]]:
    """Labels that differ in one number under one name: ``SBD k=16 γ=0.003, 0.1``."""
    alike: dict[str, list[str]] = {}
    for label in labels:
        alike.setdefault(NUMBER.sub("#", label), []).append(label)
    found: dict[str, list[str]] = {}
    for members in alike.values():
        numbers = list(zip(*(NUMBER.findall(one) for one in members), strict=True))
        varied = [at for at, values in enumerate(numbers) if len(set(values)) > 1]
        if len(varied) == 1:
            texts = [", ".join(dict.fromkeys(values)) for values in numbers]
            words = NUMBER.split(members[0])
            found["".join(word + text for word, text in zip(words, [*texts, ""], strict=True))] = members
        else:
            found |= {one: [one] for one in members}
    return found


def _memory(*cases: Described) -> str:
    """The most that any of the cases needs."""
    needed = [case["memory"] and (case["memory"]["process_bytes"] or case["memory"]["total_bytes"]) for case in cases]
    return f"{max(needed) / 1e9:.2f} GB" if all(needed) else "?"


def _remarks(described: Described) -> Iterator[str]:
    """Totals, what the figures hold, and the reasons for missing ones."""
    cases = described["cases"]
    bounded = any(case["time"] and case["time"]["bound"] == "at_most" for case in cases)
    total = described["total_reason"] or f"{'at most ' if bounded else 'about '}{format_duration(described['total_s'])}"
    yield f"{len(cases)} cases, {described['samples']} samples; time: {total}"
    if described["run_s"] is not None:
        yield (
            f"the whole run: about {format_duration(described['run_s'])}, with calibration, loading, a compiled generate() and "
            "measured passes as they took on two CPU cores"
        )
    if margin := max((case["memory"]["margin_bytes"] for case in cases if case["memory"]), default=0):
        yield f"memory: CUDA graphs and the sampler's float32 copies take up to {margin / 1e9:.2f} GB more"
    if any(case["memory"] and case["memory"]["process_bytes"] for case in cases):
        yield "memory of a CPU case: of its whole process at its peak, with the framework and packed weights, to some 20 %"
    compiler = os.environ.get("CXX", "g++")
    if which(compiler) is None and any((one["device"], one["execution"]) == ("cpu", "auto") for one in cases):
        yield f"execution: auto is eager on the CPU, and slower, without a C++ compiler: {compiler} is not here"
    if any(case["processes"] > 1 for case in cases):
        yield _processes(described)
    if bounded:
        yield "≤: all new tokens are written, one a pass, and no draft is right; stops and acceptance shorten it"
    if any(case["replayed"] and case["replayed"]["assumed"] for case in cases):
        yield "replayed: passes per block follow a stated mean; their distribution is assumed"
    reasons = (case[key] for case in cases for key in ("memory_reason", "time_reason"))
    yield from (f"?: {reason}" for reason in dict.fromkeys(reason for reason in reasons if reason))


def _processes(described: Described) -> str:
    """The processes of every part, in words."""
    by_part = {case["case_id"].partition("/")[0]: case["processes"] for case in described["cases"]}
    return "fresh processes, counted above: " + ", ".join(f"part {part} {count}" for part, count in by_part.items())


def _time(*times: Described | None) -> str:
    known = [time for time in times if time is not None]
    if len(known) < len(times):
        return "?"
    bounded = any(time["bound"] == "at_most" for time in known)
    return f"{'≤ ' if bounded else ''}{format_duration(sum(time['total_s'] for time in known))}"


def _profile_ceilings(name: str) -> CeilingsFor:
    profile = load_profile(name)

    def ceilings_for(case: Case) -> tuple[Ceilings | None, str | None]:
        try:
            return ceilings_of(profile, case.part.dtype), None
        except UnknownHardwareError as error:
            return None, str(error)

    return ceilings_for


def cached_ceilings(case: Case) -> tuple[Ceilings | None, str | None]:
    """Ceilings from this machine's cached calibration for the case's device, dtype and model size."""
    if case.shape is None:
        return None, case.shape_reason
    model_bytes = shard(case.shape, case.part.tensor_parallel).streamed_params * DTYPE_BYTES[case.part.dtype]
    found = _cached_calibration(case.part, model_bytes)
    if found is None:
        return None, "this machine is not calibrated for this model; `sbd run` does it, or give --hardware (see `sbd hardware`)"
    return ceilings_from_calibration(found, case.part.dtype), None


def _cached_calibration(part: Part, model_bytes: int) -> Calibration | None:
    """The fitting cached calibration that is nearest to how a run will go; file names depend on torch's version, so the
    contents are compared.

    Where the scenario leaves it open, a run is native, or captured, where it can be, and takes every core; then the newest
    counts.
    """
    ways = ("native", "graphs", "eager") if part.execution == "auto" else (part.execution,)
    kept = [kept_at(file, part.dtype) for file in sorted(cache_dir().glob("calibration-*.json"))]
    fitting = [
        one
        for one in kept
        if one is not None
        and one.device == part.device
        and one.model_bytes == model_bytes
        and (part.threads is None or one.threads == part.threads)
        and (part.device != "cpu" or one.device_name == cpu_name())
        and one.engine in {engine_words(part.session, how) for how in ways}
    ]
    eager = engine_words(part.session, "eager")
    return max(fitting, key=lambda one: (one.engine != eager, one.threads or 0, one.created_at), default=None)
