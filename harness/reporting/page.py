"""Assembles the page from a run and its comparison: verdict, explanation, plan, tables, evidence.

The evidence is the machine, versions, health, scenario, and the data as downloads. An absent value is shown with its reason.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pandas as pd

from harness import formatting
from harness.analysis.parallel import MANY_SAMPLES, parallel_map
from harness.analysis.results import Cell, Comparison, has_contender, to_json
from harness.analysis.tally.pass_values import reasons_in_words
from harness.record.schema import Run
from harness.reporting import cells as wording
from harness.reporting import tables
from harness.reporting.answers import answers
from harness.reporting.assets import SCRIPTS, fill_template
from harness.reporting.cells import Pointers
from harness.reporting.claims_shown import Held, claims_shown, held_claims, whose_claims
from harness.reporting.explain import explain_drawings
from harness.reporting.headline import headlines
from harness.reporting.planner.panel import panel_of
from harness.reporting.planner.view import planner_view
from harness.reporting.requests import rates_table, waits_table
from harness.reporting.samples import raw_frame, raw_table
from harness.reporting.served import served_table

MOST_BY_TASK = 500
"""Rows for arms of single tasks; with more the page leaves these tables out."""
OUTCOME_WORDS = {"does_not_fit": "did not fit into memory", "failed": "failed"}


def render(run: Run, comparison: Comparison, data: dict[str, Any] | None = None) -> str:
    """The report as one HTML document (see ``fill_template``).

    ``data``: the comparison as to_json gives it, where the caller has it.
    """
    header, pointers = run.header, Pointers(comparison)
    held, overall = held_claims(comparison.judgements), comparison.judgements
    parts = dict.fromkeys(cell.part for cell in comparison.cells)
    slow: list[Callable[[], Any]] = [
        partial(_samples, run, comparison, data),
        lambda: planner_view(panel_of(run, comparison)),
        *(partial(_part, run, comparison, pointers, part, f"part-{i}") for i, part in enumerate(parts)),
    ]
    (raw, downloads), planner, *views = parallel_map(slow, len(run.samples) >= MANY_SAMPLES)
    return fill_template(
        "report.html.j2",
        SCRIPTS,
        header=header,
        overall=overall,
        headlines=headlines(held, comparison),
        whose=whose_claims(header, overall),
        unread=comparison.unread,
        answers=answers(comparison, header, held, pointers),
        elsewhere=claims_shown(_elsewhere(held, comparison, run), pointers),
        alone=_alone(comparison, run),
        outcomes=[{**found, "words": OUTCOME_WORDS.get(found["outcome"], found["outcome"])} for found in comparison.outcomes],
        parts=views,
        planner=planner,
        health=health(comparison),
        integrity=comparison.integrity,
        environment=facts(header.environment),
        sessions=run.sessions,
        pretty=pretty,
        raw=raw,
        downloads=downloads,
        comparison_version=comparison.version,
    )


def _samples(run: Run, comparison: Comparison, data: dict[str, Any] | None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The table of the raw numbers, and the downloads."""
    frame = raw_frame(run)
    return raw_table(frame), downloads(comparison.run_id, data or to_json(comparison), frame)


def _elsewhere(held: Sequence[Held], comparison: Comparison, run: Run) -> list[Held]:
    """Judgements that no card shows: of cells that the run lacks, or that hold NTP alone."""
    cards = {(one.part, str(one.batch_size)) for one in comparison.answers if has_contender(one, run.header)}
    return [one for one in held if one.place not in cards]


def _alone(comparison: Comparison, run: Run) -> list[str]:
    """Sentences about parts with NTP alone, which have no card."""
    said = []
    for found in comparison.answers:
        if not has_contender(found, run.header):
            cell = comparison.summary(found.part, found.batch_size)
            right = next((arm.accuracy.value for arm in cell.arms if arm.accuracy.value is not None), None)
            accuracy = f": {formatting.percent(right)} of the answers are right" if right is not None else ""
            said.append(f"Part {cell.part} ({cell.size_words}) decodes {wording.model(cell)} by NTP alone{accuracy}.")
    return said


