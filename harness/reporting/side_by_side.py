"""Writes several runs onto one page: their differences, what changed and by how much, each run's verdict, the trend.

It puts values of harness.regression.run_comparison into words, tables and drawings and computes no statistic. Every number has
its place in the JSON form of the same comparison.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from harness import formatting
from harness.analysis.judgement import State
from harness.analysis.stats.quantity import Quantity
from harness.record.journal import write_whole
from harness.regression.changes import OUTCOME_WORDS, Change, Outcome
from harness.regression.history.trend import Trend
from harness.regression.run_comparison import Against, SharedArm, Side, SideBySide, to_json
from harness.reporting import cells as wording
from harness.reporting.assets import assets
from harness.reporting.cells import Entry, Mark, Pointers, Row, Table, between
from harness.reporting.claims_shown import GLYPHS
from harness.reporting.exports.wording import tally, verdict_words
from harness.reporting.figures_changes import changes_figure, speedups_figure
from harness.reporting.svg import Drawing
from harness.reporting.trend import trend_figure
from harness.scenario.metrics import METRICS

HASH_DIGITS = 12
ARM_FIGURES: tuple[tuple[str, str, Mark, Callable[[float], str]], ...] = (
    ("nfe_speedup", "NFE speedup", "counted", formatting.ratio),
    ("wall_speedup", "Wall speedup", "measured", formatting.ratio),
    ("request_speedup", "Request speedup", "measured", formatting.ratio),
    ("accuracy", "Accuracy", "counted", formatting.percent),
)
"""Field, column, basis and number format."""


def changes_table(found: Sequence[tuple[Change, str]], heading: str, letter: str) -> Table | None:
    """Changes with their place, a section per metric, reasons for open ones below; None without changes."""
    reasons = list(dict.fromkeys(why for change, _ in found if (why := _reason(change))))
    sections: dict[str, list[Row]] = {}
    for change, key in found:
        definition = METRICS[change.metric]
        name = f"{change.metric}: {definition.what}{f', in {change.unit}' if change.unit else ''}"
        why = _reason(change)
        sections.setdefault(name, []).append({
            "Figure": Entry(text=change.subject),
            "A": _value(change, change.base, f"{key}/base"),
            letter: _value(change, change.new, f"{key}/new"),
            "Change": _change(change, key),
            "Found": Entry(text=OUTCOME_WORDS[change.outcome], note=reasons.index(why) + 1 if why else None),
        })  # fmt: skip
    marks: tuple[Mark, ...] = ("measured",) if heading == "Timed" else ("counted",)
    rows = tuple((name, tuple(members)) for name, members in sections.items())
    return Table(heading=heading, sections=rows, notes=tuple(reasons), marks={"Change": marks}) if rows else None


def _reason(change: Change) -> str | None:
    """Why a change has no answer and what would give one; None where it has one."""
    if change.outcome == "unknown":
        return change.reason or "not known in one of the runs"
    return "; ".join(filter(None, (change.reason, change.remedy))) if change.outcome in ("unclear", "no_interval") else None


def _value(change: Change, value: float | str | None, key: str) -> Entry:
    if value is None:
        return Entry(text="none")
    if isinstance(value, str):
        return Entry(text=value[:HASH_DIGITS])
    if change.unit.startswith("s"):
        return Entry(text=formatting.seconds(value), raw=value, key=key)
    if change.unit == "x":
        return Entry(text=formatting.ratio(value), raw=value, key=key)
    return Entry(text=formatting.figure(value, 4) if "/" in change.unit else formatting.count(value), raw=value, key=key)


def _change(change: Change, key: str) -> Entry:
    one, zero = (change.ratio, 1.0) if change.difference is None else (change.difference, 0.0)
    write = formatting.signed_percent if change.difference is None else formatting.points
    if one.value is None:
        return Entry(text="other" if change.base is not None and change.base != change.new else "none")
    known = one.low is not None and one.high is not None
    return Entry(
        text=write(one.value - zero), raw=one.value, low=one.low, high=one.high,
        key=f"{key}/{'ratio' if change.difference is None else 'difference'}",
        small=f"{write((one.low or 0) - zero)} to {write((one.high or 0) - zero)}" if known else "",
    )  # fmt: skip


def arms_table(found: SideBySide) -> Table | None:
    """NFE, wall and request speedup and accuracy of every shared arm, run by run; None where no arm is shared."""
    pointers = [Pointers(side.comparison) for side in found.sides]
    letters = [side.letter for side in found.sides]
    rows = tuple(_arm_row(arm, letters, pointers) for arm in found.arms)
    marks: dict[str, tuple[Mark, ...]] = {
        f"{head} {letter}": (mark,) for _, head, mark, _ in ARM_FIGURES for letter in letters
    }  # fmt: skip
    return Table(heading="Arms, run by run", sections=(("", rows),), notes=(), marks=marks) if rows else None


def _arm_row(arm: SharedArm, letters: Sequence[str], pointers: Sequence[Pointers]) -> Row:
    row: Row = {"Arm": Entry(text=arm.label, small=f"{arm.part}, batch {arm.batch_size}")}
    for name, head, _, write in ARM_FIGURES:
        for number, (letter, result) in enumerate(zip(letters, arm.results, strict=True)):
            value: Quantity | None = None if result is None else getattr(result, name)
            row[f"{head} {letter}"] = _arm_figure(value, write, f"/runs/{number}/comparison", pointers[number])
    return row


def _arm_figure(value: Quantity | None, write: Callable[[float], str], where: str, pointers: Pointers) -> Entry:
    if value is None or value.value is None:
        return Entry(text="none")
    return Entry(
        text=write(value.value), small=between(value, write), raw=value.value, low=value.low, high=value.high,
        key=where + pointers.of(value),
    )  # fmt: skip


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
    """One run against the first: ``unlike`` is (key, A, this run), and what changed."""

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
    """One sentence: how many figures of each kind changed, by outcome."""
    by_kind = {True: Counter[Outcome](), False: Counter[Outcome]()}
    for change in one.compared.changes:
        by_kind[change.kind == "timed"][change.outcome] += 1
    parts = [
        f"of {counts.total()} {words}, {', '.join(f'{counts[o]} {OUTCOME_WORDS[o]}' for o in GRAVEST if counts[o])}"
        for words, counts in (("timed figures", by_kind[True]), ("counted ones", by_kind[False])) if counts
    ]  # fmt: skip
    return "; ".join(parts) or "no figure is in both runs"


def _remarks(one: Against) -> tuple[str, ...]:
    """What the intervals cover, and why some figures have none."""
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
    """The series with a point of one of the runs, those with changes first; short series too, which say so."""
    ids = {side.header.run_id for side in found.sides}
    mine = [
        one for one in trend.judged
        if len(one.series.points) > 1 and any(ids & set(point.run_ids) for point in one.series.points)
    ]  # fmt: skip
    ordered = sorted(mine, key=lambda one: not one.changes)
    return [trend_figure(one, f"trend-{i}") for i, one in enumerate(ordered[:MOST_TRENDS])]
