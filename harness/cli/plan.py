"""`sbd plan`: the cases of a scenario with memory and expected time, as a table or as JSON; loads no model and no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

import typer

from harness.cli.calibrate import profile_of_scenario
from harness.cli.output import grid, json_text, wrapped
from harness.cli.progress import format_duration
from harness.errors import UnknownHardwareError
from harness.hardware.profile import Calibration, engine_words, load_profile
from harness.meters.calibration import kept_at
from harness.meters.environment_host import cpu_name
from harness.models import DTYPE_BYTES
from harness.models.choice import model_name
from harness.paths import cache_dir
from harness.roofline.anchored import ceilings_of
from harness.roofline.ceilings import Ceilings, ceilings_from_calibration
from harness.roofline.storage import shard
from harness.runner.estimates import beside_samples_s, estimate_memory, estimate_time, process_bytes
from harness.scenario.loading import load_scenario
from harness.scenario.plan import PLAN_VERSION, Case, Plan, make_plan
from harness.scenario.scenario import EXECUTIONS, Part, Scenario

CeilingsFor = Callable[[Case], tuple[Ceilings | None, str | None]]


def plan_command(
    scenario: Annotated[str, typer.Argument(metavar="FILE", help="a scenario file, or the name of a shipped one")],
    hardware: Annotated[
        str | None, typer.Option(help="price on this hardware profile instead of this machine's calibration")
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="price on this machine's own profile, measured now where none is kept")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """List the cases of a scenario, with the memory and time each will need. Touches no model."""
    loaded = load_scenario(scenario)
    if calibrate:
        hardware = profile_of_scenario(loaded, hardware).name
    plan = make_plan(loaded)
    described = describe_plan(plan, _profile_ceilings(hardware) if hardware else cached_ceilings)
    print(json_text(described) if as_json else render(described), end="\n" if as_json else "")


def schema_command() -> None:
    """Print the JSON schema of scenario files, for editors that complete them."""
    print(json_text(Scenario.model_json_schema()))


def describe_plan(plan: Plan, ceilings_for: CeilingsFor) -> dict[str, Any]:
    """The plan as plain data: per case id, counts, memory and time, each absent value with its reason."""
    cases = [_describe_case(case, ceilings_for) for case in plan.cases]
    times = [case["time"]["total_s"] if case["time"] else None for case in cases]
    known = [time for time in times if time is not None]
    missing = len(times) - len(known)
    beside = [_beside(part, plan, cases) for part in plan.scenario.parts]
    whole = None if missing or None in beside else sum(known) + sum(one or 0.0 for one in beside)
    return {
        "version": PLAN_VERSION, "scenario": plan.scenario.name, "question": plan.scenario.question,
        "samples": sum(case["samples"] for case in cases), "total_s": None if missing else sum(known), "run_s": whole,
        "total_reason": f"{missing} of {len(times)} cases have no estimate" if missing else None, "cases": cases,
    }  # fmt: skip


def _beside(part: Part, plan: Plan, described: list[dict[str, Any]]) -> float | None:
    """Seconds of a part beside its samples."""
    ids = {case.case_id for case in plan.cases if case.part.name == part.name}
    layers = next((case.shape.layers for case in plan.cases if case.case_id in ids and case.shape), None)
    times = [one["time"] for one in described if one["case_id"] in ids]
    if layers is None or None in times:
        return None
    return beside_samples_s(part, layers, sum(time["total_s"] for time in times))


def _describe_case(case: Case, ceilings_for: CeilingsFor) -> dict[str, Any]:
    memory, memory_reason = estimate_memory(case)
    ceilings, time_reason = ceilings_for(case)
    time = None
    if ceilings is not None:
        time, time_reason = estimate_time(case, ceilings)
    parts = ("weight_bytes", "kv_bytes", "logit_bytes", "total_bytes", "margin_bytes")
    return {
        "case_id": case.case_id, "label": case.label, "model": model_name(case.part.model), "device": case.part.device,
        "dtype": case.part.dtype, "batch_size": case.batch_size, "prompts": case.workload.prompt_count,
        "max_new_tokens": case.workload.max_new_tokens, "processes": case.part.processes, "samples": case.sample_count,
        "replayed": case.replay.to_dict() if case.replay else None,
        "memory": memory and {name: getattr(memory, name) for name in parts} | {"process_bytes": process_bytes(case, memory)},
        "memory_reason": memory_reason,
        "time": time and asdict(time), "time_reason": time_reason,
    }  # fmt: skip


def render(described: dict[str, Any]) -> str:
    """The plan as a table with the reasons for missing values below it."""
    heads, right = ("case", "model", "device", "samples", "memory", "time"), ("samples", "memory", "time")
    rows = []
    for case in described["cases"]:
        needed = case["memory"] and (case["memory"]["process_bytes"] or case["memory"]["total_bytes"])
        memory = f"{needed / 1e9:.2f} GB" if needed else "?"
        place = f"{case['device']} {case['dtype']}"
        rows.append([case["case_id"], case["model"], place, str(case["samples"]), memory, _time(case["time"])])
    lines = [grid(heads, rows, right=right, folds=("case",)), ""]
    bounded = any(case["time"] and case["time"]["bound"] == "at_most" for case in described["cases"])
    total = described["total_reason"] or f"{'at most ' if bounded else 'about '}{format_duration(described['total_s'])}"
    lines.append(f"{len(described['cases'])} cases, {described['samples']} samples; time: {total}")
    if described["run_s"] is not None:
        lines.append(
            f"the whole run: about {format_duration(described['run_s'])}, with calibration, loading, compiling and measured "
            "passes as they took on two CPU cores"
        )
    if margin := max((case["memory"]["margin_bytes"] for case in described["cases"] if case["memory"]), default=0):
        lines.append(f"memory: CUDA graphs and the sampler's float32 copies take up to {margin / 1e9:.2f} GB more")
    if any(case["memory"] and case["memory"]["process_bytes"] for case in described["cases"]):
        lines.append(
            "memory of a CPU case: of its whole process at its peak, with the framework and compiled graphs, to some 20 %"
        )
    if any(case["processes"] > 1 for case in described["cases"]):
        lines.append(_processes(described))
    if bounded:
        lines.append("≤: all new tokens are written, one a pass, and no draft is right; stops and acceptance shorten it")
    if any(case["replayed"] and case["replayed"]["assumed"] for case in described["cases"]):
        lines.append("replayed: passes per block follow a stated mean; their distribution is assumed")
    reasons = (case[key] for case in described["cases"] for key in ("memory_reason", "time_reason"))
    for reason in dict.fromkeys(reason for reason in reasons if reason):
        lines.append(f"?: {reason}")
    return "".join(f"{wrapped(line) if at > 1 else line}\n" for at, line in enumerate(lines))


def _processes(described: dict[str, Any]) -> str:
    """The processes of every part, in words."""
    by_part = {case["case_id"].partition("/")[0]: case["processes"] for case in described["cases"]}
    return "fresh processes, counted above: " + ", ".join(f"part {part} {count}" for part, count in by_part.items())


def _time(time: dict[str, Any] | None) -> str:
    if time is None:
        return "?"
    return f"{'≤ ' if time['bound'] == 'at_most' else ''}{format_duration(time['total_s'])}"


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
    """The newest fitting cached calibration; file names depend on torch's version, so the contents are compared."""
    kept = [kept_at(file, part.dtype) for file in sorted(cache_dir().glob("calibration-*.json"))]
    fitting = [
        one for one in kept
        if one is not None and one.device == part.device and one.model_bytes == model_bytes
        and (part.threads is None or one.threads == part.threads)
        and (part.device != "cpu" or one.device_name == cpu_name())
        and one.engine in {engine_words(part.session, how) for how in EXECUTIONS if part.execution in (how, "auto")}
    ]  # fmt: skip
    return max(fitting, key=lambda one: one.created_at, default=None)