def _part(run: Run, comparison: Comparison, pointers: Pointers, part: str, name: str) -> dict[str, Any]:
    """What the page shows of one part of the scenario. ``folded``: tables that are closed at first."""
    cells = [cell for cell in comparison.cells if cell.part == part]
    first, summaries = cells[0], [cell for cell in cells if cell.is_summary]
    drawings, not_drawn = explain_drawings(comparison, run, part, name)
    of_tasks = sum(len(cell.arms) for cell in comparison.cells if not cell.is_summary)
    by_task = [cell for cell in cells if not cell.is_summary] if of_tasks <= MOST_BY_TASK else []
    shown = [
        tables.arms_table(summaries, pointers, "Arms"),
        tables.factors_table(summaries, pointers, "Where the speedup comes from"),
        tables.pass_table(summaries, pointers, "Time per pass"),
        tables.prediction_table(summaries, pointers, "Predicted beside measured, whole decode"),
        tables.baseline_table(summaries, pointers, "Is the baseline fast?"),
        waits_table(summaries, pointers, "What requests waited for"),
        rates_table(summaries, pointers, "Requests and tokens per second"),
        served_table(summaries, pointers, "What the servers say of themselves"),
    ]
    folded = [
        tables.counts_table(summaries, pointers, "What was counted"),
        tables.rates_table(summaries, pointers, "Latency, bandwidth and energy"),
        tables.arms_table(by_task, pointers, "Arms, task by task"),
        tables.factors_table(by_task, pointers, "Where the speedup comes from, task by task"),
        tables.counts_table(by_task, pointers, "What was counted, task by task"),
        tables.rates_table(by_task, pointers, "Latency, bandwidth and energy, task by task"),
        tables.pass_parts_table(summaries, pointers, "A decode pass taken apart (means)"),
    ]
    return {
        "name": first.part,
        "byline": "; ".join(
            (
                f"{wording.model(first)} on {wording.place(first)}",
                "decoded by servers of others"
                if first.execution == "served"
                else f"{first.session} session, {first.execution}, attention {first.attention}"
                + (" for prompts" if first.execution == "native" else ""),
                "timed" if first.timed else "not timed",
                f"{'tasks' if len(first.tasks) > 1 else 'task'} {', '.join(first.tasks)}",
            )
        ),
        "drawings": drawings,
        "not_drawn": not_drawn,
        "tables": [table for table in shown if table is not None],
        "folded": [table for table in folded if table is not None],
        "remarks": [*(f"{one}." for one in first.remarks), *_counter(first), *_missing(first), *_left_out(of_tasks)],
    }


def _counter(cell: Cell) -> list[str]:
    """The measured value of one percent of the memory counter, or why nothing was counted."""
    scale = cell.counter_scale
    if all(arm.measured_bandwidth_bytes_per_s.value is None for arm in cell.arms):
        reasons = dict.fromkeys(arm.measured_bandwidth_bytes_per_s.reason or "no reason recorded" for arm in cell.arms)
        return [f"No memory traffic was counted: {'; '.join(reasons)}."] if cell.timed and reasons else []
    if scale.counter is None or scale.bytes_per_s_per_percent.value is None:
        return []
    theoretical = scale.theoretical_bytes_per_s_per_percent
    beside = f"none by memory clock and bus width ({theoretical.reason})"
    if theoretical.value is not None:
        beside = f"{formatting.gigabytes(theoretical.value)} GB/s by {scale.theoretical_source}"
    said = f"One percent of {scale.counter} is {formatting.gigabytes(scale.bytes_per_s_per_percent.value)} GB/s"
    lines = [f"{said} by a copy of known bytes in the measuring process, and {beside}."]
    return [*lines, f"Beware: {scale.disagreement}."] if scale.disagreement else lines


