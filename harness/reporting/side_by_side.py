"""Writes several runs onto one page: how they are unlike, what changed and by how much, each run's verdict, the trend.

Values of harness.regression.run_comparison put into words, tables and drawings; computes no statistic. Every number knows its place
in the JSON form of the same comparison.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from harness.analysis.judgement import State
from harness.record.journal import write_whole
from harness.regression.changes import OUTCOME_WORDS, Outcome
from harness.regression.history.trend import Trend
from harness.regression.run_comparison import Against, Side, SideBySide, to_json
from harness.reporting import wording
from harness.reporting.assets import assets
from harness.reporting.cells import Table
from harness.reporting.claims_shown import GLYPHS
from harness.reporting.drawing import Drawing
from harness.reporting.exports.wording import tally, verdict_words
from harness.reporting.figures_changes import changes_figure, speedups_figure
from harness.reporting.figures_trend import trend_figure
from harness.reporting.side_by_side_tables import arms_table, changes_table

GRAVEST: tuple[Outcome, ...] = ("worse", "changed", "better", "unclear", "no_interval", "unknown", "same")
MOST_TRENDS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class SideView:
    """One run in the list at the top."""

    letter: str
    run_id: str
    scenario: str
    question: str
    when: str
    machine: str
    commit: str
    state: State
    glyph: str
    word: str
    tally: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainstView:
    """One run against the first: ``unlike`` as (key, A, this run), and what changed."""

    letter: str
    said: str
    unlike: tuple[tuple[str, str, str], ...]
    one_sided: tuple[str, ...]
    drawing: Drawing | None
    tables: tuple[Table, ...]
    same: Table | None
    remarks: tuple[str, ...]


def write_side_by_side(found: SideBySide, page: Path, trend: Trend | None = None) -> Path:
    """Write the page, and its values as JSON beside it.

    Raises:
        StorageError: the disk refuses.
    """
    text = json.dumps(to_json(found), indent=1, ensure_ascii=False, allow_nan=False)
    write_whole(page.with_suffix(".json"), text.encode())
    write_whole(page, render(found, trend).encode())
    return page


def render(found: SideBySide, trend: Trend | None = None) -> str:
    """The page as one HTML document: no request, no script, every text from the records escaped."""
    environment = Environment(
        loader=PackageLoader("harness.reporting"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    letters = [side.letter for side in found.sides]
    return environment.get_template("side_by_side.html.j2").render(
        assets=assets(environment, scripts=()),
        letters=letters,
        sides=[_side(side) for side in found.sides],
        against=[_against(one, number) for number, one in enumerate(found.against)],
        speedups=speedups_figure(found.arms, letters, "speedups"),
        arms=arms_table(found),
        trends=_trends(trend, found) if trend else None,
        version=found.version,
    )


def _side(side: Side) -> SideView:
    header, judged = side.header, side.judgements
    machines = dict.fromkeys(wording.machine(header, case.device) for case in header.cases)
    commit = header.environment.get("commit")
    return SideView(
        letter=side.letter, run_id=header.run_id, scenario=header.scenario_name, question=header.question,
        when=header.created_at, machine=" and ".join(machines) or "no machine",
        commit=f"{commit}{' with changes' if header.environment.get('commit_has_changes') else ''}" if commit else "not known",
        state=judged.state, glyph=GLYPHS[judged.state], word=verdict_words(judged), tally=tally(judged),
    )  # fmt: skip


def _against(one: Against, number: int) -> AgainstView:
    changes = [(change, f"/against/{number}/compared/changes/{place}") for place, change in enumerate(one.compared.changes)]
    changes.sort(key=lambda found: GRAVEST.index(found[0].outcome))
    timed = [found for found in changes if found[0].kind == "timed"]
    counted = [found for found in changes if found[0].kind != "timed"]
    same = [found for found in counted if found[0].outcome == "same"]
    shown = ((timed, "Timed"), ([found for found in counted if found[0].outcome != "same"], "Counted"))
    return AgainstView(
        letter=one.letter,
        said=_said(one),
        unlike=tuple((key.key, key.base, key.new) for key in one.unlike),
        one_sided=one.compared.one_sided,
        drawing=changes_figure(one, f"changes-{one.letter}"),
        tables=tuple(table for found, heading in shown if (table := changes_table(found, heading, one.letter))),
        same=changes_table(same, "Counted, and the same in both", one.letter),
        remarks=_remarks(one),
    )  # fmt: skip


def _said(one: Against) -> str:
    """What changed, in a sentence: how many figures of either kind, by outcome."""
    by_kind = {True: Counter[Outcome](), False: Counter[Outcome]()}
    for change in one.compared.changes:
        by_kind[change.kind == "timed"][change.outcome] += 1
    parts = [
        f"of {counts.total()} {words}, {', '.join(f'{counts[o]} {OUTCOME_WORDS[o]}' for o in GRAVEST if counts[o])}"
        for words, counts in (("timed figures", by_kind[True]), ("counted ones", by_kind[False])) if counts
    ]  # fmt: skip
    return "; ".join(parts) or "no figure is in both runs"


def _remarks(one: Against) -> tuple[str, ...]:
    """What the intervals are about, and why some figures have none."""
    timed = [change.ratio for change in one.compared.changes if change.kind == "timed" and change.base is not None]
    lines = dict.fromkeys(line for ratio in timed for line in (ratio.method, ratio.reason) if line)
    found = [f"Times are over the same prompts: {line}." for line in lines]
    if any(ratio.these_processes_only for ratio in timed):
        found.append(
            "An interval of one or two processes is about these alone: another process of the same code may differ by more. "
            "Take runs in three processes or more, or let sbd gate measure both in turn."
        )
    if timed:
        found.append(
            "One interval in twenty leaves out the truth. Better and worse are said of all figures together: runs of one code "
            "show any on one page of twenty at most. A machine that changes between two runs looks like a change of the code: "
            "what is to be decided is decided by sbd gate, which measures both in turn."
        )
    return tuple(found)


def _trends(trend: Trend, found: SideBySide) -> list[Drawing]:
    """The series that one of the runs is a point of, those with changes first; too short ones too, which say so."""
    ids = {side.header.run_id for side in found.sides}
    mine = [
        one for one in trend.judged
        if len(one.series.points) > 1 and any(ids & set(point.run_ids) for point in one.series.points)
    ]  # fmt: skip
    ordered = sorted(mine, key=lambda one: not one.changes)
    return [trend_figure(one, f"trend-{i}") for i, one in enumerate(ordered[:MOST_TRENDS])]
