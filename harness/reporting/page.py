"""Assembles the page from a run and its comparison: verdict, explanation, plan, tables, evidence.

The evidence is the machine, versions, health, scenario, and the data as downloads. An absent value is shown with its reason.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from harness import formatting
from harness.analysis.parallel import MANY_SAMPLES, parallel_map
from harness.analysis.results import Cell, Comparison, has_contender, to_json
from harness.analysis.tally.pass_values import reasons_in_words
from harness.record.schema import Run
from harness.reporting import cells as wording
from harness.reporting.answers import answers
from harness.reporting.assets import SCRIPTS, fill_template
from harness.reporting.cells import Pointers
from harness.reporting.claims_shown import claims_shown, headlines, held_claims, whose_claims
from harness.reporting.columns import (
    ANSWERED,
    ARMS,
    BASELINE,
    COUNTS,
    FACTORS,
    PASS_PARTS,
    PREDICTIONS,
    RATES,
    SERVED,
    WAITED,
    passes,
)
from harness.reporting.evidence import Download, downloads, facts, health, pretty, raw_frame, raw_table, states
from harness.reporting.explain import explain_drawings
from harness.reporting.planner.panel import panel_of
from harness.reporting.planner.view import planner_view

MOST_BY_TASK = 500
"""Rows for arms of single tasks; with more the page leaves these tables out."""
OUTCOME_WORDS = {"does_not_fit": "did not fit into memory", "failed": "failed"}


def render(run: Run, comparison: Comparison, data: dict[str, Any] | None = None) -> str:
    """The report as one HTML document (see ``fill_template``).

    ``data``: the comparison as to_json gives it, where the caller has it.
    """
    header, pointers, overall = run.header, Pointers(comparison), comparison.judgements
    held = held_claims(overall)
    cards = answers(comparison, header, held, pointers)
    on_cards = {(card.cell.part, str(card.cell.batch_size)) for card in cards}
    parts = dict.fromkeys(cell.part for cell in comparison.cells)
    slow: list[Callable[[], Any]] = [
        partial(_samples, run, comparison, data),
        lambda: planner_view(panel_of(run, comparison)),
        *(partial(_part, run, comparison, pointers, part, f"part-{i}") for i, part in enumerate(parts)),
    ]
    (raw, data_files), planner, *views = parallel_map(slow, len(run.samples) >= MANY_SAMPLES)
    return fill_template(
        "report.html.j2",
        SCRIPTS,
        header=header,
        overall=overall,
        headlines=headlines(held, comparison),
        whose=whose_claims(header, overall),
        unread=comparison.unread,
        answers=cards,
        elsewhere=claims_shown([one for one in held if one.place not in on_cards], pointers),
        alone=_alone(comparison, run),
        outcomes=[{**found, "words": OUTCOME_WORDS.get(found["outcome"], found["outcome"])} for found in comparison.outcomes],
        parts=views,
        planner=planner,
        health=health(comparison),
        integrity=comparison.integrity,
        environment=facts(header.environment),
        states=states(run.sessions),
        pretty=pretty,
        raw=raw,
        downloads=data_files,
        comparison_version=comparison.version,
    )


def _samples(run: Run, comparison: Comparison, data: dict[str, Any] | None) -> tuple[dict[str, object], list[Download]]:
    """The table of the raw numbers, and the downloads."""
    frame = raw_frame(run)
    return raw_table(frame), downloads(comparison.run_id, data or to_json(comparison), frame)


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


def _part(run: Run, comparison: Comparison, pointers: Pointers, part: str, name: str) -> dict[str, object]:
    """What the page shows of one part of the scenario. ``folded``: tables that are closed at first."""
    cells = [cell for cell in comparison.cells if cell.part == part]
    first, summaries = cells[0], [cell for cell in cells if cell.is_summary]
    drawings, not_drawn = explain_drawings(comparison, run, part, name)
    of_tasks = sum(len(cell.arms) for cell in comparison.cells if not cell.is_summary)
    by_task, left_out = [cell for cell in cells if not cell.is_summary], list[str]()
    if of_tasks > MOST_BY_TASK:
        where = "report.json has them, and in Python harness.load_run(RUN).arms"
        left_out = [f"Not shown task by task: {of_tasks:,} arms of single tasks are more than a page holds; {where}."]
        by_task = []
    first_seen = (ARMS, FACTORS, passes(summaries), PREDICTIONS, BASELINE, WAITED, ANSWERED, SERVED)
    shown = [listing.table(summaries, pointers) for listing in first_seen]
    folded = [
        *(listing.table(summaries, pointers) for listing in (COUNTS, RATES)),
        *(listing.table(by_task, pointers, ", task by task") for listing in (ARMS, FACTORS, COUNTS, RATES)),
        PASS_PARTS.table(summaries, pointers),
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
        "remarks": [*(f"{one}." for one in first.remarks), *_counter(first), *_missing(first), *left_out],
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


def _missing(cell: Cell) -> list[str]:
    if not cell.timed:
        return ["Not timed: no wall speedup, no bandwidth and no prediction for this part."]
    return [f"No {rung} prediction: {reason.rstrip('.')}." for rung, reason in reasons_in_words(cell.rung_reasons).items()]