def _left_out(of_tasks: int) -> list[str]:
    """Names the tables that the page leaves out."""
    if of_tasks <= MOST_BY_TASK:
        return []
    where = "report.json has them, and in Python harness.load_run(RUN).arms"
    return [f"Not shown task by task: {of_tasks:,} arms of single tasks are more than a page holds; {where}."]


def _missing(cell: Cell) -> list[str]:
    if not cell.timed:
        return ["Not timed: no wall speedup, no bandwidth and no prediction for this part."]
    return [f"No {rung} prediction: {reason.rstrip('.')}." for rung, reason in reasons_in_words(cell.rung_reasons).items()]


PACKED = 6
"""Compression level, of nine; level 9 takes three times as long for 1 % less."""
LONGEST_LINK = 1_500_000
"""Characters; a browser cuts addresses, data URLs too, at two million."""


def downloads(name: str, data: dict[str, Any], samples: pd.DataFrame) -> list[dict[str, Any]]:
    """The derived values (the JSON form of a comparison) as JSON and as a table of arms, and the raw samples."""
    plain = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return [
        download(f"{name}.comparison.json", "every derived value with interval and reason", "application/json", plain),
        download(f"{name}.arms.csv", "one row per arm and cell, unrounded", "text/csv", arms_csv(data)),
        download(f"{name}.samples.csv", "the raw numbers below, unrounded", "text/csv", as_csv(samples)),
    ]


def download(name: str, about: str, media_type: str, text: str) -> dict[str, Any]:
    """``text`` as a data URL; compressed where it is too long, and None where that is too long as well."""
    data = text.encode()
    for ending, kind in (("", media_type), (".gz", "application/gzip")):
        body = gzip.compress(data, PACKED, mtime=0) if ending else data
        if 4 * len(body) <= 3 * LONGEST_LINK:
            coded = base64.b64encode(body).decode("ascii")
            return {"name": name + ending, "about": about, "href": f"data:{kind};base64,{coded}", "bytes": len(body)}
    return {"name": name, "about": about, "href": None, "bytes": len(data)}


def arms_csv(data: dict[str, Any]) -> str:
    """Every arm of a comparison (in JSON form), unrounded, one row per arm and cell."""
    keys = ("part", "task", "batch_size", "model", "dtype", "device")
    rows = [{key: cell[key] for key in keys} | arm for cell in data["cells"] for arm in cell["arms"]]
    if not rows:
        return ""
    dropped = ["predictions", "final_tokens_histogram", "case_ids"]
    return as_csv(pd.json_normalize(rows).drop(columns=dropped).dropna(axis=1, how="all"))


def as_csv(frame: pd.DataFrame) -> str:
    """A table as CSV, its texts and heads by ``csv_cell``."""
    plain = frame.apply(lambda column: column if column.dtype.kind in "iufb" else column.map(formatting.csv_cell))
    return str(plain.rename(columns=formatting.csv_cell).to_csv(index=False))


def facts(environment: dict[str, Any]) -> list[tuple[str, str]]:
    """The snapshot of the machine as names and text; a None is shown with its reason."""
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


def health(comparison: Comparison) -> Sequence[str]:
    """Per part, and per arm with void samples: timed samples, void samples, and the rule that voided them.

    Before them, the parts whose processes were not measured with the same.
    """
    said = [f"{one.part}: {words}" for one in comparison.mixes for words in (one.why_void, one.weakness) if words]
    for one in comparison.health:
        rules = "".join(f"; {words} ({times})" for words, times in one.reasons.items())
        said.append(f"{one.part}: {one.timed} timed samples, {one.void} void{rules}")
        arms = [(cell, arm) for cell in comparison.cells if cell.part == one.part and cell.is_summary for arm in cell.arms]
        said += [
            f"{one.part}, {cell.size_words}, {arm.label}: {arm.voids.words}"
            for cell, arm in arms
            if arm.voids and arm.voids.void
        ]
    return said


def pretty(value: Any) -> str:
    """JSON for reading."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)
