"""A plan as plain data for JSON and CSV, and the columns of its table, all from the one list of columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from harness.capacity.results import BANDS, COLUMNS, Band, BreakEven, CapacityPlan, DeploymentPlan, DevicePlan, Load
from harness.hardware.figures import SourcedFigure

PLAN_VERSION = 1
Plain = dict[str, object]
SIDES = {"": "expected", "_low": "low", "_high": "high"}
LOAD_ALONE = ("gpus", "gpus_serial")
"""Of full replicas shown only where a load was asked for; else a plan has one replica."""


def shown(plan: CapacityPlan) -> dict[str, str]:
    """The columns of a terminal's table with their heads: those that have a figure in some row."""
    question = plan.question
    load: Load = "full" if question.service is None else "service"
    hidden = LOAD_ALONE if load == "full" and question.goal.requests_per_s is None else ()
    rows = [row for device in plan.devices for row in device.deployments]
    return {
        name: column.head
        for name, column in COLUMNS.items()
        if column.head and load in column.loads and name not in hidden and any(getattr(row, name) is not None for row in rows)
    }


def plain(plan: CapacityPlan) -> Plain:
    """The plan as plain data, ``version`` first. Of a trace the number of requests and the rate stand for its lines."""
    question, service = plan.question, plan.question.service
    answer = {
        "version": PLAN_VERSION,
        "model": question.shape.name,
        "params": question.shape.params,
        "deployment": asdict(question.deployment),
        "acceptance": asdict(question.acceptance),
        "memory_reserve": question.memory_reserve,
        "notes": plan.notes,
    }
    if service is None:
        asked = {"workload": asdict(question.workload), "goal": asdict(question.goal), "matrix_dtype": question.rate_dtype}
        return answer | asked | {"devices": [_device(device) for device in plan.devices]}
    goal = asdict(service)
    if service.trace is not None:
        goal["trace"] = {"requests": len(service.trace.at_s), "requests_per_s": service.trace.requests_per_s}
    return answer | {
        "goal": goal,
        "ntp": [_figures(row, "service") for row in plan.deployments("ntp")],
        "sbd": [_figures(row, "service") for row in plan.deployments("sbd")],
        "pareto": list(map(asdict, plan.pareto)),
        "refused": list(map(asdict, plan.refused)),
        "prices": {device.hardware: _sourced(device.price_usd_per_hour) for device in plan.devices},
    }


def _figures(row: DeploymentPlan | None, load: Load) -> Plain | None:
    if row is None:
        return None
    values = asdict(row)
    return {name: values[name] for name, column in COLUMNS.items() if load in column.loads}


def _device(device: DevicePlan) -> Plain:
    sourced = {"price_usd_per_hour": _sourced(device.price_usd_per_hour), "power_w": _sourced(device.power_w)}
    return asdict(device) | sourced | {"ntp": _figures(device.ntp, "full"), "sbd": _figures(device.sbd, "full")}


def _sourced(figure: SourcedFigure) -> Plain:
    return figure.model_dump(include={"value", "source", "date", "grade"})


def csv_lines(plan: CapacityPlan, break_even: bool = False) -> Iterator[Plain]:
    """One a deployment, of a service then one a point of the Pareto front; with ``break_even`` one a device and context.

    ``predicted`` names the rung of a line's figures.
    """
    if plan.question.service is None:
        yield from _break_even_lines(plan) if break_even else _full_lines(plan)
        return
    rows = [_figures(row, "service") or {} for row in (*plan.deployments("ntp"), *plan.deployments("sbd"))]
    for kind, lines in (("deployment", rows), ("pareto", map(asdict, plan.pareto))):
        for line in lines:
            yield {"version": PLAN_VERSION, "line": kind, "model": plan.question.shape.name} | line


def _full_lines(plan: CapacityPlan) -> Iterator[Plain]:
    """Of both methods on every device, whether there is a deployment or not."""
    names = [name for name, column in COLUMNS.items() if "full" in column.loads and name not in ("method", "reason", "memory")]
    for device in plan.devices:
        for method, row in (("ntp", device.ntp), ("sbd", device.sbd)):
            line = _device_cells(plan, device) | {"arm": method, "reason": device.reason or (row and row.reason)}
            line |= {name: getattr(row, name, None) for name in names if name not in BANDS}
            for name in names:
                line |= _sides(name, getattr(row, name, None)) if name in BANDS else {}
            yield line | _sides("wall_speedup", device.wall_speedup if method == "sbd" else None)


def _sides(name: str, band: Band | None) -> dict[str, float | None]:
    return {f"{name}{side}": getattr(band, part, None) for side, part in SIDES.items()}


RANGES = ("pays", "pays_overlapped", "pays_serial")


def _break_even_lines(plan: CapacityPlan) -> Iterator[Plain]:
    for device in plan.devices:
        for entry in device.break_even or (None,):
            line = _device_cells(plan, device) | {"reason": device.reason or (entry and entry.reason)}
            others = [name for name in BreakEven.__dataclass_fields__ if name not in (*RANGES, "reason")]
            line |= {name: getattr(entry, name, None) for name in others}
            yield line | {name: " ".join(f"{first}-{last}" for first, last in getattr(entry, name, ())) for name in RANGES}


def _device_cells(plan: CapacityPlan, device: DevicePlan) -> Plain:
    price = device.price_usd_per_hour
    return {
        "model": plan.question.shape.name,
        "hardware": device.hardware,
        "predicted": device.rung,
        "arithmetic": device.arithmetic,
        "price_usd_per_hour": price.value,
        "price_source": price.source,
        "price_date": price.date,
        "power_w": device.power_w.value,
    }
