"""Assembles the page from a run and its comparison: which tables and figures each part gets, and what is said of the rest."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from harness import units
from harness.compare_values import Cell, Comparison
from harness.record import Run
from harness.reporting import tables, wording
from harness.reporting.answers import answers
from harness.reporting.drawing import Drawing
from harness.reporting.explain import explain_drawings
from harness.reporting.tables import Table

OUTCOME_WORDS = {"does_not_fit": "did not fit into memory", "failed": "failed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartView:
    """Everything the page shows of one part of the scenario."""

    name: str
    byline: str
    arms: Table | None
    baseline: Table | None
    factors: Table | None
    drawings: list[Drawing]
    passes: list[Table]
    predictions: Table | None
    remarks: list[str]


def render(run: Run, comparison: Comparison) -> str:
    """The report as one HTML document: no script, no request, every text from the record escaped."""
    environment = Environment(
        loader=PackageLoader("harness.reporting"), autoescape=True, undefined=StrictUndefined, trim_blocks=False
    )
    header = run.header
    parts = list(dict.fromkeys(cell.part for cell in comparison.cells))
    return environment.get_template("report.html.j2").render(
        header=header,
        machine=" and ".join(dict.fromkeys(wording.machine(header, case.device) for case in header.cases)) or "no machine",
        style=_style(environment),
        answers=answers(comparison, header),
        outcomes=[{**found, "words": OUTCOME_WORDS.get(found["outcome"], found["outcome"])} for found in comparison.outcomes],
        parts=[_part(comparison, run, name, f"part-{i}") for i, name in enumerate(parts)],
        environment=_facts(header.environment),
        sessions=_pretty(run.sessions) if run.sessions else "",
        scenario=_pretty(header.scenario),
        calibration=_pretty(header.calibration) if header.calibration else "",
        hardware=_pretty(header.hardware) if header.hardware else "",
        csv=tables.raw_csv(comparison),
        comparison_version=comparison.version,
    )


def _style(environment: Environment) -> Markup:
    """The style sheets, our own files: the one text besides the drawings that is not escaped."""
    loader = environment.loader
    sheets = ("style.css", "explain.css")
    return Markup("".join(loader.get_source(environment, sheet)[0] for sheet in sheets) if loader else "")


def _part(comparison: Comparison, run: Run, part: str, name: str) -> PartView:
    cells = [cell for cell in comparison.cells if cell.part == part]
    first, summaries = cells[0], [cell for cell in cells if cell.is_summary]
    with_arms = [cell for cell in cells if cell.arms]
    passes = [*(tables.pass_table(cell) for cell in summaries), tables.pass_parts_table(summaries)]
    return PartView(
        name=first.part,
        byline="; ".join((
            f"{wording.model(first)} on {first.device}",
            f"{first.session} session, {first.execution}, attention {first.attention}",
            "timed" if first.timed else "not timed",
            f"{'tasks' if len(first.tasks) > 1 else 'task'} {', '.join(first.tasks)}",
        )),
        arms=tables.arms_table(with_arms) if with_arms else None,
        baseline=tables.baseline_table(summaries),
        factors=tables.factors_table(with_arms),
        drawings=explain_drawings(comparison, run, part, name),
        passes=[table for table in passes if table is not None],
        predictions=tables.prediction_table([cell for cell in summaries if cell.arms]),
        remarks=[*_health(comparison, first.part), *_counter(first), *_missing(first)],
    )  # fmt: skip


def _health(comparison: Comparison, part: str) -> list[str]:
    """How many timed samples were void, and by which rule."""
    return [
        f"{found.void} of {found.timed} timed samples are void and left out of every time: "
        + "; ".join(f"{words} ({times})" for words, times in found.reasons.items()) + "."
        for found in comparison.health if found.part == part and found.void
    ]  # fmt: skip


def _counter(cell: Cell) -> list[str]:
    """What one percent of the memory counter was found to be worth, or why nothing was counted."""
    scale = cell.counter_scale
    if all(arm.measured_bandwidth_bytes_per_s.value is None for arm in cell.arms):
        reasons = dict.fromkeys(arm.measured_bandwidth_bytes_per_s.reason or "no reason recorded" for arm in cell.arms)
        return [f"No memory traffic was counted: {'; '.join(reasons)}."] if cell.timed and reasons else []
    if scale.counter is None or scale.bytes_per_s_per_percent.value is None:
        return []
    theoretical = scale.theoretical_bytes_per_s_per_percent
    beside = f"none by memory clock and bus width ({theoretical.reason})"
    if theoretical.value is not None:
        beside = f"{units.gigabytes(theoretical.value)} GB/s by {scale.theoretical_source}"
    said = f"One percent of {scale.counter} is {units.gigabytes(scale.bytes_per_s_per_percent.value)} GB/s"
    lines = [f"{said} by a copy of known bytes in the measuring process, and {beside}."]
    return [*lines, f"Beware: {scale.disagreement}."] if scale.disagreement else lines


def _missing(cell: Cell) -> list[str]:
    if not cell.timed:
        return ["Not timed: no wall speedup, no bandwidth and no prediction for this part."]
    return [f"No {rung} prediction: {reason.rstrip('.')}." for rung, reason in cell.rung_reasons.items()]


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def _facts(environment: dict[str, Any]) -> list[tuple[str, str]]:
    """The snapshot as names and text; what is None is shown with its reason."""
    reasons = environment.get("reasons") or {}
    return [(name, _fact(value, reasons.get(name))) for name, value in environment.items() if name != "reasons"]


def _fact(value: Any, reason: str | None) -> str:
    if value is None:
        return f"none: {reason or 'no reason recorded'}"
    said = str(value)
    if isinstance(value, dict):
        said = ", ".join(f"{key} {inner}" for key, inner in value.items())
    elif isinstance(value, list):
        said = ", ".join(map(str, value))
    return f"{said} ({reason})" if reason else said
